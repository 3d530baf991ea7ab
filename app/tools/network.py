"""Connections to exactly the address that the egress guard checked."""

import functools
from collections.abc import Iterable
from typing import Final

import httpcore2
import httpx2

from app.tools.egress import EgressGuard

_PATIENCE_S: Final = 3.0
_MOST_TRIED: Final = 4


class PinnedBackend:
    """Makes the connections of a pool: the guard resolves and checks, nobody resolves again.

    TLS still verifies the name of the host, since the pool keeps knowing it by that.
    """

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore2
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of the checked addresses, the next when one does not answer."""
        addresses = (await self._guard.addresses(host, port))[:_MOST_TRIED]
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(
                    str(address), port, _PATIENCE_S, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(
            str(addresses[-1]), port, timeout, local_address, socket_options
        )

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool does between its own retries; those are off."""
        await self._network.sleep(seconds)


@functools.lru_cache(maxsize=1024)
def host_and_port(scheme: str, authority: str) -> tuple[bytes, int]:
    """Return the host as it goes on the wire (in ASCII) and the port.

    Raises:
        httpx2.InvalidURL: when the authority is none.

    """
    url = httpx2.URL(f"{scheme}://{authority}")
    return url.raw_host, url.port or (443 if scheme == "https" else 80)
