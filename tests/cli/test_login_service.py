"""The login service is shown before it is made, and made of nothing else."""

from __future__ import annotations

import configparser
import plistlib
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.cli import gateway_service as services
from jackline.cli.system_steps import Installation, Remove, Run, Step, Write, apply_steps
from jackline.errors import UsageError

COMMAND = ("/opt/my python/bin/python", "-m", "jackline", "up", "--state", "/x/100%/$HOME & <co>")
TASKS = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}


def writes(steps: tuple[Step, ...]) -> list[Write]:
    return [step for step in steps if isinstance(step, Write)]


def commands(steps: tuple[Step, ...]) -> list[str]:
    return [" ".join(step.command) for step in steps if isinstance(step, Run)]


def test_the_program_is_this_very_jackline(tmp_path: Path) -> None:
    service = services.login_service(["--port", "1"], platform="darwin", home=tmp_path)
    (file,) = writes(service.install)
    assert plistlib.loads(file.content)["ProgramArguments"] == [
        sys.executable,
        *("-P", "-m", "jackline", "up", "--port", "1"),
    ]


def test_the_systemd_unit_is_a_user_unit_that_parses(tmp_path: Path) -> None:
    service = services.systemd(COMMAND, tmp_path)
    (file,) = writes(service.install)
    assert file.path == tmp_path / "systemd" / "user" / "jackline.service"
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(file.content.decode())
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
    assert unit["Install"]["WantedBy"] == "default.target"
    assert unit["Service"]["ExecStart"] == (
        '"/opt/my python/bin/python" -m jackline up --state "/x/100%%/$$HOME & <co>"'
    )
    assert commands(service.install) == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now jackline.service",
    ]
    assert commands(service.uninstall)[0] == "systemctl --user disable --now jackline.service"
    assert Remove(file.path) in service.uninstall


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])), min_size=1))
def test_every_word_of_the_unit_reads_back_as_systemd_reads_it(words: list[str]) -> None:
    (file,) = writes(services.systemd(["/bin/x", *words], Path("conf")).install)
    (line,) = re.findall(r"^ExecStart=(.*)$", file.content.decode(), re.MULTILINE)
    read = []
    for quoted, bare in re.findall(r'"((?:[^"\\]|\\.)*)"|([^\s"]+)', line.removeprefix("/bin/x")):
        word = bare or re.sub(r"\\(.)", r"\1", quoted)
        read.append(word.replace("%%", "%").replace("$$", "$"))
    assert read == words


def test_the_launchd_agent_is_a_property_list_that_parses(tmp_path: Path) -> None:
    service = services.launchd(COMMAND, tmp_path, 501)
    (file,) = writes(service.install)
    assert file.path == tmp_path / "Library" / "LaunchAgents" / "jackline.gateway.plist"
    agent = plistlib.loads(file.content)
    assert agent["Label"] == "jackline.gateway"
    assert agent["ProgramArguments"] == list(COMMAND)
    assert agent["RunAtLoad"] is True
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert commands(service.install)[-1] == f"launchctl bootstrap gui/501 {file.path}"
    assert service.uninstall == (
        Run(("launchctl", "bootout", "gui/501/jackline.gateway"), may_fail=True),
        Remove(file.path),
    )


def test_the_windows_task_is_this_users_and_parses(tmp_path: Path) -> None:
    service = services.scheduled_task(COMMAND, tmp_path, "HOME\\me & co")
    (file,) = writes(service.install)
    assert file.content.startswith(b"\xff\xfe")
    task = ET.fromstring(file.content)  # noqa: S314 -- our own text
    assert task.findtext(".//t:LogonTrigger/t:UserId", namespaces=TASKS) == "HOME\\me & co"
    assert task.findtext(".//t:RunLevel", namespaces=TASKS) == "LeastPrivilege"
    assert task.findtext(".//t:ExecutionTimeLimit", namespaces=TASKS) == "PT0S"
    assert task.findtext(".//t:Command", namespaces=TASKS) == COMMAND[0]
    assert task.findtext(".//t:Arguments", namespaces=TASKS) == (
        '-m jackline up --state "/x/100%/$HOME & <co>"'
    )
    assert commands(service.install)[0] == f"schtasks /Create /TN Jackline /XML {file.path} /F"
    assert "schtasks /Delete /TN Jackline /F" in commands(service.uninstall)


def test_each_platform_gets_its_own(tmp_path: Path) -> None:
    def kind(platform: str, **environ: str) -> Installation:
        return services.login_service([], platform=platform, home=tmp_path, environ=environ)

    agents = tmp_path / "Library" / "LaunchAgents"
    assert writes(kind("darwin").install)[0].path.is_relative_to(agents)
    windows = kind("win32", LOCALAPPDATA=str(tmp_path / "local"), USERNAME="me", USERDOMAIN="PC")
    assert writes(windows.install)[0].path == tmp_path / "local" / "jackline" / "login-task.xml"
    if services.has_systemd():
        own = kind("linux", XDG_CONFIG_HOME=str(tmp_path / "conf"))
        assert writes(own.install)[0].path.is_relative_to(tmp_path / "conf")
    else:
        with pytest.raises(UsageError, match="no systemd") as caught:
            kind("linux")
        assert "crontab -e" in caught.value.hint
        assert "(to undo it: remove)" in caught.value.hint, "shown for --uninstall, too"
        assert "@reboot" in caught.value.hint


def test_a_dry_run_shows_everything_and_does_nothing(tmp_path: Path) -> None:
    reported: list[str] = []
    service = services.systemd(COMMAND, tmp_path)
    apply_steps(service.install, reported.append, dry_run=True)
    assert reported[0].startswith(f"write {tmp_path / 'systemd'}")
    assert "    ExecStart=" in reported[0]
    assert reported[1:] == [
        "run systemctl --user daemon-reload",
        "run systemctl --user enable --now jackline.service",
    ]
    assert list(tmp_path.iterdir()) == []


def test_steps_are_done_in_order_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    copy = tmp_path / "copy"
    script = "import shutil, sys; shutil.copy(*sys.argv[1:])"
    run = Run((sys.executable, "-c", script, str(path), str(copy)))
    apply_steps((Write(path, b"text"), run), lambda _: None)
    assert copy.read_bytes() == b"text"
    apply_steps((Remove(path), Remove(path)), lambda _: None)
    assert not path.exists()


def test_a_failing_command_stops_with_its_output_unless_it_only_undoes(tmp_path: Path) -> None:
    fail = (sys.executable, "-c", "import sys; sys.exit('no bus')")
    after = tmp_path / "after"
    with pytest.raises(UsageError, match="exit code 1: no bus"):
        apply_steps((Run(fail), Write(after, b"")), lambda _: None)
    assert not after.exists()
    apply_steps((Run(fail, may_fail=True), Write(after, b"")), lambda _: None)
    assert after.exists()


def test_a_missing_command_is_an_error_that_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run no-such-command-anywhere"):
        apply_steps((Run(("no-such-command-anywhere",)),), lambda _: None)
    with pytest.raises(UsageError, match="Is a directory"):
        apply_steps((Write(tmp_path, b""),), lambda _: None)
