"""Keep the system's timer of one run in step with the run: set while it is parked, else removed.

Laws: (1) it is set as soon as the run parks, not when we leave: whoever is killed leaves no word;
(2) it is set for when the brakes let the run wake, and not at all when only a person may wake it;
(3) a timer that cannot be set is told, and costs the run nothing; (4) no secret goes into it, and
whoever counts on one is told so.
Not here: what a timer of each system is (wake_timer.py), who may wake a run (flows/waking.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from jackline.assembly.state_dir import StateDir
from jackline.cli.system_steps import Write, carry_out
from jackline.cli.wake_timer import Errand, WakeBy, WakeTimer, resume_command, wake_timer
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.errors import JacklineError, UsageError
from jackline.failures.sentences import moment_in_words
from jackline.flows.engine import Engine
from jackline.flows.progress import FlowEvent, RunParked, RunWoke
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import decode_settings
from jackline.flows.waking import may_wake
from jackline.programs import find_program

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

    async def watch(self, engine: Engine, run_id: str) -> None:
        """Follow the run for as long as it is carried."""
        while not self._left:
            await self._stale.wait()
            self._stale.clear()
            await self.align(engine, run_id)

    async def align(
        self, engine: Engine, run_id: str, *, not_before: datetime | None = None
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
            await asyncio.to_thread(carry_out, timer.remove, self._tell)
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
        carry_out(_timer(self._kind, record, at, self._config).set, self._tell)
        when = moment_in_words(at.replace(microsecond=0), SystemClock().now())
        self._tell(f"the timer is set: {self._kind} wakes run {record.run_id} at {when}")
        if self._set_for is None:
            note = shell_only_note(self._kind, os.environ, self.paying)
            if note:
                self._tell(note)


def remove_own_timer(run_id: str, tell: Callable[[str], None]) -> None:
    """Take back the timer that woke us: it has done its work, and would stay for ever."""
    kind: WakeBy = _OWN_TIMERS.get(sys.platform, "systemd")
    any_errand = Errand(("jackline",), "", Path())  # only its name counts
    timer = wake_timer(kind, run_id, SystemClock().now(), any_errand)
    if any(step.path.exists() for step in timer.set if isinstance(step, Write)):
        carry_out(timer.remove, tell)


def carried_variables(environ: Mapping[str, str]) -> dict[str, str]:
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
    carried = carried_variables(environ)
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
    errand = Errand(
        resume_command(record.run_id, arguments),
        record.cwd,
        state.folder / "woken-runs.log",
        {} if kind == "at" else carried_variables(os.environ),
    )
    return wake_timer(kind, record.run_id, at, errand)
