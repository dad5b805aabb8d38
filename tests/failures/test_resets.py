"""Every form in which clients print a reset is parsed, in its zone and language."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.failures.resets import find_reset, find_wait
from jackline.failures.wording import fold

KYIV = ZoneInfo("Europe/Kiev")
NOW = datetime(2026, 11, 15, 9, 0, tzinfo=KYIV)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Claude AI usage limit reached|1755806400", "2025-08-21T20:00:00+00:00"),
        ("resets 3am", "2026-11-16T03:00:00+02:00"),
        ("resets 10:10pm (Europe/Kiev)", "2026-11-15T22:10:00+02:00"),
        ("resets 10:10pm (Europe/Kyiv)", "2026-11-15T22:10:00+02:00"),
        ("resets 10:10pm (Asia/Calcutta)", "2026-11-15T22:10:00+05:30"),
        ("resets 8am (UTC)", "2026-11-15T08:00:00+00:00"),
        ("resets 6am (UTC)", "2026-11-16T06:00:00+00:00"),
        ("resets 1pm (Etc/GMT+5)", "2026-11-15T13:00:00-05:00"),
        ("resets 12am (America/New_York)", "2026-11-16T00:00:00-05:00"),
        ("resets 12pm", "2026-11-15T12:00:00+02:00"),
        ("resets Feb 4, 8pm (Europe/Budapest)", "2027-02-04T20:00:00+01:00"),
        ("resets Jan 3, 2027, 9am", "2027-01-03T09:00:00+02:00"),
        ("resets Oct 24", "2026-10-24T00:00:00+03:00"),
        ("resets Sep 15 at 7pm", "2026-09-15T19:00:00+03:00"),
        ("resets Mon 12:00am", "2026-11-16T00:00:00+02:00"),
        ("Your limit will reset at 1pm (America/Santiago).", "2026-11-15T13:00:00-03:00"),
        ("Limits will reset at 9:30 AM.", "2026-11-15T09:30:00+02:00"),
        ("You will regain access on 2026-09-01 at 00:00 UTC.", "2026-09-01T00:00:00+00:00"),
        ("resets in 2 hours", "2026-11-15T11:00:00+02:00"),
        ("try again in 5 days 22 hours 11 minutes", "2026-11-21T07:11:00+02:00"),
        ("Allowance resets April 1, 2026 at 5:30 AM.", "2026-04-01T05:30:00+03:00"),
        ("try again at Jul 5th, 2026 8:19 PM", "2026-07-05T20:19:00+03:00"),
        ("spend limit reached (daily; resets 2026-08-09 00:00 UTC)", "2026-08-09T00:00:00+00:00"),
        ("reset at 2026-12-01T00:00:00Z", "2026-12-01T00:00:00+00:00"),
        ("resets 7 PM PST", "2026-11-15T19:00:00-08:00"),
        ("try again at 11/15/2026, 5:30 PM", "2026-11-15T17:30:00+02:00"),
        # Portuguese, Spanish, German, French, as the clients' runtimes print dates there
        ("try again at 10 de jul. de 2026, 11:52", "2026-07-10T11:52:00+03:00"),
        ("tente novamente em 3 de março de 2027 às 9:05", "2027-03-03T09:05:00+02:00"),
        ("Reinicia dom., 7 de jun., 6:00", "2026-06-07T06:00:00+03:00"),
        ("try again at 3 de enero de 2027, 9:05 p. m.", "2027-01-03T21:05:00+02:00"),
        ("Inténtalo de nuevo el 24 dic 2026, 18:00", "2026-12-24T18:00:00+02:00"),
        ("Versuche es am 10. Juli 2026 um 11:52 erneut", "2026-07-10T11:52:00+03:00"),
        ("try again at 15. März 2027, 18 Uhr", "2027-03-15T18:00:00+02:00"),
        ("resets 24. Dez. 2026, 18:00", "2026-12-24T18:00:00+02:00"),
        ("try again at 15.11.2026, 17:30", "2026-11-15T17:30:00+02:00"),
        ("réessayez le 10 août 2026 à 11:52", "2026-08-10T11:52:00+03:00"),
        ("try again at 10 juil. 2026 à 11:52", "2026-07-10T11:52:00+03:00"),
        ("resets 18h30 (Europe/Paris)", "2026-11-15T18:30:00+01:00"),
    ],
)
def test_each_form_gives_its_moment(text: str, expected: str) -> None:
    reset = find_reset(fold(text), NOW)
    assert reset is not None
    assert reset.isoformat() == datetime.fromisoformat(expected).isoformat()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "reset your password",
        "resets when the moon is full",
        "resets 25:99",
        "resets Feb 30, 9am",
        "Retrying in 5 seconds… (attempt 4/10)",
        "try again later",
    ],
)
def test_what_names_no_time_gives_none(text: str) -> None:
    assert find_reset(fold(text), NOW) is None


def test_the_reset_of_another_limit_is_not_the_blockers() -> None:
    text = "You've hit your monthly spend limit · your session limit resets 2:40pm (Asia/Jakarta)"
    assert find_reset(text, NOW, primary=True) is None
    both = "You've hit your weekly limit · resets Nov 20, 9am · your 5-hour limit resets 6pm"
    assert find_reset(both, NOW) == datetime(2026, 11, 20, 9, tzinfo=KYIV)


def test_a_zone_has_the_name_of_the_text() -> None:
    reset = find_reset("resets 10:10pm (Europe/Kiev)", datetime.now(UTC))
    assert reset is not None
    assert str(reset.tzinfo) == "Europe/Kiev"


def test_a_client_that_waits_longer_than_its_own_backoff_repeats_the_vendors_wait() -> None:
    assert find_wait("Retrying in 5 seconds... (attempt 4/10)") is None
    assert find_wait("Retrying in 2892 seconds... (attempt 1/10)") == timedelta(seconds=2892)


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    now=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(KYIV)),  # noqa: DTZ001
)
def test_a_clock_without_a_date_is_its_next_occurrence(
    hour: int, minute: int, now: datetime
) -> None:
    half = "am" if hour < 12 else "pm"
    reset = find_reset(f"resets {hour % 12 or 12}:{minute:02}{half} (Europe/Kiev)", now)
    assert reset is not None
    assert (reset.hour, reset.minute) == (hour, minute)
    # A day is 25 hours long when summer time ends; a clock without seconds may just have passed.
    ahead = reset.astimezone(UTC) - now.astimezone(UTC)
    assert timedelta(seconds=-90) < ahead <= timedelta(hours=25)


@pytest.mark.parametrize(
    ("now", "days"),
    [
        (datetime(2026, 11, 15, 16, 7, 59, tzinfo=UTC), 0),
        (datetime(2026, 11, 15, 16, 8, 0, tzinfo=UTC), 0),
        (datetime(2026, 11, 15, 16, 8, 40, tzinfo=UTC), 0),
        (datetime(2026, 11, 15, 16, 9, 20, tzinfo=UTC), 0),
        (datetime(2026, 11, 15, 16, 10, 0, tzinfo=UTC), 1),
    ],
)
def test_a_reset_in_this_minute_is_not_tomorrows(now: datetime, days: int) -> None:
    reset = find_reset("You've hit your session limit · resets 4:08pm (UTC)", now)
    assert reset == datetime(2026, 11, 15 + days, 16, 8, tzinfo=UTC)


def test_a_reset_just_before_midnight_is_yesterdays_right_after_it() -> None:
    now = datetime(2026, 11, 16, 0, 0, 20, tzinfo=UTC)
    reset = find_reset("You've hit your session limit · resets 11:59pm (UTC)", now)
    assert reset == datetime(2026, 11, 15, 23, 59, tzinfo=UTC)
