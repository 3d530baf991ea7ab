"""When schedules fire: pure arithmetic, around changes of the clocks too."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.runtime.side.timing import (
    GRACE_US,
    MOST_MISSED,
    Missed,
    Timing,
    TimingError,
    read_timing,
    to_fire,
)

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
SECOND = 1_000_000
MINUTE = 60 * SECOND


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def shown(at_us: int | None) -> str | None:
    return None if at_us is None else f"{datetime.fromtimestamp(at_us / SECOND, UTC):%m-%dT%H:%M}"


def firings(cron: str, zone: str, start: str, count: int) -> list[str | None]:
    timing, at_us = Timing(cron=cron, timezone=zone), us(start)
    found: list[str | None] = []
    for _ in range(count):
        after = timing.after(at_us)
        found.append(shown(after))
        at_us = after or at_us
    return found


@pytest.mark.req("API-16")
@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        # 28 March 2027, 02:00 becomes 03:00: the job of 02:30 runs at 03:00, once.
        ("30 2 * * *", BERLIN, "2027-03-27T12:00Z", ["03-28T01:00", "03-29T00:30"]),
        ("0,30 2 * * *", BERLIN, "2027-03-27T12:00Z", ["03-28T01:00", "03-29T00:00"]),
        # 31 October 2027, 03:00 becomes 02:00: the job of 02:30 runs the first time only.
        ("30 2 * * *", BERLIN, "2027-10-30T12:00Z", ["10-31T00:30", "11-01T01:30"]),
        # Asked within the second of the two hours: that day's was before.
        ("45 2 * * *", BERLIN, "2027-10-31T01:30Z", ["11-01T01:45", "11-02T01:45"]),
        # By the hour: real time goes on, whatever the clocks show.
        ("0 * * * *", BERLIN, "2027-10-30T23:30Z", ["10-31T00:00", "10-31T01:00", "10-31T02:00"]),
        ("0 * * * *", BERLIN, "2027-03-28T00:30Z", ["03-28T01:00", "03-28T02:00"]),
        # The same beyond the Atlantic: 14 March 2027 and 1 November 2026.
        ("15 2 * * *", NEW_YORK, "2027-03-14T05:00Z", ["03-14T07:00", "03-15T06:15"]),
        ("15 1,2 * * *", NEW_YORK, "2026-11-01T04:00Z", ["11-01T05:15", "11-01T07:15"]),
        ("0 9 * * 1-5", NEW_YORK, "2027-03-12T12:00Z", ["03-12T14:00", "03-15T13:00"]),
        ("0 0 29 2 *", "UTC", "2027-01-01T00:00Z", ["02-29T00:00", "02-29T00:00"]),
        ("0 12 L * *", "UTC", "2027-01-31T12:00Z", ["02-28T12:00", "03-31T12:00"]),
    ],
)
def test_firings(cron: str, zone: str, start: str, expected: list[str]) -> None:
    assert firings(cron, zone, start, len(expected)) == expected


def test_a_moment_is_in_the_zone_unless_it_says_its_own() -> None:
    now = us("2027-01-01T00:00Z")

    def at(text: str, zone: str = BERLIN) -> str | None:
        return shown(read_timing(None, text, zone, now).at_us)

    assert at("2027-07-01T09:00:00") == "07-01T07:00"
    assert at("2027-07-01T09:00:00-04:00") == "07-01T13:00"
    assert at("2027-07-01T09:00:00Z") == "07-01T09:00"
    assert at("2027-03-28T02:30:00") == "03-28T01:30", "as much later as the clocks are moved"
    assert at("2027-10-31T02:30:00") == "10-31T00:30", "the first of the two"
    once = read_timing(None, "2027-07-01T09:00:00", BERLIN, now)
    assert once.after(now) == once.at_us
    assert once.after(once.at_us or 0) is None


@pytest.mark.req("API-16")
@pytest.mark.parametrize(
    ("cron", "at", "zone", "field"),
    [
        ("0 0 30 2 *", None, "UTC", "cron"),
        ("* * */20 * 1L", None, "UTC", "cron"),
        ("61 * * * *", None, "UTC", "cron"),
        ("0 0 * * 8", None, "UTC", "cron"),
        ("0 0 1 1 L", None, "UTC", "cron"),
        ("@daily", None, "UTC", "cron"),
        ("* * * * * *", None, "UTC", "cron"),
        ("", None, "UTC", "cron"),
        ("*/0 * * * *", None, "UTC", "cron"),
        (None, "tomorrow", "UTC", "at"),
        (None, "0001-01-01T00:00:00+23:00", "UTC", "at"),
        (None, "9999-12-31T23:59:59-12:00", "UTC", "at"),
        ("* * * * *", None, "Europe/Atlantis", "timezone"),
        ("* * * * *", None, "../../etc/passwd", "timezone"),
        ("* * * * *", None, "Europe", "timezone"),
        ("* * * * *", None, "+02:00", "timezone"),
        ("* * * * *", None, "localtime", "timezone"),
        ("* * * * *", None, "posixrules", "timezone"),
        ("* * * * *", None, "Factory", "timezone"),
        ("* * * * *", None, "posix/Europe/Berlin", "timezone"),
        ("* * * * *", None, "right/Europe/Berlin", "timezone"),
        (None, "2027-03-01T09:00:00", "localtime", "timezone"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    cron: str | None, at: str | None, zone: str, field: str
) -> None:
    with pytest.raises(TimingError) as refused:
        read_timing(cron, at, zone, us("2027-01-01T00:00Z"))
    assert refused.value.field == field


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789*/,-#LWAN ", max_size=24))
@example("L/2 * L/3 * 5L,6#2")
def test_any_text_is_a_cron_or_refused(text: str) -> None:
    refused = ""
    try:
        timing = read_timing(f"0 0 {text}", None, BERLIN, us("2027-01-01T00:00Z"))
    except TimingError as error:
        refused = error.field
    else:
        assert timing.after(us("2027-01-01T00:00Z")) is not None
    assert refused in {"", "cron"}


CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 1,2 * * *"]
)
AROUND_CHANGES = st.sampled_from(
    [us("2027-03-28T01:00Z"), us("2027-10-31T01:00Z"), us("2027-03-14T07:00Z")]
)


@settings(max_examples=50, deadline=None)
@given(CRONS, st.sampled_from([BERLIN, NEW_YORK, "UTC"]), AROUND_CHANGES, st.integers(-900, 900))
def test_time_goes_forward_and_looking_back_finds_the_same(
    cron: str, zone: str, change_us: int, minutes: int
) -> None:
    timing, first = Timing(cron=cron, timezone=zone), change_us + minutes * MINUTE + 17 * SECOND
    chain: list[int] = []
    at_us = timing.after(first)
    while at_us is not None and len(chain) < 150:
        assert not chain or at_us > chain[-1]
        chain.append(at_us)
        at_us = timing.after(at_us)
    until = chain[-1] + 30 * SECOND
    for most in (1, 5, 100):
        assert timing.latest(chain[0], until, most) == chain[-most:]


@pytest.mark.parametrize(
    ("missed", "late_s", "expected"),
    [
        (Missed.ONCE, 5, "03-01T09:00"),
        (Missed.ALL, 5, "03-01T09:00"),
        (Missed.SKIP, 5, "03-01T09:00"),
        (Missed.ONCE, 3 * 86_400 + 5, "03-04T09:00"),
        (Missed.SKIP, 3 * 86_400 + 5, "03-04T09:00"),
        (Missed.SKIP, 3 * 86_400 + 60, None),
        (Missed.ALL, 3 * 86_400 + 60, "03-01T09:00"),
        (Missed.ALL, 150 * 86_400, "04-21T09:00"),
    ],
)
@pytest.mark.req("API-16")
def test_what_was_missed(missed: Missed, late_s: int, expected: str | None) -> None:
    timing, due = Timing(cron="0 9 * * *"), us("2027-03-01T09:00Z")
    found = to_fire(timing, due, due + late_s * SECOND, missed)
    assert shown(found) == expected


def test_of_all_that_was_missed_the_latest_are_made_up_for() -> None:
    timing, due = Timing(cron="0 9 * * *"), us("2027-01-01T09:00Z")
    now = due + timedelta(days=500) // timedelta(microseconds=1)
    first = to_fire(timing, due, now, Missed.ALL)
    assert first == now - (MOST_MISSED - 1) * 86_400 * SECOND


@pytest.mark.parametrize(
    ("missed", "late_us", "fires"),
    [
        (Missed.SKIP, GRACE_US - 1, True),
        (Missed.SKIP, GRACE_US, False),
        (Missed.ONCE, 10 * GRACE_US, True),
        (Missed.ALL, 10 * GRACE_US, True),
    ],
)
def test_one_moment_missed(missed: Missed, late_us: int, *, fires: bool) -> None:
    due = us("2027-03-01T09:00Z")
    found = to_fire(Timing(at_us=due), due, due + late_us, missed)
    assert found == (due if fires else None)


def test_years_of_missed_minutes_are_looked_through_quickly() -> None:
    """Ten million firings one by one would outlast the time limit of a test."""
    timing, first = Timing(cron="* * * * *"), us("2007-01-01T00:00Z")
    assert len(timing.latest(first, us("2027-01-01T00:00Z"), MOST_MISSED)) == MOST_MISSED
