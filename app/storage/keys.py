"""Keys: masters given by configuration, one data key a session, everything sealed by AES-256-GCM.

From each master four keys are derived (HKDF-SHA256): one wraps data keys, one seals records that
belong to no session, one digests what requests said, one authenticates the chains of journals. So
erasing a session, which is destroying its data key, leaves its chain verifiable.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.runtime.errors import Erased, KeyMissing, Tampered
from app.runtime.ports.keys import WrappedKey

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PLAIN_DIGEST: Final = 32
"""The length of a SHA-256 alone; with the name of a key before it, it is longer."""

_LENGTH: Final = Struct(">I")
_LINK: Final = Struct(">QI")


class KeyFormatError(ValueError):
    """`SUREFOOT_ENCRYPTION_KEYS` is not `id:base64[,id:base64…]` with keys of 32 bytes."""


def parse_keys(text: str) -> dict[str, bytes]:
    """Return master keys by id, in their order; the first encrypts.

    Raises:
        KeyFormatError: saying which entry is wrong, never what it holds.

    """
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(text.split(","), 1):
        key_id, colon, encoded = entry.strip().partition(":")
        if not colon or not key_id:
            raise KeyFormatError(f"Key {number} is not of the form id:base64.")
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise KeyFormatError(f"Key {number} ({key_id}) is not valid base64.") from None
        if len(key) != _KEY_BYTES:
            raise KeyFormatError(f"Key {number} ({key_id}) has {len(key)} bytes instead of 32.")
        if key_id in keys:
            raise KeyFormatError(f"Key id {key_id} is given twice.")
        keys[key_id] = key
    return keys


def make_dev_keys(path: Path) -> str:
    """Return the keys kept in a file, made (0600) when there is none yet.

    The file appears whole or not at all, also when two processes make it at once.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"dev:{base64.b64encode(os.urandom(_KEY_BYTES)).decode()}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(new)
        except FileExistsError:
            pass  # another process was quicker: its keys are the ones
        finally:
            new.unlink()
    return path.read_text(encoding="ascii").strip()


def _seal(cipher: AESGCM, plain: bytes, context: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plain, context)


def _open(cipher: AESGCM, sealed: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise Tampered("Sealed bytes do not open: changed, or not from this place.") from None


def _framed(*parts: bytes) -> bytes:
    """Join parts so that no two different lists of parts give the same bytes."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


class _Master:
    def __init__(self, key: bytes) -> None:
        self.wrap = AESGCM(_derive(key, b"surefoot wrap v1"))
        self.record = AESGCM(_derive(key, b"surefoot record v1"))
        self.chain = _derive(key, b"surefoot chain v1")
        self.digest = _derive(key, b"surefoot digest v1")


def _derive(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=purpose).derive(key)


class Chain:
    """Links the events of one session's journal, each to the one before it."""

    def __init__(self, session_id: str, key: bytes) -> None:
        """Link with the chain key of one master."""
        self._key = key
        self._session = _framed(session_id.encode())

    def link(self, event_seq: int, v: int, payload: bytes, previous: bytes) -> bytes:
        """Return the hash over this sealed event and the hash before it."""
        message = b"".join(
            (self._session, _LINK.pack(event_seq, v), _framed(previous), _framed(payload))
        )
        return hmac.digest(self._key, message, "sha256")


class AesCipher(Chain):
    """Seals what belongs to one session; a sealed text opens only there and in its context."""

    def __init__(self, session_id: str, data_key: bytes, chain_key: bytes) -> None:
        """Take the session's data key in the clear."""
        super().__init__(session_id, chain_key)
        self._cipher = AESGCM(data_key)

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return nonce and sealed bytes."""
        return _seal(self._cipher, plain, self._session + context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain bytes.

        Raises:
            Tampered: when they were changed, or sealed elsewhere.

        """
        return _open(self._cipher, sealed, self._session + context)


class MasterKeys:
    """The keyring of this process: the first key seals what is new, every key opens its own."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Take master keys by id, the one for new sessions first."""
        if not keys:
            raise KeyFormatError("At least one encryption key is needed.")
        self._masters = {key_id: _Master(key) for key_id, key in keys.items()}
        self._first = next(iter(keys))

    @property
    def ids(self) -> Sequence[str]:
        """Return the ids of the master keys, the one for new sessions first."""
        return tuple(self._masters)

    def create(self, session_id: str) -> tuple[WrappedKey, AesCipher]:
        """Return a new data key, wrapped for this session only, and its cipher."""
        master = self._masters[self._first]
        data_key = os.urandom(_KEY_BYTES)
        wrapped = _seal(master.wrap, data_key, session_id.encode())
        return WrappedKey(self._first, wrapped), AesCipher(session_id, data_key, master.chain)

    def unwrap(self, session_id: str, key: WrappedKey) -> AesCipher:
        """Return the cipher of a session.

        Raises:
            Erased: when the data key was destroyed.
            KeyMissing: when its master is not here.
            Tampered: when it was wrapped for another session, or changed.

        """
        if not key.wrapped:
            raise Erased(f"The content of {session_id} was erased.")
        master = self._master(key.key_id)
        data_key = _open(master.wrap, key.wrapped, session_id.encode())
        return AesCipher(session_id, data_key, master.chain)

    def chain(self, session_id: str, key_id: str) -> Chain:
        """Return the links of a session's journal, which outlive its data key."""
        return Chain(session_id, self._master(key_id).chain)

    def seal_record(self, plain: bytes) -> bytes:
        """Seal something that belongs to no session; the key's id goes with it."""
        name = self._first.encode()
        return _framed(name) + _seal(self._masters[self._first].record, plain, name)

    def open_record(self, sealed: bytes) -> bytes:
        """Open what `seal_record` sealed."""
        name, master, rest = self._named(sealed)
        return _open(master.record, rest, name)

    def digest_record(self, plain: bytes) -> bytes:
        """Return a keyed digest of what a request said; the key's id goes with it."""
        key = self._masters[self._first].digest
        return _framed(self._first.encode()) + hmac.digest(key, plain, "sha256")

    def is_digest(self, digest: bytes, plain: bytes) -> bool:
        """Return whether `digest_record` made this digest of these bytes, under any key here.

        Or an older release, whose digests had no key: their records live for a while beside ours.
        """
        if len(digest) == _PLAIN_DIGEST:
            return hmac.compare_digest(digest, hashlib.sha256(plain).digest())
        _, master, rest = self._named(digest)
        return hmac.compare_digest(rest, hmac.digest(master.digest, plain, "sha256"))

    def _named(self, framed: bytes) -> tuple[bytes, _Master, bytes]:
        """Return the name of a master key which stands before something, the key, and the rest."""
        if len(framed) < _LENGTH.size:
            raise Tampered("A sealed record is cut short.")
        end = _LENGTH.size + _LENGTH.unpack_from(framed)[0]
        name = framed[_LENGTH.size : end]
        return name, self._master(name.decode("utf-8", "replace")), framed[end:]

    def _master(self, key_id: str) -> _Master:
        master = self._masters.get(key_id)
        if master is None:
            raise KeyMissing(f"The encryption key {key_id!r} is not configured.")
        return master
