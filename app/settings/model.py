"""The settings themselves: names, types, defaults, and which of them contradict each other."""

import base64
import binascii
import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from app.core.events import Limits

PREFIX: Final = "SUREFOOT_"
_KEY_BYTES: Final = 32
_ADMIN_KEY_LEAST: Final = 16
_NETWORKS: Final = (
    "must be networks in CIDR form with commas between, such as 127.0.0.0/8,10.1.0.0/16 "
    "(no bits set after the prefix)"
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Settings(BaseSettings):
    """Everything an operator can set; times in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    database_url: SecretStr | None = None
    listen_database_url: SecretStr | None = None
    pooler: Literal["none", "transaction"] = "none"
    pool_size: int = Field(10, ge=1, le=1000)
    redis_url: SecretStr | None = None
    data: Path = Path(".surefoot")

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    auth: Literal["on", "off"] | None = None
    admin_key: SecretStr | None = None
    encryption_keys: SecretStr | None = None
    body_limit: int = Field(1024 * 1024, ge=1024)
    max_queued: int = Field(10_000, ge=1)
    max_connections: int = Field(4096, ge=16)
    max_streams: int = Field(2048, ge=1)
    stream_ping_s: float = Field(15.0, ge=1, le=300)
    egress_allow: Annotated[tuple[Network, ...], NoDecode] = ()

    llm_base_url: str | None = None
    llm_api_key: SecretStr | None = None
    llm_model: str | None = None
    models_file: Path | None = None

    lease_s: float = Field(15.0, ge=2, le=300)
    drain_s: float = Field(20.0, ge=0, le=3600)
    approval_ttl_s: float = Field(86_400.0, gt=0, le=30 * 86_400)
    webhook_timeout_s: float = Field(15.0, ge=0.1, le=60)
    linger_s: float = Field(0.0, ge=0, le=300)
    health_port: int | None = Field(None, ge=0, le=65535)
    worker_slots: int = Field(256, ge=1, le=100_000)
    audit_s: float = Field(60.0, ge=0, le=86_400)

    retention_days: float | None = Field(None, ge=1, le=36_500)
    idempotency_ttl_s: float = Field(86_400.0, ge=3600, le=366 * 86_400)

    max_steps: int = Field(12, ge=1, le=100)
    token_budget: int = Field(100_000, ge=1)
    max_cost: float | None = Field(None, gt=0)
    max_consecutive_errors: int = Field(3, ge=1, le=100)
    loop_window: int = Field(6, ge=2, le=24)
    loop_threshold: int = Field(3, ge=2, le=24)
    max_repeat: int = Field(2, ge=1, le=24)
    total_timeout_s: float = Field(90.0, gt=0)
    tool_timeout_s: float = Field(15.0, gt=0)
    max_tool_calls_per_step: int = Field(5, ge=1, le=100)
    ceiling_steps: int = Field(100, ge=1, le=100)
    ceiling_token_budget: int = Field(2_000_000, ge=1)
    ceiling_total_timeout_s: float = Field(3600.0, gt=0)
    ceiling_tool_timeout_s: float = Field(600.0, gt=0)

    jaeger_url: str | None = None
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    log_format: Literal["json", "console"] = "json"

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file, which comes in as arguments."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings

    @field_validator("egress_allow", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(_NETWORKS)  # noqa: TRY004 - pydantic turns this one into a fault
        try:
            return [ipaddress.ip_network(part) for part in value]
        except ValueError:
            raise ValueError(_NETWORKS) from None

    @field_validator("admin_key")
    @classmethod
    def _is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < _ADMIN_KEY_LEAST:
            raise ValueError(f"must have {_ADMIN_KEY_LEAST} characters or more")
        return value

    @field_validator("auth", "log_level", "log_format", "pooler", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        if isinstance(value, bool):  # YAML reads `on` and `off` as booleans
            return "on" if value else "off"
        return value.lower() if isinstance(value, str) else value

    @field_validator("llm_base_url", "jaeger_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in {"http", "https"}:
                raise ValueError("must be an http or https URL")
            if "@" in parts.netloc:
                raise ValueError("must not hold a user or a password")
        return value

    @field_validator("database_url", "listen_database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        return _with_scheme(value, ("postgresql", "postgres"))

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: SecretStr | None) -> SecretStr | None:
        return _with_scheme(value, ("redis", "rediss", "unix"))

    @field_validator("encryption_keys")
    @classmethod
    def _are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _check_keys(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        faults = self.contradictions()
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def contradictions(self) -> list[str]:
        """Return which settings do not go together; a copy with changes is to ask again."""
        return _contradictions(self)

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def auth_on(self) -> bool:
        """Return whether requests need a key: off by default only on a loopback bind."""
        return self.auth == "on" if self.auth is not None else not self.loopback

    @property
    def limits(self) -> Limits:
        """Return the limits of a session that sets none."""
        return Limits(
            max_steps=self.max_steps,
            token_budget=self.token_budget,
            max_cost=self.max_cost,
            max_consecutive_errors=self.max_consecutive_errors,
            loop_window=self.loop_window,
            loop_threshold=self.loop_threshold,
            max_repeat=self.max_repeat,
            total_timeout_s=self.total_timeout_s,
            tool_timeout_s=self.tool_timeout_s,
            max_tool_calls_per_step=self.max_tool_calls_per_step,
        )

    def secrets(self) -> tuple[str, ...]:
        """Return every secret value, passwords inside URLs too, for the masks of the logs."""
        found: list[str] = []
        for name in ("llm_api_key", "admin_key"):
            found.extend(_plain(getattr(self, name)))
        for text in _plain(self.encryption_keys):
            found.extend(part.partition(":")[2] for part in text.split(","))
        for name in ("database_url", "listen_database_url", "redis_url"):
            for url in _plain(getattr(self, name)):
                password = urlsplit(url).password
                if password:
                    found.extend({password, unquote(password)})
        return tuple(found)


def _plain(secret: SecretStr | None) -> list[str]:
    return [] if secret is None else [secret.get_secret_value()]


def _check_keys(text: str) -> None:
    seen: set[str] = set()
    for part in text.split(","):
        key_id, colon, encoded = part.strip().partition(":")
        if not colon or not key_id or key_id in seen:
            raise ValueError("must be id:base64[,id:base64...] with different ids")
        seen.add(key_id)
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"key {key_id} is not base64") from None
        if len(key) != _KEY_BYTES:
            raise ValueError(f"key {key_id} must have {_KEY_BYTES} bytes")


def _contradictions(settings: Settings) -> list[str]:
    rules = (
        (
            settings.llm_base_url is not None and settings.llm_model is None,
            "SUREFOOT_LLM_BASE_URL is set without SUREFOOT_LLM_MODEL: name the model to ask for",
        ),
        (
            settings.llm_model is not None
            and settings.llm_base_url is None
            and settings.models_file is None,
            (
                "SUREFOOT_LLM_MODEL is set without SUREFOOT_LLM_BASE_URL: say which endpoint "
                "serves it, such as https://api.openai.com/v1"
            ),
        ),
        (
            settings.auth_on and settings.admin_key is None,
            (
                "authentication is on, so SUREFOOT_ADMIN_KEY is needed (16 characters or more); "
                f"for an open server on {settings.host} say SUREFOOT_AUTH=off"
            ),
        ),
        (
            settings.listen_database_url is not None and settings.database_url is None,
            "SUREFOOT_LISTEN_DATABASE_URL is set without SUREFOOT_DATABASE_URL",
        ),
        (
            settings.max_steps > settings.ceiling_steps,
            "SUREFOOT_MAX_STEPS is above SUREFOOT_CEILING_STEPS",
        ),
        (
            settings.token_budget > settings.ceiling_token_budget,
            "SUREFOOT_TOKEN_BUDGET is above SUREFOOT_CEILING_TOKEN_BUDGET",
        ),
        (
            settings.total_timeout_s > settings.ceiling_total_timeout_s,
            "SUREFOOT_TOTAL_TIMEOUT_S is above SUREFOOT_CEILING_TOTAL_TIMEOUT_S",
        ),
        (
            settings.tool_timeout_s > settings.ceiling_tool_timeout_s,
            "SUREFOOT_TOOL_TIMEOUT_S is above SUREFOOT_CEILING_TOOL_TIMEOUT_S",
        ),
    )
    return [text for broken, text in rules if broken]


def _with_scheme(url: SecretStr | None, schemes: tuple[str, ...]) -> SecretStr | None:
    if url is not None and url.get_secret_value().partition("://")[0] not in schemes:
        raise ValueError(f"must begin with {' or '.join(f'{s}://' for s in schemes)}")
    return url
