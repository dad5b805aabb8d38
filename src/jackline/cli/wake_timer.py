"""Have the operating system wake a parked run when no Jackline process lives to do it.

Rules: (1) the timer is set as soon as the run parks, for when the brakes let it wake, and removed
when it goes on; (2) what is set is decided by pure functions and shown before it is done; (3) a
timer fires at its time or later, survives a reboot where the system can do that, and waking twice
does no harm; (4) a timer that cannot be set is reported, and costs the run nothing; (5) the process
it starts has whole paths and this shell's variables except secrets; (6) a run is not woken where
the variables that it pays with are missing; only their names are saved.
Not here: whether a run may wake (flows/settings.py), the service that wakes runs (assembly/).
"""

from __future__ import annotations

import asyncio
import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

from jackline.cli.system_steps import Remove, Run, Step, Write, apply_steps, unit_word
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.errors import JacklineError, UsageError
from jackline.failures.sentences import moment_in_words
from jackline.flows.records import NoteRecord, RunRecord, RunState
from jackline.flows.run_events import FlowEvent, RunParked, RunWoke
from jackline.flows.settings import NOT_WOKEN, decode_settings, may_wake
from jackline.flows.store.run_store import RunStore
from jackline.programs import find_program, own_command
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.state_dir import StateDir

WakeBy: TypeAlias = Literal["systemd", "launchd", "at", "schtasks", "none"]

# In a shell, since none of the systems does all of it: a folder that may be gone, and a file for
# what is said that only this user can read.
_IN_FOLDER = 'cd "$1" 2>/dev/null; shift; umask 077; '
_THERE = _IN_FOLDER + 'exec "$@" >>"$0" 2>&1 </dev/null'
_ASIDE = _IN_FOLDER + '"$@" >>"$0" 2>&1 </dev/null &'


@dataclass(frozen=True, slots=True)
class TimerCommand:
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
    return tuple(own_command("resume", "--woken", run_id, *arguments))


def wake_timer(
    kind: WakeBy,
    run_id: str,
    at: datetime,
    errand: TimerCommand,
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


def _in_shell(errand: TimerCommand, script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script, str(errand.log), errand.folder or "/", *errand.command)


def _systemd(name: str, at: datetime, errand: TimerCommand, config_folder: Path) -> WakeTimer:
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


def _launchd(name: str, at: datetime, errand: TimerCommand, home: Path, user_id: int) -> WakeTimer:
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


def _at(at: datetime, errand: TimerCommand) -> WakeTimer:
    when = _whole(at, timedelta(minutes=1)).strftime("%Y%m%d%H%M")
    # The number that `at` gives its job is told on stderr only, so that it cannot be removed by
    # name; a run that was woken by hand meanwhile is left alone by the job (law 4). `at` keeps the
    # folder it was started in, and does nothing when that is gone: the root stays.
    command = shlex.join(_in_shell(errand, _THERE))
    return WakeTimer("at", (Run(("at", "-t", when), told=f"{command}\n", folder="/"),), ())


def _schtasks(name: str, at: datetime, errand: TimerCommand, local_folder: Path) -> WakeTimer:
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


_CLIENTS_OWN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PAYS = "pays with"


def paying_variables(
    upstreams: Sequence[UpstreamSettings], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The variables that are set here and that calls are paid with; secrets are references."""
    names: dict[str, None] = {}
    for each in upstreams:
        if each.credential is Credential.PASS_THROUGH:
            names.update(dict.fromkeys(_CLIENTS_OWN))
        elif each.secret is not None and each.secret.startswith("env:"):
            names[each.secret.removeprefix("env:")] = None
    return tuple(name for name in names if environ.get(name))


async def save_paying_variables(
    engine: RunStore, run_id: str, names: Sequence[str], clock: Clock
) -> None:
    """Keep with the run what it pays with, unless that is nothing and never was anything."""
    if names or await missing_paying_variables(engine, run_id, {}):
        await engine.note(run_id, clock.wall(), _PAYS, "", {"variables": list(names)})


async def missing_paying_variables(
    engine: RunStore, run_id: str, environ: Mapping[str, str]
) -> list[str]:
    """The variables that the run paid with when it was last begun, and that are not set here."""
    kept = [each for each in await engine.notes(run_id) if each.what == _PAYS]
    names = kept[-1].detail.get("variables") if kept else None
    return [str(n) for n in names if not environ.get(str(n))] if isinstance(names, list) else []


async def save_wake_refusal(engine: RunStore, run_id: str, why: str, clock: Clock) -> None:
    """Keep with the run why it was left parked."""
    await engine.note(run_id, clock.wall(), NOT_WOKEN, "", {"why": why})


def last_wake_refusal(notes: Sequence[NoteRecord]) -> str:
    """Why the run was left parked when it was last to be woken; empty if nothing spoke against."""
    for note in reversed(notes):
        if note.what == NOT_WOKEN:
            return str(note.detail.get("why", ""))
        if note.what in ("started", "parked", "woke"):
            break
    return ""


_TOOLS = {"systemd": "systemctl", "launchd": "launchctl", "at": "at", "schtasks": "schtasks"}
_OWN_TIMERS: dict[str, WakeBy] = {"darwin": "launchd", "win32": "schtasks"}
# What programs that agents start need of a shell, and what our own configuration is read from.
_CARRIED = (
    *("PATH", "LANG", "LC_ALL", "PYTHONPATH", "XDG_CONFIG_HOME", "XDG_STATE_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME"),
)
_OURS = "JACKLINE_"
_SECRET_NAMES = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "HEADERS", "NOTIFY")
# A timer whose time has passed when it is set would never fire.
_SOONEST = timedelta(seconds=5)


class RunTimer:
    """The timer of the run that this process carries."""

    def __init__(
        self,
        kind: WakeBy,
        config: Config,
        tell: Callable[[str], None],
        paying: Sequence[str] = (),
    ) -> None:
        """`paying` are the variables of this shell that calls are paid with."""
        tool = _TOOLS.get(kind)
        if tool is not None and find_program(tool) is None:
            raise UsageError(
                f"--wake {kind} needs {tool}, which is not on this machine",
                next="use another --wake, or keep `jackline up` running: it wakes runs, too",
            )
        self._kind = kind
        self._config = config
        self._tell = tell
        self.paying = paying
        self._set_for: datetime | None = None
        self._stale = asyncio.Event()
        self._left = False

    def heard(self, event: FlowEvent) -> None:
        """The run has parked, or woke."""
        if isinstance(event, RunParked | RunWoke):
            self._stale.set()

    def leave(self) -> None:
        """The run is not carried any more: `watch` returns when it has done what is under way."""
        self._left = True
        self._stale.set()

    async def watch(self, engine: RunStore, run_id: str) -> None:
        """Follow the run for as long as it is carried."""
        while not self._left:
            await self._stale.wait()
            self._stale.clear()
            await self.align(engine, run_id)

    async def align(
        self, engine: RunStore, run_id: str, *, not_before: datetime | None = None
    ) -> None:
        """See to it that the timer says what the run's standing asks for."""
        if self._kind == "none":
            return
        try:
            record = await engine.run(run_id)
            if record is not None:
                due = self._due(record)
                later = not_before is not None and due is not None and not_before > due
                await self._align(record, not_before if later else due)
        except JacklineError as error:
            self._tell(f"warning: the timer is not in order: {error.message}")

    async def _align(self, record: RunRecord, at: datetime | None) -> None:
        if at is None and self._set_for is not None:
            timer = _timer(self._kind, record, self._set_for, self._config)
            await asyncio.to_thread(apply_steps, timer.remove, self._tell)
        elif at is not None and (
            self._set_for is None or abs(at - self._set_for) > timedelta(seconds=1)
        ):
            await asyncio.to_thread(self._set, record, at)
        self._set_for = at

    def _due(self, record: RunRecord) -> datetime | None:
        if record.state is not RunState.PARKED:
            return None
        now = SystemClock().now()
        decision = may_wake(now, record, decode_settings(record.settings).wake)
        if decision.at is None:
            self._tell(f"no timer is set: {decision.why}")
            return None
        # One that has been set for this already is let fire.
        return max(decision.at, self._set_for or now + _SOONEST)

    def _set(self, record: RunRecord, at: datetime) -> None:
        apply_steps(_timer(self._kind, record, at, self._config).set, self._tell)
        when = moment_in_words(at.replace(microsecond=0), SystemClock().now())
        self._tell(f"the timer is set: {self._kind} wakes run {record.run_id} at {when}")
        if self._set_for is None:
            note = shell_only_note(self._kind, os.environ, self.paying)
            if note:
                self._tell(note)


def remove_own_timer(run_id: str, tell: Callable[[str], None]) -> None:
    """Take back the timer that woke us: it has done its work, and would stay for ever."""
    kind: WakeBy = _OWN_TIMERS.get(sys.platform, "systemd")
    any_errand = TimerCommand(("jackline",), "", Path())  # only its name counts
    timer = wake_timer(kind, run_id, SystemClock().now(), any_errand)
    if any(step.path.exists() for step in timer.set if isinstance(step, Write)):
        apply_steps(timer.remove, tell)


def timer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a timer's process gets of this shell: nothing that may be a secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if (name in _CARRIED or (name.startswith(_OURS) and not _may_be_secret(name)))
        # An address may hold a password.
        and value
        and not ("://" in value and "@" in value)
    }


def shell_only_note(kind: WakeBy, environ: Mapping[str, str], paying: Sequence[str]) -> str:
    """What the timer's process will lack, for a person; empty when it lacks nothing."""
    if kind in ("at", "none"):
        return ""  # `at` keeps the whole environment, for this user's eyes only
    carried = timer_variables(environ)
    ours = [n for n in environ if n.startswith(_OURS) and environ[n] and n not in carried]
    names = [*paying, *sorted(ours)]
    if not names:
        return ""
    where = {
        "systemd": "in ~/.config/environment.d, or by `systemctl --user import-environment`",
        "launchd": "by `launchctl setenv`",
        "schtasks": "among your variables in Windows' settings",
    }[kind]
    return (
        f"note:  {', '.join(names)} may be known to this shell alone; the timer's process has"
        f" only what your system gives to every process.\n"
        f"       Set it there ({where}), else the run stays parked and waits for you."
    )


def _may_be_secret(name: str) -> bool:
    return any(word in name for word in _SECRET_NAMES)


def _timer(kind: WakeBy, record: RunRecord, at: datetime, config: Config) -> WakeTimer:
    state = StateDir(config.state_dir.absolute())
    arguments = ["--wake", kind, "--state", str(state.folder)]
    errand = TimerCommand(
        resume_command(record.run_id, arguments),
        record.cwd,
        state.folder / "woken-runs.log",
        {} if kind == "at" else timer_variables(os.environ),
    )
    return wake_timer(kind, record.run_id, at, errand)
