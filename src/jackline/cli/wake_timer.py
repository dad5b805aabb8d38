"""Have the operating system wake a parked run when no Jackline process lives to do it.

Rules: (1) the timer is set as soon as the run parks, for when the brakes let it wake, and removed
when it goes on; (2) the steps are decided by pure functions and shown before they are done; (3) a
timer fires at its time or later, survives a reboot where the system can do that, and waking twice
does no harm; (4) a timer that cannot be set is reported, and costs the run nothing; (5) the process
it starts has whole paths and this shell's variables except secrets; (6) a run is not woken where
the variables that it pays with are missing; only their names are saved.
Whether a run may wake: flows/settings.py. The service that wakes runs: assembly/.
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

from jackline.cli.system_steps import (
    Installation,
    Remove,
    Run,
    Write,
    apply_steps,
    unit_quoted,
    unit_word,
)
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.errors import JacklineError, UsageError
from jackline.failures.sentences import moment_in_words
from jackline.flows.records import NoteRecord, RunRecord, RunState
from jackline.flows.run_events import FlowEvent, RunParked, RunWoke
from jackline.flows.settings import NOT_WOKEN, decode_settings, may_wake
from jackline.flows.store.run_store import RunStore
from jackline.private_files import own_number
from jackline.programs import find_program, own_command
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.state_dir import StateDir

WakeBy: TypeAlias = Literal["systemd", "launchd", "at", "schtasks", "none"]

# In a shell, since none of the systems does all of it: a folder that may be gone, and a log that
# only this user can read.
_IN_FOLDER = 'cd "$1" 2>/dev/null; shift; umask 077; '
_IN_FOREGROUND = _IN_FOLDER + 'exec "$@" >>"$0" 2>&1 </dev/null'
_IN_BACKGROUND = _IN_FOLDER + '"$@" >>"$0" 2>&1 </dev/null &'
_TOOLS = {"systemd": "systemctl", "launchd": "launchctl", "at": "at", "schtasks": "schtasks"}
_OWN_TIMERS: dict[str, WakeBy] = {"darwin": "launchd", "win32": "schtasks"}
_CLIENT_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PAYS = "pays with"
_NAME = "jackline-wake-"
# What programs that agents start need of a shell, and what our own configuration is read from.
_PASSED_ON = (
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


@dataclass(frozen=True, slots=True)
class TimerCommand:
    """The command that a timer starts, its folder, its log, and its variables."""

    command: tuple[str, ...]
    folder: str
    log: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def timer(
        self,
        kind: WakeBy,
        run_id: str,
        at: datetime,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Installation:
        """The timer of this kind for one run; `at` is aware."""
        home = home or Path.home()
        environ = os.environ if environ is None else environ
        name = f"{_NAME}{run_id}"
        if kind == "systemd":
            configured = environ.get("XDG_CONFIG_HOME")
            return self._systemd(name, at, Path(configured) if configured else home / ".config")
        if kind == "launchd":
            return self._launchd(name, at, home)
        if kind == "at":
            when = _round_up(at, timedelta(minutes=1)).strftime("%Y%m%d%H%M")
            # `at` has no names for its jobs, so that this one cannot be removed; it leaves alone a
            # run that was resumed meanwhile (rule 3). It does nothing when its folder is gone.
            script = shlex.join(self._in_shell(_IN_FOREGROUND))
            step = Run(("at", "-t", when), stdin=f"{script}\n", folder="/")
            return Installation((step,), ())
        if kind == "schtasks":
            local = environ.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
            return self._schtasks(name, at, Path(local))
        return Installation((), ())

    def _in_shell(self, script: str) -> tuple[str, ...]:
        """The command as `sh` runs it with one of the scripts above."""
        return ("/bin/sh", "-c", script, str(self.log), self.folder or "/", *self.command)

    def _systemd(self, name: str, at: datetime, config_folder: Path) -> Installation:
        folder = config_folder / "systemd" / "user"
        service, timer = folder / f"{name}.service", folder / f"{name}.timer"
        words = " ".join(unit_word(word) for word in self._in_shell(_IN_FOREGROUND))
        variables = ""
        for variable, value in self.variables.items():
            # Unquoted like ExecStart, but a $ is literal.
            word = unit_quoted(f"{variable}={value}".replace("%", "%%"))
            variables += f"Environment={word}\n"
        moment = _round_up(at, timedelta(seconds=1)).astimezone(UTC)
        # KillMode: a gateway that the run has started serves others too, and goes on.
        service_text = (
            "[Unit]\nDescription=Wake a parked Jackline run\n\n"
            f"[Service]\nType=oneshot\n{variables}ExecStart={words}\n"
            "KillMode=process\n"
        )
        # Persistent: a machine that was off at the time wakes the run when it is back.
        timer_text = (
            "[Unit]\nDescription=Wake a parked Jackline run\n\n"
            f"[Timer]\nOnCalendar={moment:%Y-%m-%d %H:%M:%S UTC}\n"
            "Persistent=true\nAccuracySec=1s\n\n"
            "[Install]\nWantedBy=timers.target\n"
        )
        return Installation(
            install=(
                Write(service, service_text.encode()),
                Write(timer, timer_text.encode()),
                Run(("systemctl", "--user", "daemon-reload")),
                Run(("systemctl", "--user", "enable", timer.name)),
                # `start` would not change a timer that already waits for another time.
                Run(("systemctl", "--user", "restart", timer.name)),
            ),
            uninstall=(
                Run(("systemctl", "--user", "disable", "--now", timer.name), may_fail=True),
                # The time of its last firing is in a file of its own.
                Run(("systemctl", "--user", "clean", "--what=state", timer.name), may_fail=True),
                # No reload after that: the service may be what runs us, and uses what it has read.
                Remove(timer),
                Remove(service),
            ),
        )

    def _launchd(self, name: str, at: datetime, home: Path) -> Installation:
        path = home / "Library" / "LaunchAgents" / f"{name}.plist"
        local = _round_up(at, timedelta(minutes=1))
        text = plistlib.dumps(
            {
                "Label": name,
                # In the background: removing a job ends what it runs, and the run removes this job.
                "ProgramArguments": list(self._in_shell(_IN_BACKGROUND)),
                "AbandonProcessGroup": True,
                "EnvironmentVariables": dict(self.variables),
                "StartCalendarInterval": {
                    "Month": local.month,
                    "Day": local.day,
                    "Hour": local.hour,
                    "Minute": local.minute,
                },
                # launchd does not catch up on a time at which the machine was off, so the command
                # also runs at login. Too early, it does nothing.
                "RunAtLoad": True,
            },
            sort_keys=False,
        )
        domain = f"gui/{own_number()}"
        leave = Run(("launchctl", "bootout", f"{domain}/{name}"), may_fail=True)
        bootstrap = Run(("launchctl", "bootstrap", domain, str(path)))
        return Installation((Write(path, text), leave, bootstrap), (leave, Remove(path)))

    def _schtasks(self, name: str, at: datetime, local_folder: Path) -> Installation:
        path = local_folder / "jackline" / f"{name}.xml"
        arguments = subprocess.list2cmdline(list(self.command[1:]))
        when = _round_up(at, timedelta(seconds=1)).isoformat(timespec="seconds")
        where = f"<WorkingDirectory>{escape(self.folder)}</WorkingDirectory>" if self.folder else ""
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
      <Command>{escape(self.command[0])}</Command>
      <Arguments>{escape(arguments)}</Arguments>
      {where}
    </Exec>
  </Actions>
</Task>
"""
        create = Run(("schtasks", "/Create", "/TN", name, "/XML", str(path), "/F"))
        delete = Run(("schtasks", "/Delete", "/TN", name, "/F"), may_fail=True)
        return Installation((Write(path, text.encode("utf-16")), create), (delete, Remove(path)))


def resume_command(run_id: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that wakes this run with this very Jackline."""
    return tuple(own_command("resume", "--woken", run_id, *arguments))


def _round_up(at: datetime, unit: timedelta) -> datetime:
    """The first whole second or minute at or after `at`, in the zone of this machine."""
    local = at.astimezone()
    second = local.second if unit > timedelta(seconds=1) else 0
    beyond = timedelta(seconds=second, microseconds=local.microsecond)
    return local if not beyond else local - beyond + unit


def paying_variables(
    upstreams: Sequence[UpstreamSettings], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The variables set here that pay for calls; secrets in `upstreams` are references."""
    names: dict[str, None] = {}
    for each in upstreams:
        if each.credential is Credential.PASS_THROUGH:
            names.update(dict.fromkeys(_CLIENT_CREDENTIALS))
        elif each.secret is not None and each.secret.startswith("env:"):
            names[each.secret.removeprefix("env:")] = None
    return tuple(name for name in names if environ.get(name))


async def save_paying_variables(
    engine: RunStore, run_id: str, names: Sequence[str], clock: Clock
) -> None:
    """Save with the run which variables pay for it, unless there are and were none."""
    if names or await missing_paying_variables(engine, run_id, {}):
        await engine.note(run_id, clock.wall(), _PAYS, "", {"variables": list(names)})


async def missing_paying_variables(
    engine: RunStore, run_id: str, environ: Mapping[str, str]
) -> list[str]:
    """The variables that paid for the run when it last started, and that are not set here."""
    saved = [each for each in await engine.notes(run_id) if each.what == _PAYS]
    names = saved[-1].detail.get("variables") if saved else None
    return [str(n) for n in names if not environ.get(str(n))] if isinstance(names, list) else []


def last_wake_refusal(notes: Sequence[NoteRecord]) -> str:
    """Why the last attempt to wake the run was refused; empty if it was not."""
    for note in reversed(notes):
        if note.what == NOT_WOKEN:
            return str(note.detail.get("why", ""))
        if note.what in ("started", "parked", "woke"):
            break
    return ""


class RunTimer:
    """Keeps the system timer of the run of this process up to date."""

    def __init__(
        self, kind: WakeBy, config: Config, show: Callable[[str], None], paying: Sequence[str] = ()
    ) -> None:
        """`paying` are the variables of this shell that pay for calls."""
        tool = _TOOLS.get(kind)
        if tool is not None and find_program(tool) is None:
            raise UsageError(
                f"--wake {kind} needs {tool}, which is not on this machine",
                hint="use another --wake, or keep `jackline up` running: it wakes runs, too",
            )
        self._kind = kind
        self._config = config
        self._show = show
        self.paying = paying
        self._set_for: datetime | None = None
        self._stale = asyncio.Event()
        self._stopped = False

    def on_event(self, event: FlowEvent) -> None:
        """Note that the run has parked or woken."""
        if isinstance(event, RunParked | RunWoke):
            self._stale.set()

    def stop(self) -> None:
        """Let `watch` return once its current step is done."""
        self._stopped = True
        self._stale.set()

    async def watch(self, engine: RunStore, run_id: str) -> None:
        """Follow the run until `stop`."""
        while not self._stopped:
            await self._stale.wait()
            self._stale.clear()
            await self.align(engine, run_id)

    async def align(
        self, engine: RunStore, run_id: str, *, not_before: datetime | None = None
    ) -> None:
        """Set or remove the timer as the state of the run requires."""
        if self._kind == "none":
            return
        try:
            record = await engine.run(run_id)
            if record is None:
                return
            at = self._due(record)
            if at is not None and not_before is not None:
                at = max(at, not_before)
            was = self._set_for
            if at is None and was is not None:
                timer = self._timer(record, was)
                await asyncio.to_thread(apply_steps, timer.uninstall, self._show)
            elif at is not None and (was is None or abs(at - was) > timedelta(seconds=1)):
                await asyncio.to_thread(self._set, record, at)
            self._set_for = at
        except JacklineError as error:
            self._show(f"warning: the timer cannot be updated: {error.message}")

    def _due(self, record: RunRecord) -> datetime | None:
        if record.state is not RunState.PARKED:
            return None
        now = SystemClock().now()
        decision = may_wake(now, record, decode_settings(record.settings).wake)
        if decision.at is None:
            self._show(f"no timer is set: {decision.why}")
            return None
        # A timer that is already set for this may fire.
        return max(decision.at, self._set_for or now + _SOONEST)

    def _set(self, record: RunRecord, at: datetime) -> None:
        apply_steps(self._timer(record, at).install, self._show)
        when = moment_in_words(at.replace(microsecond=0), SystemClock().now())
        self._show(f"the timer is set: {self._kind} wakes run {record.run_id} at {when}")
        if self._set_for is None:
            note = shell_only_note(self._kind, os.environ, self.paying)
            if note:
                self._show(note)

    def _timer(self, record: RunRecord, at: datetime) -> Installation:
        state = StateDir(self._config.state_dir.absolute())
        arguments = ["--wake", self._kind, "--state", str(state.folder)]
        job = TimerCommand(
            resume_command(record.run_id, arguments),
            record.cwd,
            state.folder / "woken-runs.log",
            {} if self._kind == "at" else timer_variables(os.environ),
        )
        return job.timer(self._kind, record.run_id, at)


def remove_own_timer(run_id: str, show: Callable[[str], None]) -> None:
    """Remove the timer that woke us: it would stay for ever."""
    timer = timer_removal(run_id)
    if any(step.path.exists() for step in timer.install if isinstance(step, Write)):
        apply_steps(timer.uninstall, show)


def set_timers(*, home: Path | None = None, environ: Mapping[str, str] | None = None) -> list[str]:
    """The ids of the runs for which a timer of this system lies on the disk."""
    pattern = timer_removal("*", home=home, environ=environ)
    files = [step.path for step in pattern.install if isinstance(step, Write)]
    found = {
        each.stem.removeprefix(_NAME)
        for file in files
        for each in file.parent.glob(file.name)
        if each.stem.startswith(_NAME)
    }
    return sorted(found)


def own_timer_kind() -> WakeBy:
    """The timers of this system that have files."""
    return _OWN_TIMERS.get(sys.platform, "systemd")


def timer_removal(
    run_id: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Installation:
    """The timer of this run, for its `uninstall`."""
    any_job = TimerCommand(("jackline",), "", Path())  # only its name counts
    now = SystemClock().now()
    return any_job.timer(own_timer_kind(), run_id, now, home=home, environ=environ)


def timer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of this shell for a timer's process: none that may be a secret."""
    variables = {}
    for name, value in sorted(environ.items()):
        is_secret = any(part in name for part in _SECRET_NAMES)
        is_wanted = name in _PASSED_ON or (name.startswith(_OURS) and not is_secret)
        # An address may hold a password, and that of a proxy is often written without its scheme.
        is_address = "://" in value or name.lower().endswith("_proxy")
        if is_wanted and value and not ("@" in value and is_address):
            variables[name] = value
    return variables


def shell_only_note(kind: WakeBy, environ: Mapping[str, str], paying: Sequence[str]) -> str:
    """A note on the variables that the timer's process will not have; empty if it has all."""
    if kind in ("at", "none"):
        return ""  # `at` saves the whole environment, readable for this user only
    passed_on = timer_variables(environ)
    ours = [n for n in environ if n.startswith(_OURS) and environ[n] and n not in passed_on]
    names = [*paying, *sorted(ours)]
    if not names:
        return ""
    where = {
        "systemd": "in ~/.config/environment.d, or by `systemctl --user import-environment`",
        "launchd": "by `launchctl setenv`",
        "schtasks": "among your variables in Windows' settings",
    }[kind]
    return (
        f"note:  {', '.join(names)} may be set in this shell alone; the timer's process has"
        f" only what your system gives to every process.\n"
        f"       Set it there ({where}), else the run stays parked and waits for you."
    )
