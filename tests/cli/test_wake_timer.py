"""A timer wakes a parked run at its time or after it, never before, and can be removed."""

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

from jackline.cli.system_steps import Remove, Run, Step, Write, unit_quoted, unit_word
from jackline.cli.wake_timer import (
    TimerCommand,
    WakeBy,
    resume_command,
    shell_only_note,
    timer_variables,
)

COMMAND = (
    "/opt/my python/python",
    "-P",
    "-m",
    "jackline",
    "resume",
    "--woken",
    "r1",
    "--state",
    "/a b",
)
VARIABLES = {"PATH": '/bin:/a "b" $c', "JACKLINE_PORT": "0", "LANG": "100%"}
JOB = TimerCommand(COMMAND, "/my work", Path("/a b/woken-runs.log"), VARIABLES)
# As launchd.plist(5) names them.
APPLES_KEYS = {
    *("Label", "ProgramArguments", "AbandonProcessGroup", "EnvironmentVariables"),
    *("StartCalendarInterval", "RunAtLoad"),
}
AT = datetime(2026, 11, 15, 22, 10, 30, tzinfo=UTC)


def written(steps: tuple[Step, ...]) -> dict[str, bytes]:
    return {step.path.suffix: step.content for step in steps if isinstance(step, Write)}


def commands(steps: tuple[Step, ...]) -> list[tuple[str, ...]]:
    return [step.command for step in steps if isinstance(step, Run)]


def test_the_command_is_this_very_jackline() -> None:
    assert resume_command("r1", ["--state", "/s"]) == (
        sys.executable,
        *("-P", "-m", "jackline", "resume", "--woken", "r1", "--state", "/s"),
    )


def test_systemd_waits_for_the_second_and_catches_up_after_a_reboot(tmp_path: Path) -> None:
    timer = JOB.timer("systemd", "r1", AT, home=tmp_path, environ={})
    texts = written(timer.install)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(texts[".timer"].decode())
    reported = datetime.strptime(unit["Timer"]["OnCalendar"], "%Y-%m-%d %H:%M:%S UTC").replace(
        tzinfo=UTC
    )
    assert reported == AT
    assert unit["Timer"]["Persistent"] == "true"
    service = texts[".service"].decode()
    assert (
        '"/a b/woken-runs.log" "/my work" "/opt/my python/python" -P -m jackline resume' in service
    )
    assert 'Environment="PATH=/bin:/a \\"b\\" $c"\n' in service
    assert 'Environment="LANG=100%%"\n' in service
    assert ("systemctl", "--user", "enable", "jackline-wake-r1.timer") in commands(timer.install)


@given(st.text().filter(lambda text: "\0" not in text))
def test_no_name_of_a_folder_begins_a_line_of_the_unit(name: str) -> None:
    for quoted in (unit_word(name), unit_quoted(name)):
        assert not any(each < " " or each == "\x7f" for each in quoted)


def test_what_is_written_is_removed_again(tmp_path: Path) -> None:
    for kind in get_args(WakeBy):
        if kind == "launchd" and sys.platform == "win32":
            continue  # it asks for the user's number, which Windows does not have
        timer = JOB.timer(kind, "r1", AT, home=tmp_path, environ={})
        made = {step.path for step in timer.install if isinstance(step, Write)}
        assert made == {step.path for step in timer.uninstall if isinstance(step, Remove)}


@pytest.mark.skipif(sys.platform == "win32", reason="launchd is of macOS, and so is its user id")
@given(st.integers(0, 59), st.integers(0, 999_999))
def test_a_system_that_knows_no_parts_of_a_second_or_minute_wakes_later_rather_than_earlier(
    second: int, microsecond: int
) -> None:
    at = AT.replace(second=second, microsecond=microsecond)
    for kind, moment in (("at", _at_moment(at)), ("launchd", _launchd_moment(at))):
        assert timedelta(0) <= moment - at < timedelta(minutes=1), kind
    for kind, moment in (("systemd", _systemd_moment(at)), ("schtasks", _schtasks_moment(at))):
        assert timedelta(0) <= moment - at < timedelta(seconds=1), kind


def _systemd_moment(at: datetime) -> datetime:
    timer = JOB.timer("systemd", "r1", at, home=Path("/home/x"), environ={})
    (line,) = [
        line
        for line in written(timer.install)[".timer"].decode().splitlines()
        if line.startswith("OnCalendar=")
    ]
    return datetime.strptime(line, "OnCalendar=%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


def _schtasks_moment(at: datetime) -> datetime:
    timer = JOB.timer("schtasks", "r1", at, home=Path("/home/x"), environ={})
    boundary = _task(timer.install).findtext(".//t:StartBoundary", namespaces=SPACES)
    assert boundary is not None
    return datetime.fromisoformat(boundary)


SPACES = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}


def _task(steps: tuple[Step, ...]) -> ET.Element:
    return ET.fromstring(written(steps)[".xml"].decode("utf-16"))  # noqa: S314 -- our own


def _at_moment(at: datetime) -> datetime:
    (step,) = JOB.timer("at", "r1", at, environ={}).install
    assert isinstance(step, Run)
    assert step.folder == "/", "at does nothing when the folder it was started in is gone"
    shell = shlex.split(step.stdin)
    assert shell[:2] == ["/bin/sh", "-c"]
    assert shell[3:] == ["/a b/woken-runs.log", "/my work", *COMMAND]
    return datetime.strptime(step.command[2], "%Y%m%d%H%M").astimezone()


def _launchd_moment(at: datetime) -> datetime:
    timer = JOB.timer("launchd", "r1", at, home=Path("/home/x"), environ={})
    reported = plistlib.loads(written(timer.install)[".plist"])
    assert reported.keys() <= APPLES_KEYS
    assert reported["ProgramArguments"][-len(COMMAND) :] == list(COMMAND)
    # Removing a job ends what it runs: the run, which removes it, must not be that.
    assert reported["ProgramArguments"][2].endswith("&")
    assert reported["AbandonProcessGroup"] is True
    assert reported["RunAtLoad"] is True, "a machine that was off then looks when it is back"
    assert reported["EnvironmentVariables"] == VARIABLES
    when = reported["StartCalendarInterval"]
    parts = (when["Month"], when["Day"], when["Hour"], when["Minute"])
    return datetime(at.year, *parts).astimezone()


def test_a_scheduled_task_catches_up_and_runs_on_battery(tmp_path: Path) -> None:
    timer = JOB.timer("schtasks", "r1", AT, home=tmp_path, environ={})
    task = _task(timer.install)
    settings = {
        each.tag.partition("}")[2]: each.text for each in task.find("t:Settings", SPACES) or ()
    }
    assert settings["StartWhenAvailable"] == "true"
    assert settings["DisallowStartIfOnBatteries"] == settings["StopIfGoingOnBatteries"] == "false"
    assert settings["ExecutionTimeLimit"] == "PT0S"
    assert task.findtext(".//t:Exec/t:Command", namespaces=SPACES) == COMMAND[0]
    assert task.findtext(".//t:Exec/t:WorkingDirectory", namespaces=SPACES) == "/my work"
    create = next(step.command for step in timer.install if isinstance(step, Run))
    assert create[:4] == ("schtasks", "/Create", "/TN", "jackline-wake-r1")


def test_a_timer_passes_on_what_the_run_needs_of_the_shell_and_no_secret() -> None:
    environ = {
        "PATH": "/bin",
        "JACKLINE_UPSTREAM": "http://127.0.0.1:1",
        "JACKLINE_LISTEN_TOKEN": "sk-secret",
        "ANTHROPIC_API_KEY": "sk-secret",
        "HTTPS_PROXY": "http://me:secret@proxy",
        "HTTP_PROXY": "http://proxy",
        "all_proxy": "me:secret@proxy:8080",
        "EDITOR": "vi",
    }
    passed_on = timer_variables(environ)
    assert set(passed_on) == {"PATH", "JACKLINE_UPSTREAM", "HTTP_PROXY"}
    note = shell_only_note("systemd", environ, ["ANTHROPIC_API_KEY"])
    assert "ANTHROPIC_API_KEY, JACKLINE_LISTEN_TOKEN may be set in this shell alone" in note
    assert "secret" not in note
    assert shell_only_note("at", environ, ["ANTHROPIC_API_KEY"]) == ""
    assert shell_only_note("systemd", {"PATH": "/bin"}, []) == ""


def test_none_does_nothing(tmp_path: Path) -> None:
    timer = JOB.timer("none", "r1", AT, home=tmp_path, environ={})
    assert timer.install == timer.uninstall == ()
