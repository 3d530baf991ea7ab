"""Keys and chains: what is sealed opens only in its place, and no change of a journal passes."""

import base64
import hashlib
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.events import Event, SessionClosed
from app.runtime.errors import Erased, KeyMissing, Tampered
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.keys import WrappedKey
from app.storage.chain import FaultOfChain, verify_chain
from app.storage.codec import JsonCodec
from app.storage.keys import AesCipher, KeyFormatError, MasterKeys, make_dev_keys, parse_keys

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
B64 = base64.b64encode(ONE).decode()


def test_keys_are_read_in_their_order() -> None:
    assert list(parse_keys(f"new:{base64.b64encode(TWO).decode()}, old:{B64}")) == ["new", "old"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "id:base64"),
        (B64, "id:base64"),
        (f":{B64}", "id:base64"),
        ("a:***", "base64"),
        ("a:AAAA", "3 bytes"),
        (f"a:{B64},a:{B64}", "twice"),
        (f"a:{B64},", "Key 2"),
    ],
)
def test_a_wrong_key_is_named_and_not_shown(text: str, says: str) -> None:
    with pytest.raises(KeyFormatError, match=says) as raised:
        parse_keys(text)
    assert B64 not in str(raised.value)


def test_dev_keys_are_made_once_and_only_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "data" / "keys"
    first = make_dev_keys(path)
    assert make_dev_keys(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["keys"]
    assert list(parse_keys(first)) == ["dev"]


def test_a_sealed_text_opens_only_in_its_place() -> None:
    ring = MasterKeys({"one": ONE})
    wrapped, cipher = ring.create("ses_1")
    other = ring.create("ses_2")[1]
    sealed = cipher.seal(b"secret", b"event:1")
    assert b"secret" not in sealed
    assert sealed != cipher.seal(b"secret", b"event:1"), "nonces are random"
    assert ring.unwrap("ses_1", wrapped).open(sealed, b"event:1") == b"secret"
    attempts: list[Callable[[], bytes]] = [
        lambda: cipher.open(sealed, b"event:2"),
        lambda: other.open(sealed, b"event:1"),
        lambda: cipher.open(sealed[:-1], b"event:1"),
        lambda: cipher.open(b"", b"event:1"),
    ]
    for attempt in attempts:
        with pytest.raises(Tampered):
            attempt()


def test_even_under_one_data_key_a_text_belongs_to_its_session() -> None:
    sealed = AesCipher("ses_1", ONE, TWO).seal(b"x", b"view")
    with pytest.raises(Tampered):
        AesCipher("ses_2", ONE, TWO).open(sealed, b"view")


def test_keys_change_and_old_sessions_stay_readable() -> None:
    wrapped, cipher = MasterKeys({"old": ONE}).create("ses_1")
    both = MasterKeys({"new": TWO, "old": ONE})
    assert both.unwrap("ses_1", wrapped).open(cipher.seal(b"x", b""), b"") == b"x"
    assert both.create("ses_2")[0].key_id == "new"
    with pytest.raises(KeyMissing, match="old"):
        MasterKeys({"new": TWO}).unwrap("ses_1", wrapped)
    with pytest.raises(Tampered):
        both.unwrap("ses_2", wrapped)
    with pytest.raises(Tampered):
        MasterKeys({"old": TWO}).unwrap("ses_1", wrapped)


def test_an_erased_session_has_no_cipher_but_its_chain() -> None:
    ring = MasterKeys({"one": ONE})
    cipher = ring.create("ses_1")[1]
    with pytest.raises(Erased):
        ring.unwrap("ses_1", WrappedKey("one", b""))
    assert ring.chain("ses_1", "one").link(1, 1, b"p", b"") == cipher.link(1, 1, b"p", b"")


def test_records_carry_the_id_of_their_key() -> None:
    sealed = MasterKeys({"old": ONE}).seal_record(b"answer")
    assert MasterKeys({"new": TWO, "old": ONE}).open_record(sealed) == b"answer"
    for broken in (b"", b"\0\0", sealed[:-1], sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(Tampered):
            MasterKeys({"old": ONE}).open_record(broken)


def test_no_two_inputs_share_a_link() -> None:
    ring = MasterKeys({"one": ONE})
    links = {
        ring.chain(session, "one").link(seq, v, payload, previous)
        for session in ("a", "ab")
        for seq in (1, 2)
        for v in (1, 2)
        for payload in (b"", b"p", b"pp")
        for previous in (b"", b"p", b"pp")
    }
    assert len(links) == 2 * 2 * 2 * 3 * 3


class Journal:
    """A journal of a few events, sealed as the runtime does it."""

    def __init__(self) -> None:
        self.ring = MasterKeys({"one": ONE})
        self.cipher = self.ring.create("ses_1")[1]
        self.codec = JsonCodec()
        self.rows: list[SealedEvent] = []
        previous = b""
        for seq in range(1, 6):
            event = Event(seq, 1, 0, None, seq, SessionClosed(f"r{seq}"))
            payload = self.cipher.seal(self.codec.encode(event), b"event:%d" % seq)
            previous = self.cipher.link(seq, 1, payload, previous)
            row = SealedEvent(seq, 1, "session.closed", None, 1, 0, seq, payload, previous)
            self.rows.append(row)
        self.head_hash = previous

    def open(self, row: SealedEvent) -> Event:
        return self.codec.decode(self.cipher.open(row.payload, b"event:%d" % row.seq))

    def fault(self, rows: list[SealedEvent]) -> tuple[int, FaultOfChain] | None:
        broken = verify_chain(rows, self.cipher, head=5, head_hash=self.head_hash, opener=self.open)
        return (broken.seq, broken.fault) if broken else None


@pytest.mark.req("STATE-8")
def test_each_kind_of_forgery_is_found_where_it_is() -> None:
    journal = Journal()
    rows = journal.rows
    assert journal.fault(rows) is None
    resealed = journal.cipher.seal(b"{}", b"event:3")
    changed = replace(rows[2], payload=resealed)
    rehashed = replace(changed, hash=journal.cipher.link(3, 1, resealed, rows[1].hash))
    renumbered = [replace(row, seq=n) for n, row in enumerate([*rows[:1], *rows[2:]], 1)]
    gap, hashed, cut = FaultOfChain.GAP, FaultOfChain.HASH, FaultOfChain.CUT
    assert journal.fault([*rows[:2], changed, *rows[3:]]) == (3, hashed)
    assert journal.fault([*rows[:1], *rows[2:]]) == (2, gap)
    assert journal.fault(renumbered) == (2, hashed)
    assert journal.fault([rows[0], rows[2], rows[1], *rows[3:]]) == (2, gap)
    assert journal.fault(rows[:4]) == (5, cut)
    assert journal.fault([]) == (1, cut)
    assert journal.fault([replace(rows[0], step=9), *rows[1:]]) == (1, FaultOfChain.INDEX)
    assert journal.fault([replace(rows[0], v=2), *rows[1:]]) == (1, hashed)
    # Someone who holds the chain's key but not the data key is still found.
    stolen = replace(rows[2], payload=b"x" * 40)
    stolen = replace(stolen, hash=journal.cipher.link(3, 1, stolen.payload, rows[1].hash))
    assert journal.fault([*rows[:2], stolen]) == (3, FaultOfChain.SEALED)
    assert rehashed.hash != rows[2].hash


@pytest.mark.req("STATE-9")
def test_a_chain_can_be_verified_after_erasure() -> None:
    journal = Journal()
    chain = journal.ring.chain("ses_1", "one")
    found = verify_chain(journal.rows, chain, head=5, head_hash=journal.head_hash, opener=None)
    assert found is None


@pytest.mark.req("API-11")
def test_a_digest_is_known_again_after_a_rotation_and_only_with_the_key() -> None:
    digest = MasterKeys({"old": ONE}).digest_record(b"said")
    rotated = MasterKeys({"new": TWO, "old": ONE})
    assert rotated.is_digest(digest, b"said")
    assert not rotated.is_digest(digest, b"other")
    assert rotated.digest_record(b"said") != digest
    plain = hashlib.sha256(b"said").digest()
    assert plain not in digest
    assert rotated.is_digest(plain, b"said")  # as the first release wrote it
    assert not rotated.is_digest(plain, b"other")
    with pytest.raises(KeyMissing):
        MasterKeys({"new": TWO}).is_digest(digest, b"said")


@pytest.mark.req("API-11")
def test_a_digest_of_the_release_before_is_known_too() -> None:
    keys = MasterKeys({"k1": b"k" * 32})
    assert keys.is_digest(hashlib.sha256(b"said").digest(), b"said")
    assert not keys.is_digest(hashlib.sha256(b"said").digest(), b"other")
