"""Notice that agents have ended, from their parents, their clients and their processes.

Rules: (1) only evidence ends an agent: a parent that has its result, a client that reports it, a
process that was alive and is gone; silence is none; (2) a process is recognised by its number and
its start time; which process above a hook is the client follows from its name, or shows when the
hook is over; (3) only trusted hooks count, and looking at processes delays no call.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jackline.agents.process.child import ProcessMark, is_alive, mark_of
from jackline.clock import Clock
from jackline.control.fleet import Fleet
from jackline.hooks.hook_input import HookInput

_LOOK_EVERY = 2.0
_MOST_SESSIONS = 2000
# So many are looked at in one round: a system without /proc starts a program for each.
_AT_A_TIME = 50
# By what a client may have called its hook.
_SHELLS = frozenset(("sh", "dash", "bash", "zsh", "ash", "ksh", "fish", "busybox"))
# A hook, and the shell that a client may have called it by, are over after so long.
_HOOK_OVER = 6.0


@dataclass(slots=True)
class _SessionProcesses:
    """The processes above a session's hook, the nearest first, and when it came."""

    marks: list[ProcessMark]
    seen_at: float
    client: ProcessMark | None = None
    """Which of them is the client, once that is known."""

    def has_ended(self, now: float) -> bool:
        """Whether the client is gone, or all that it can be."""
        if self.client is not None:
            return not is_alive(self.client)
        alive = [mark for mark in self.marks if is_alive(mark)]
        if alive and now - self.seen_at > _HOOK_OVER:
            self.client = alive[0]
        return not alive


class AgentEndTracker:
    """What is known of ends; `watch` must run for as long as the service does."""

    def __init__(
        self, fleet: Callable[[], Fleet], clock: Clock, name: Callable[[int], str] | None = None
    ) -> None:
        """`name` returns the name of a process, empty where the system has none."""
        self._fleet = fleet
        self._clock = clock
        self._name = name or program_name
        self._sessions: OrderedDict[str, _SessionProcesses] = OrderedDict()
        self._work: set[asyncio.Task[None]] = set()

    def on_hook(self, hook: HookInput, processes: Sequence[int]) -> None:
        """A trusted hook: whose result a parent has, and which processes its session has."""
        if not hook.session_id:
            return
        is_return = hook.hook_event_name == "PostToolUse"
        ended = [hook.returned_agent] if is_return else hook.notified_agents
        for each in ended:
            if each is not None:
                self.agent_ended(hook.session_id, each.agent)
        known = self._sessions.get(hook.session_id)
        if known is None or known.client is None or known.client.pid not in processes:
            task = asyncio.get_running_loop().create_task(
                self._recognise(hook.session_id, processes)
            )
            self._work.add(task)
            task.add_done_callback(self._work.discard)

    def agent_ended(self, session: str, agent: str) -> None:
        """A sub-agent has ended, as its client reports."""
        self._fleet().ended(session, agent, self._clock.wall())

    async def watch(self) -> None:
        """Look whether the processes of sessions still run, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        """Look at some of them: those first that were not looked at for longest."""
        some = list(islice(self._sessions.items(), _AT_A_TIME))
        now = self._clock.monotonic()
        for session, known in some:
            ended = await asyncio.to_thread(known.has_ended, now)
            if self._sessions.get(session) is not known:
                continue  # a newer hook has come meanwhile
            self._sessions.move_to_end(session)
            if ended:
                del self._sessions[session]
                self._fleet().ended(session, None, self._clock.wall())

    async def _recognise(self, session: str, processes: Sequence[int]) -> None:
        """Remember them with their start times, while the hook waits for its answer."""
        found = await asyncio.to_thread(self._find, processes)
        if found is not None:
            self._sessions[session] = found
            self._sessions.move_to_end(session)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def _find(self, processes: Sequence[int]) -> _SessionProcesses | None:
        marks = [mark_of(pid) for pid in processes]
        # One that is none of this system's (a container has numbers of its own) proves nothing.
        found = [mark for mark in marks if mark.began]
        if not found:
            return None
        names = [self._name(mark.pid) for mark in found]
        # The nearest that is no shell has called the hook, unless a nearer one is unknown.
        called = next((i for i, name in enumerate(names) if name not in _SHELLS), None)
        if called is None:
            return None
        return _SessionProcesses(
            found, self._clock.monotonic(), found[called] if names[called] else None
        )


def program_name(pid: int) -> str:
    """The name of a process; empty where the system has none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""  # gone, or no such system
