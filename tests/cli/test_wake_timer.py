"""A timer wakes a parked run at its time or after it, never before, and can be taken back."""

from __future__ import annotations

import configparser
import plistlib
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.cli.system_steps import Remove, Run, Step, Write
from jackline.cli.wake_timer import WakeBy, resume_command, wake_timer

COMMAND = ("/opt/my python/python", "-m", "jackline", "resume", "--woken", "r1", "--state", "/a b")
AT = datetime(2026, 11, 15, 22, 10, 30, tzinfo=UTC)


def written(steps: tuple[Step, ...]) -> dict[str, bytes]:
    return {step.path.suffix: step.content for step in steps if isinstance(step, Write)}


def commands(steps: tuple[Step, ...]) -> list[tuple[str, ...]]:
    return [step.words for step in steps if isinstance(step, Run)]


def test_the_command_is_this_very_jackline() -> None:
    assert resume_command("r1", ["--state", "/s"]) == (
        sys.executable,
        *("-m", "jackline", "resume", "--woken", "r1", "--state", "/s"),
    )


def test_systemd_waits_for_the_second_and_catches_up_after_a_reboot(tmp_path: Path) -> None:
    timer = wake_timer("systemd", "r1", AT, COMMAND, home=tmp_path, environ={})
    texts = written(timer.set)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(texts[".timer"].decode())
    told = datetime.fromisoformat(unit["Timer"]["OnCalendar"]).astimezone()
    assert told == AT
    assert unit["Timer"]["Persistent"] == "true"
    assert '"/opt/my python/python" -m jackline resume' in texts[".service"].decode()
    assert ("systemctl", "--user", "enable", "--now", "jackline-wake-r1.timer") in commands(
        timer.set
    )


def test_what_is_written_is_removed_again(tmp_path: Path) -> None:
    for kind in get_args(WakeBy):
        if kind == "launchd" and sys.platform == "win32":
            continue  # it asks for the user's number, which Windows does not have
        timer = wake_timer(kind, "r1", AT, COMMAND, home=tmp_path, environ={})
        made = {step.path for step in timer.set if isinstance(step, Write)}
        assert made == {step.path for step in timer.remove if isinstance(step, Remove)}


@pytest.mark.skipif(sys.platform == "win32", reason="launchd is of macOS, and so is its user id")
@given(st.integers(0, 59), st.integers(0, 999_999))
def test_a_system_that_knows_no_seconds_wakes_later_rather_than_earlier(
    second: int, microsecond: int
) -> None:
    at = AT.replace(second=second, microsecond=microsecond)
    for kind, moment in (("at", _at_moment(at)), ("launchd", _launchd_moment(at))):
        assert timedelta(0) <= moment - at < timedelta(minutes=1), kind


def _at_moment(at: datetime) -> datetime:
    (step,) = wake_timer("at", "r1", at, COMMAND, environ={}).set
    assert isinstance(step, Run)
    assert shlex.split(step.told) == list(COMMAND)
    return datetime.strptime(step.words[2], "%Y%m%d%H%M").astimezone()


def _launchd_moment(at: datetime) -> datetime:
    timer = wake_timer("launchd", "r1", at, COMMAND, home=Path("/home/x"), environ={})
    told = plistlib.loads(written(timer.set)[".plist"])
    assert told["ProgramArguments"] == list(COMMAND)
    when = told["StartCalendarInterval"]
    parts = (when["Month"], when["Day"], when["Hour"], when["Minute"])
    return datetime(at.year, *parts).astimezone()


def test_a_scheduled_task_catches_up_and_runs_on_battery(tmp_path: Path) -> None:
    timer = wake_timer("schtasks", "r1", AT, COMMAND, home=tmp_path, environ={})
    spaces = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    task = ET.fromstring(written(timer.set)[".xml"].decode("utf-16"))  # noqa: S314 -- our own
    boundary = task.findtext(".//t:StartBoundary", namespaces=spaces)
    assert boundary is not None
    assert datetime.fromisoformat(boundary) == AT
    assert task.findtext(".//t:StartWhenAvailable", namespaces=spaces) == "true"


def test_none_does_nothing(tmp_path: Path) -> None:
    timer = wake_timer("none", "r1", AT, COMMAND, home=tmp_path, environ={})
    assert timer.set == timer.remove == ()
