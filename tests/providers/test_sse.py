"""Server-sent events from bytes that are cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.sse import EventReader

STREAM = (
    b': PROCESSING\n\ndata: \n\ndata\n\nevent: x\nid: 7\ndata: {"a":1}\n\n: ping\n'
    b'data:{"b":\ndata: 2}\n\ndata: \xe4\xb8\x96\n\ndata: [DONE]\n\n'
)
EVENTS = [b'{"a":1}', b'{"b":\n2}', "世".encode(), b"[DONE]"]


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.case("C020")
def test_comments_and_empty_data_give_no_event() -> None:
    assert read(STREAM) == EVENTS


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_any_of_three_ways(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    expected = [event.replace(b"\r", b"\n") for event in EVENTS]
    assert read(stream) == expected
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == expected


@pytest.mark.case("C022")
@given(cuts=st.sets(st.integers(0, len(STREAM))))
def test_cuts_change_nothing(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(places))) == EVENTS


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert read(b"\xef\xbb\xbfdata: 1\n\n") == [b"1"]


def test_closing_gives_an_event_without_its_last_line_breaks() -> None:
    reader = EventReader()
    assert reader.feed(b"data: [DONE]") == []
    assert reader.close() == [b"[DONE]"]


def test_a_long_line_in_small_pieces_is_joined_once() -> None:
    reader = EventReader()
    for _ in range(200_000):
        assert reader.feed(b"x") == []
    assert reader.feed(b"\n\ndata: 1\n\n") == [b"1"]
