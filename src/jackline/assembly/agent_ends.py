"""Notice that agents have ended, from their parents, their clients and their processes.

Rules: (1) only evidence ends an agent: a parent that has its result, a client that says so, a
process that was alive and is gone; silence is none; (2) a process is recognised by its number and
its start time; which process above a hook is the client follows from its name, or shows when the
hook is over; (3) only trusted hooks are believed, and looking at processes delays no call.
Not here: agents of runs, whose ends are in the store (dashboard/), what is shown
(control/fleet.py).
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
from jackline.control.http_handler import HttpHandler, ServiceRequest
from jackline.hooks.endpoint import HOOK, PROCESSES
from jackline.hooks.hook_input import HookInput, parse_hook_input
from jackline.telemetry.client_telemetry import SUB_AGENT, ClientEvent, ClientReports

_LOOK_EVERY = 2.0
_MOST_SESSIONS = 2000
# So many are looked at in one round: a system without /proc starts a program for each.
_AT_A_TIME = 50
# By what a client may have called its hook.
_SHELLS = frozenset(("sh", "dash", "bash", "zsh", "ash", "ksh", "fish", "busybox"))
# A hook, and the shell that a client may have called it by, are over after so long.
_HOOK_OVER = 6.0


@dataclass(slots=True)
class _Lived:
    """The processes above a session's hook, the nearest first, and when it came."""

    marks: list[ProcessMark]
    heard_at: float
    client: ProcessMark | None = None
    """Which of them is the client, once that is known."""

    def has_ended(self, now: float) -> bool:
        """Whether the client is gone, or all that it can be."""
        if self.client is not None:
            return not is_alive(self.client)
        alive = [mark for mark in self.marks if is_alive(mark)]
        if alive and now - self.heard_at > _HOOK_OVER:
            self.client = alive[0]
        return not alive


class AgentEndTracker:
    """What is known of ends; `watch` must run for as long as the service does."""

    def __init__(
        self, fleet: Callable[[], Fleet], clock: Clock, name: Callable[[int], str] | None = None
    ) -> None:
        """`name` tells what a process is called, empty where the system does not say."""
        self._fleet = fleet
        self._clock = clock
        self._name = name or program_name
        self._lived: OrderedDict[str, _Lived] = OrderedDict()
        self._work: set[asyncio.Task[None]] = set()

    def hook(self, told: HookInput, processes: Sequence[int]) -> None:
        """A trusted hook: it tells whose result a parent has, and where its session lives."""
        if not told.session_id:
            return
        is_return = told.hook_event_name == "PostToolUse"
        ended = [told.returned_agent] if is_return else told.notified_agents
        for each in ended:
            if each is not None:
                self.agent_ended(told.session_id, each.agent)
        known = self._lived.get(told.session_id)
        if known is None or known.client is None or known.client.pid not in processes:
            task = asyncio.get_running_loop().create_task(self._meet(told.session_id, processes))
            self._work.add(task)
            task.add_done_callback(self._work.discard)

    def agent_ended(self, session: str, agent: str) -> None:
        """A sub-agent has ended, by the word of its client."""
        self._fleet().ended(session, agent, self._clock.wall())

    async def watch(self) -> None:
        """Look whether the processes of sessions still run, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        """Look at some of them: those first that were not looked at for longest."""
        some = list(islice(self._lived.items(), _AT_A_TIME))
        now = self._clock.monotonic()
        for session, lived in some:
            ended = await asyncio.to_thread(lived.has_ended, now)
            if self._lived.get(session) is not lived:
                continue  # a newer hook has come meanwhile
            self._lived.move_to_end(session)
            if ended:
                del self._lived[session]
                self._fleet().ended(session, None, self._clock.wall())

    async def _meet(self, session: str, processes: Sequence[int]) -> None:
        """Know them again by their beginnings, while the hook waits for its answer."""
        found = await asyncio.to_thread(self._find, processes)
        if found is not None:
            self._lived[session] = found
            self._lived.move_to_end(session)
        while len(self._lived) > _MOST_SESSIONS:
            self._lived.popitem(last=False)

    def _find(self, processes: Sequence[int]) -> _Lived | None:
        marks = [mark_of(pid) for pid in processes]
        # One that is none of this system's (a container has numbers of its own) tells nothing.
        found = [mark for mark in marks if mark.began]
        if not found:
            return None
        names = [self._name(mark.pid) for mark in found]
        # The nearest that is no shell has called the hook, unless a nearer one is unknown.
        called = next((i for i, name in enumerate(names) if name not in _SHELLS), None)
        if called is None:
            return None
        return _Lived(found, self._clock.monotonic(), found[called] if names[called] else None)


def program_name(pid: int) -> str:
    """What a process is called; empty where the system does not say."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""  # gone, or no such system


class EndTrackingHooks:
    """The face of hooks, with somebody who listens to what the trusted ones tell."""

    def __init__(
        self, face: HttpHandler, trusts: Callable[[ServiceRequest], bool], ends: AgentEndTracker
    ) -> None:
        self._face = face
        self._trusts = trusts
        self._ends = ends

    def knows(self, asked: ServiceRequest) -> bool:
        """Whether this is a hook's or a status line's question."""
        return self._face.knows(asked)

    def answer(self, asked: ServiceRequest) -> None:
        """Listen, then let it be answered."""
        if asked.path == HOOK and self._trusts(asked):
            told = parse_hook_input(bytes(asked.body))
            if told is not None:
                self._ends.hook(told, _numbers(asked.header(PROCESSES)))
        self._face.answer(asked)


def _numbers(header: bytes | None) -> list[int]:
    return [int(each) for each in (header or b"").split(b",") if each.isdigit() and len(each) < 10]


class EndTrackingClients(ClientReports):
    """What clients tell of their agents, with somebody who listens for ends."""

    def __init__(self, ended: Callable[[str, str], None]) -> None:
        super().__init__()
        self._ended = ended

    def add(self, event: ClientEvent) -> None:
        """Take in one thing that a client told."""
        super().add(event)
        if event.what == SUB_AGENT and event.agent:
            self._ended(event.session, event.agent)
