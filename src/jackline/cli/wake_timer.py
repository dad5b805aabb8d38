"""Let the operating system wake a parked run when no Jackline lives to do it.

Laws: (1) decided by pure functions and shown before it is done; (2) a timer fires at or after its
time, never before: a run woken early would meet the wall again; (3) it survives a reboot where the
system can do that, and removing it undoes all; (4) waking twice does no harm: a run has one owner;
(5) what it starts has no shell around it: paths are whole, and what the run needs of the variables
of this shell goes with it, except secrets, which are written nowhere (`at` keeps them by itself).
Not here: whether a run may wake (flows/), when timers are set (run_timer.py), the service that
wakes runs while it lives (assembly/).
"""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

from jackline.cli.system_steps import Remove, Run, Step, Write, unit_word

WakeBy: TypeAlias = Literal["systemd", "launchd", "at", "schtasks", "none"]

# In a shell, since none of the systems does all of it: a folder that may be gone, and a file for
# what is said that only this user can read.
_IN_FOLDER = 'cd "$1" 2>/dev/null; shift; umask 077; '
_THERE = _IN_FOLDER + 'exec "$@" >>"$0" 2>&1 </dev/null'
_ASIDE = _IN_FOLDER + '"$@" >>"$0" 2>&1 </dev/null &'


@dataclass(frozen=True, slots=True)
class Errand:
    """What a timer starts: a command, where, with which variables, and where its words go."""

    command: tuple[str, ...]
    folder: str
    log: Path
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WakeTimer:
    """What setting and removing one run's timer do."""

    kind: WakeBy
    set: tuple[Step, ...]
    remove: tuple[Step, ...]


def resume_command(run_id: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that wakes this run with this very Jackline."""
    return (sys.executable, "-P", "-m", "jackline", "resume", "--woken", run_id, *arguments)


def wake_timer(
    kind: WakeBy,
    run_id: str,
    at: datetime,
    errand: Errand,
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
        return _systemd(name, at, errand, Path(configured) if configured else home / ".config")
    if kind == "launchd":
        return _launchd(name, at, errand, home, os.getuid())
    if kind == "at":
        return _at(at, errand)
    if kind == "schtasks":
        local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        return _schtasks(name, at, errand, Path(local))
    return WakeTimer("none", (), ())


def _in_shell(errand: Errand, script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script, str(errand.log), errand.folder or "/", *errand.command)


def _systemd(name: str, at: datetime, errand: Errand, config_folder: Path) -> WakeTimer:
    folder = config_folder / "systemd" / "user"
    service, timer = folder / f"{name}.service", folder / f"{name}.timer"
    words = " ".join(unit_word(word) for word in _in_shell(errand, _THERE))
    variables = "".join(f"Environment={_assigned(n, v)}\n" for n, v in errand.variables.items())
    when = _whole(at, timedelta(seconds=1)).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    reload = Run(("systemctl", "--user", "daemon-reload"))
    return WakeTimer(
        "systemd",
        set=(
            Write(
                service,
                # KillMode: a gateway that the run has started serves others, and outlives it.
                f"[Unit]\nDescription=Wake a parked Jackline run\n\n"
                f"[Service]\nType=oneshot\n{variables}ExecStart={words}\n"
                f"KillMode=process\n".encode(),
            ),
            Write(
                timer,
                # Persistent: a machine that was off at the time wakes the run when it is back.
                f"[Unit]\nDescription=Wake a parked Jackline run\n\n"
                f"[Timer]\nOnCalendar={when}\nPersistent=true\nAccuracySec=1s\n\n"
                f"[Install]\nWantedBy=timers.target\n".encode(),
            ),
            reload,
            Run(("systemctl", "--user", "enable", timer.name)),
            # One that waits for an earlier time is not moved by starting it.
            Run(("systemctl", "--user", "restart", timer.name)),
        ),
        remove=(
            Run(("systemctl", "--user", "disable", "--now", timer.name), may_fail=True),
            # When it fired last is kept in a file of its own.
            Run(("systemctl", "--user", "clean", "--what=state", timer.name), may_fail=True),
            # Read no more after that: the service may be what runs us, and goes by what was read.
            Remove(timer),
            Remove(service),
        ),
    )


def _assigned(name: str, value: str) -> str:
    """One word of Environment=: unquoted like ExecStart's, but a $ stands for itself."""
    word = f"{name}={value}".replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return '"' + word.replace("\n", "\\n").replace("\t", "\\t") + '"'


def _launchd(name: str, at: datetime, errand: Errand, home: Path, user_id: int) -> WakeTimer:
    path = home / "Library" / "LaunchAgents" / f"{name}.plist"
    local = _whole(at, timedelta(minutes=1))
    leave = Run(("launchctl", "bootout", f"gui/{user_id}/{name}"), may_fail=True)
    text = plistlib.dumps(
        {
            "Label": name,
            # Aside: removing a job ends what it runs, and the run itself removes this one.
            "ProgramArguments": list(_in_shell(errand, _ASIDE)),
            "AbandonProcessGroup": True,
            "EnvironmentVariables": dict(errand.variables),
            "StartCalendarInterval": {
                "Month": local.month,
                "Day": local.day,
                "Hour": local.hour,
                "Minute": local.minute,
            },
            # A machine that was off at the time is told of it by nobody: it looks at login. Too
            # early, the command only says so.
            "RunAtLoad": True,
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


def _at(at: datetime, errand: Errand) -> WakeTimer:
    when = _whole(at, timedelta(minutes=1)).strftime("%Y%m%d%H%M")
    # The number that `at` gives its job is told on stderr only, so that it cannot be removed by
    # name; a run that was woken by hand meanwhile is left alone by the job (law 4). `at` keeps the
    # folder it was started in, and does nothing when that is gone: the root stays.
    command = shlex.join(_in_shell(errand, _THERE))
    return WakeTimer("at", (Run(("at", "-t", when), told=f"{command}\n", folder="/"),), ())


def _schtasks(name: str, at: datetime, errand: Errand, local_folder: Path) -> WakeTimer:
    path = local_folder / "jackline" / f"{name}.xml"
    arguments = subprocess.list2cmdline(list(errand.command[1:]))
    when = _whole(at, timedelta(seconds=1)).isoformat(timespec="seconds")
    where = f"<WorkingDirectory>{escape(errand.folder)}</WorkingDirectory>" if errand.folder else ""
    # StartWhenAvailable: a machine that was off at the time wakes the run when it is back.
    text = f"""\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers>
    <TimeTrigger>
      <StartBoundary>{when}</StartBoundary>
      <Enabled>true</Enabled>
    </TimeTrigger>
  </Triggers>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <StartWhenAvailable>true</StartWhenAvailable>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions>
    <Exec>
      <Command>{escape(errand.command[0])}</Command>
      <Arguments>{escape(arguments)}</Arguments>
      {where}
    </Exec>
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


def _whole(at: datetime, unit: timedelta) -> datetime:
    """The first whole second or minute at or after `at`, in the zone of this machine."""
    local = at.astimezone()
    second = local.second if unit > timedelta(seconds=1) else 0
    beyond = timedelta(seconds=second, microseconds=local.microsecond)
    return local if not beyond else local - beyond + unit
