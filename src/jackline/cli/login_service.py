"""Make the gateway a service that starts at login: systemd user unit, launchd agent, Windows task.

Laws: (1) what is written and run is decided by pure functions, and shown before it is done;
(2) only this user's own files and services are touched: no administrator is needed; (3) removing
undoes all that installing did, and is content when there is nothing to remove.
Not here: the command line around it (up.py).
"""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from jackline.cli.system_steps import Remove, Run, Step, Write, unit_word
from jackline.errors import UsageError

UNIT = "jackline.service"
LABEL = "jackline.gateway"
TASK = "Jackline"
DESCRIPTION = "Jackline gateway: keeps AI agents working through rate limits and outages"
# Thousands of waiting clients need two sockets each.
_OPEN_FILES = 65_536
# A faulty configuration (exit code 2) does not get better by starting again.
_USAGE_EXIT = 2


@dataclass(frozen=True, slots=True)
class LoginService:
    """What installing and uninstalling do on one kind of machine."""

    kind: str
    install: tuple[Step, ...]
    uninstall: tuple[Step, ...]


def program(arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that starts this very Jackline as a gateway in the foreground."""
    return (sys.executable, "-P", "-m", "jackline", "up", *arguments)


def login_service(
    command: Sequence[str],
    *,
    platform: str = sys.platform,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoginService:
    """The service for this machine, not yet installed; UsageError where there is no such thing."""
    home = home or Path.home()
    environ = os.environ if environ is None else environ
    if platform == "darwin":
        return launchd(command, home, os.getuid())
    if platform == "win32":
        local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        user = environ.get("USERNAME", "")
        domain = environ.get("USERDOMAIN", "")
        return scheduled_task(command, Path(local), f"{domain}\\{user}" if domain else user)
    if not has_systemd():
        raise UsageError(
            "there is no systemd here that could start the gateway at login",
            next="run `crontab -e` and add (to undo it: remove) the line:"
            f" @reboot {shlex.join([*command, '-d'])}",
        )
    configured = environ.get("XDG_CONFIG_HOME")
    return systemd(command, Path(configured) if configured else home / ".config")


def has_systemd() -> bool:
    """Whether this machine was started by systemd, and has the command to speak with it."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def systemd(command: Sequence[str], config_folder: Path) -> LoginService:
    """A user unit: `systemctl --user` knows it as jackline."""
    path = config_folder / "systemd" / "user" / UNIT
    reload = Run(("systemctl", "--user", "daemon-reload"))
    return LoginService(
        "systemd",
        install=(
            Write(path, unit_text(command).encode()),
            reload,
            Run(("systemctl", "--user", "enable", "--now", UNIT)),
        ),
        uninstall=(
            Run(("systemctl", "--user", "disable", "--now", UNIT), may_fail=True),
            Remove(path),
            reload,
        ),
    )


def unit_text(command: Sequence[str]) -> str:
    """The unit's file."""
    return f"""\
[Unit]
Description={DESCRIPTION}

[Service]
ExecStart={" ".join(unit_word(word) for word in command)}
WorkingDirectory=%h
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={_USAGE_EXIT}
LimitNOFILE={_OPEN_FILES}

[Install]
WantedBy=default.target
"""


def launchd(command: Sequence[str], home: Path, user_id: int) -> LoginService:
    """An agent of the user's graphical session."""
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    leave = Run(("launchctl", "bootout", f"gui/{user_id}/{LABEL}"), may_fail=True)
    return LoginService(
        "launchd",
        install=(
            Write(path, plist(command, home)),
            leave,
            Run(("launchctl", "bootstrap", f"gui/{user_id}", str(path))),
        ),
        uninstall=(leave, Remove(path)),
    )


def plist(command: Sequence[str], home: Path) -> bytes:
    """The agent's property list."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "WorkingDirectory": str(home),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "SoftResourceLimits": {"NumberOfFiles": _OPEN_FILES},
            "StandardErrorPath": str(home / "Library" / "Logs" / "jackline.log"),
        },
        sort_keys=False,
    )


def scheduled_task(command: Sequence[str], local_folder: Path, user: str) -> LoginService:
    """A task of this user, run at this user's login.

    The plain options of schtasks would need an administrator, end the task after three days and
    never start it on battery; only a definition in XML can say otherwise.
    """
    path = local_folder / "jackline" / "login-task.xml"
    return LoginService(
        "schtasks",
        install=(
            Write(path, task_xml(command, user).encode("utf-16")),
            Run(("schtasks", "/Create", "/TN", TASK, "/XML", str(path), "/F")),
            Run(("schtasks", "/Run", "/TN", TASK)),
        ),
        uninstall=(
            Run(("schtasks", "/End", "/TN", TASK), may_fail=True),
            Run(("schtasks", "/Delete", "/TN", TASK, "/F"), may_fail=True),
            Remove(path),
        ),
    )


def task_xml(command: Sequence[str], user: str) -> str:
    """The task's definition."""
    arguments = subprocess.list2cmdline(list(command[1:]))
    return f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>{escape(DESCRIPTION)}</Description></RegistrationInfo>
  <Triggers>
    <LogonTrigger><Enabled>true</Enabled><UserId>{escape(user)}</UserId></LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{escape(user)}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>10</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec><Command>{escape(command[0])}</Command><Arguments>{escape(arguments)}</Arguments></Exec>
  </Actions>
</Task>
"""
