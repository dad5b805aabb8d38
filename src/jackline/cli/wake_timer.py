"""Let the operating system wake a parked run when no Jackline lives to do it.

Laws: (1) decided by pure functions and shown before it is done; (2) a timer fires at or after its
time, never before: a run woken early would meet the wall again; (3) it survives a reboot where the
system can do that, and removing it undoes all; (4) waking twice does no harm: a run has one owner.
Not here: whether a run may wake (flows/), the service that wakes runs while it lives (assembly/).
"""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

from jackline.cli.system_steps import Remove, Run, Step, Write, unit_word

WakeBy: TypeAlias = Literal["systemd", "launchd", "at", "schtasks", "none"]


@dataclass(frozen=True, slots=True)
class WakeTimer:
    """What setting and removing one run's timer do."""

    kind: WakeBy
    set: tuple[Step, ...]
    remove: tuple[Step, ...]


def resume_command(run_id: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that wakes this run with this very Jackline."""
    return (sys.executable, "-m", "jackline", "resume", "--woken", run_id, *arguments)


def wake_timer(
    kind: WakeBy,
    run_id: str,
    at: datetime,
    command: Sequence[str],
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> WakeTimer:
    """The timer of this kind for one run; `at` is aware."""
    home = home or Path.home()
    environ = os.environ if environ is None else environ
    name = f"jackline-wake-{run_id}"
    if kind == "systemd":
        configured = environ.get("XDG_CONFIG_HOME")
        return _systemd(name, at, command, Path(configured) if configured else home / ".config")
    if kind == "launchd":
        return _launchd(name, at, command, home, os.getuid())
    if kind == "at":
        return _at(at, command)
    if kind == "schtasks":
        local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        return _schtasks(name, at, command, Path(local))
    return WakeTimer("none", (), ())


def _systemd(name: str, at: datetime, command: Sequence[str], config_folder: Path) -> WakeTimer:
    folder = config_folder / "systemd" / "user"
    service, timer = folder / f"{name}.service", folder / f"{name}.timer"
    words = " ".join(unit_word(word) for word in command)
    when = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    reload = Run(("systemctl", "--user", "daemon-reload"))
    return WakeTimer(
        "systemd",
        set=(
            Write(
                service,
                f"[Unit]\nDescription=Wake a parked Jackline run\n\n"
                f"[Service]\nType=oneshot\nExecStart={words}\n".encode(),
            ),
            Write(
                timer,
                # Persistent: a machine that was off at the time wakes the run when it is back.
                f"[Unit]\nDescription=Wake a parked Jackline run\n\n"
                f"[Timer]\nOnCalendar={when}\nPersistent=true\nAccuracySec=1s\n\n"
                f"[Install]\nWantedBy=timers.target\n".encode(),
            ),
            reload,
            Run(("systemctl", "--user", "enable", "--now", timer.name)),
        ),
        remove=(
            Run(("systemctl", "--user", "disable", "--now", timer.name), may_fail=True),
            Remove(timer),
            Remove(service),
            reload,
        ),
    )


def _launchd(
    name: str, at: datetime, command: Sequence[str], home: Path, user_id: int
) -> WakeTimer:
    path = home / "Library" / "LaunchAgents" / f"{name}.plist"
    local = _whole_minute(at)
    leave = Run(("launchctl", "bootout", f"gui/{user_id}/{name}"), may_fail=True)
    text = plistlib.dumps(
        {
            "Label": name,
            "ProgramArguments": list(command),
            "StartCalendarInterval": {
                "Month": local.month,
                "Day": local.day,
                "Hour": local.hour,
                "Minute": local.minute,
            },
        },
        sort_keys=False,
    )
    return WakeTimer(
        "launchd",
        set=(
            Write(path, text),
            leave,
            Run(("launchctl", "bootstrap", f"gui/{user_id}", str(path))),
        ),
        remove=(leave, Remove(path)),
    )


def _at(at: datetime, command: Sequence[str]) -> WakeTimer:
    when = _whole_minute(at).strftime("%Y%m%d%H%M")
    # The number that `at` gives its job is told on stderr only, so that it cannot be removed by
    # name; a run that was woken by hand meanwhile is left alone by the job (law 4).
    return WakeTimer("at", (Run(("at", "-t", when), told=shlex.join(command) + "\n"),), ())


def _schtasks(name: str, at: datetime, command: Sequence[str], local_folder: Path) -> WakeTimer:
    path = local_folder / "jackline" / f"{name}.xml"
    arguments = subprocess.list2cmdline(list(command[1:]))
    # StartWhenAvailable: a machine that was off at the time wakes the run when it is back.
    text = f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers>
    <TimeTrigger>
      <StartBoundary>{at.astimezone().isoformat(timespec="seconds")}</StartBoundary>
      <Enabled>true</Enabled>
    </TimeTrigger>
  </Triggers>
  <Settings>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StartWhenAvailable>true</StartWhenAvailable>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions>
    <Exec><Command>{escape(command[0])}</Command><Arguments>{escape(arguments)}</Arguments></Exec>
  </Actions>
</Task>
"""
    return WakeTimer(
        "schtasks",
        set=(
            Write(path, text.encode("utf-16")),
            Run(("schtasks", "/Create", "/TN", name, "/XML", str(path), "/F")),
        ),
        remove=(Run(("schtasks", "/Delete", "/TN", name, "/F"), may_fail=True), Remove(path)),
    )


def _whole_minute(at: datetime) -> datetime:
    """The first whole minute at or after `at`, where the system knows no seconds."""
    local = at.astimezone()
    whole = local.replace(second=0, microsecond=0)
    return whole if whole == local else whole + timedelta(minutes=1)
