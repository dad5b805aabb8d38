"""One side of a drill at work in a thread of its own, for a browser in the test's thread.

Rules: (1) the drill as users run it, by its own clock, with its gateway at a port that is known;
(2) it stays at its end until the test has looked; (3) what is true is read in the provider's
ledger, in the journal and in the store of runs, never in what the gateway says of itself.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from jackline import event_loop
from jackline.assembly import StateDir
from jackline.drills.live_view import LiveView
from jackline.events import AttemptFailed, CallEnded
from jackline.journal import JournalReader
from tests.cli.commands import jackline
from tests.ports import free_port

PATIENCE = 120.0


@dataclass(frozen=True)
class Entry:
    """One request of the provider's ledger, its times by the drill's clock."""

    agent: str
    model: str
    outcome: str
    why: str
    arrived: float
    ended: float | None
    tokens: int
    wall: bool
    body: str


class WatchedDrill:
    """`with` begins it and lets it end."""

    def __init__(self, play: Callable[[LiveView], Awaitable[object]]) -> None:
        self._play = play
        self._enough: asyncio.Event | None = None
        self._over, self._open = threading.Event(), threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="drill")
        self.port = free_port()
        self.state = StateDir(Path())
        self.upstream = ""
        self.opened = 0
        self.ahead = 0.0
        """What the drill's time is ahead of the provider's; known once the ledger was read."""
        self._epoch = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def over(self) -> bool:
        """Whether its work is done; what is shown stays."""
        return self._over.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._open.wait(PATIENCE)
        self._raise()
        self.upstream = str(ask(self.url, "/_jackline/status")["upstream"])
        self._epoch = ask(self.upstream, "/_control/faults")["epoch"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A test that fails early has to wait for the drill, too: it has no other end.
        self._over.wait(PATIENCE)
        if self._enough is not None:
            self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join(PATIENCE)
        if kind is None:
            self._raise()

    # --- what is true ---------------------------------------------------------------------------

    def faults(self) -> list[dict[str, Any]]:
        """Those that the provider has now."""
        result: list[dict[str, Any]] = ask(self.upstream, "/_control/faults")["faults"]
        return result

    def announced(self, at: float) -> int:
        """A moment of the provider's time as the date that it tells of it."""
        return math.ceil(self._epoch + at)

    def journal(self) -> tuple[list[CallEnded], list[AttemptFailed]]:
        with JournalReader(self.state.journal) as reader:
            return reader.calls(0, 1e12, 10_000), reader.failed_attempts(0, 1e12, 10_000)

    def ledger(self) -> list[Entry]:
        """Every request that the provider got."""
        result = ask(self.upstream, "/_control/ledger")["entries"]
        ahead = self.ahead = self._ahead(result)
        return [
            Entry(
                each["agent"],
                each["model"],
                each["outcome"],
                each["why"],
                each["arrived"] + ahead,
                None if each["ended"] is None else each["ended"] + ahead,
                each["input_tokens"] + each["output_tokens"],
                each["wall"],
                each["body_hash"],
            )
            for each in result
        ]

    def top(self) -> dict[str, Any]:
        """What `jackline status --watch --json` prints."""
        answer = jackline("status", "--watch", "--json", "--state", self.state.folder)
        assert answer.code == 0, answer.err
        result: dict[str, Any] = json.loads(answer.out)
        return result

    def _ahead(self, result: list[dict[str, Any]]) -> float:
        """No call ends before its last request has: whichever ended soonest after it tells."""
        calls, _ = self.journal()
        ends: dict[str, dict[str, float]] = {}
        for each in result:
            if each["outcome"] == "completed":
                # A request that was given up may be answered all the same: the last one counts.
                ends.setdefault(each["agent"], {})[each["body_hash"]] = each["ended"]
        late: list[float] = []
        for agent, by_body in ends.items():
            answered = sorted(c.at for c in calls if c.agent == agent and c.outcome == "answered")
            late += [at - end for at, end in zip(answered, sorted(by_body.values()), strict=False)]
        return min(late)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            event_loop.run(self._work())
        except BaseException as error:
            self._failed = error
            self._open.set()
            self._over.set()
            raise

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = asyncio.Event()
        lookout = _Announcing(self._told_open)
        lookout.port, lookout.until = self.port, self._until
        await self._play(lookout)

    def _told_open(self, state: Path) -> None:
        self.state = StateDir(state)
        self.opened += 1
        self._open.set()

    async def _until(self) -> None:
        self._over.set()
        if self._enough is not None:
            await self._enough.wait()

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed


class _Announcing(LiveView):
    """Reports to a test, rather than to a person, that a gateway is open."""

    def __init__(self, result: Callable[[Path], None]) -> None:
        super().__init__()
        self._told = result

    def opened(self, _url: str, state: Path) -> None:
        self._told(state)


def ask(url: str, path: str) -> dict[str, Any]:
    place = urlsplit(url)
    line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    try:
        line.request("GET", path)
        result: dict[str, Any] = json.load(line.getresponse())
        return result
    finally:
        line.close()
