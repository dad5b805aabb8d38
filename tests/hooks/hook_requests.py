"""The endpoint of hooks in virtual time, and requests to it that record their answer.

Rules: (1) nothing is faked but the socket: the endpoint is the real one; (2) time passes only when
a test advances it.
Not here: assertions.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from jackline.clock import VirtualClock
from jackline.control.fleet import Fleet
from jackline.control.http_handler import ServiceRequest
from jackline.events import AttemptFailed, CallEnded
from jackline.hooks.agent_deaths import LatestCalls, StoppedSession
from jackline.hooks.agent_ends import AgentEndTracker
from jackline.hooks.endpoint import HooksEndpoint
from jackline.lane_id import LaneId

# Real seconds; only a test that fails ever waits so long.
PATIENCE = 60.0
OPUS = LaneId("anthropic", "opus", "acc")
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WALL = "You've hit your session limit · resets 3pm (UTC)"
TOKEN = "of-the-plugin"  # noqa: S105 -- a test's


class Question:
    """A request to the endpoint, and its answer."""

    def __init__(self, path: bytes, hook: object, **headers: str) -> None:
        self.method, self.path, self.query = b"POST", path, b""
        self.headers: list[tuple[bytes, bytes]] = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        self.body: bytes | bytearray = json.dumps(hook).encode()
        self.gone, self.paused = False, False
        self.on_gone: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.answer: tuple[int, bytes] | None = None

    def header(self, lowercase_name: bytes) -> bytes | None:
        return dict(self.headers).get(lowercase_name)

    def respond(
        self,
        status: int,
        headers: object = (),  # noqa: ARG002
        body: bytes = b"",
        notes: bytes = b"",  # noqa: ARG002
    ) -> None:
        self.answer = (status, body)

    def begin(self, status: int, headers: object = (), notes: bytes = b"") -> None: ...
    def send(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def reset(self) -> None: ...


class World:
    """A service's hooks, as far as a client can tell."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.calls = LatestCalls(self.clock)
        self.stopped: list[StoppedSession] = []
        self.endpoint = HooksEndpoint(
            self.clock,
            _has_control_token,
            lambda session: f"line of {session}",
            self.stopped.append,
            self.calls,
            TOKEN,
            AgentEndTracker(Fleet, self.clock),
        )

    async def hook(self, event: str, *, trusted: bool = True, **fields: object) -> dict[str, Any]:
        """What a hook of session s1 is answered."""
        headers = {"x_jackline_control": "t"} if trusted else {}
        sent = {"hook_event_name": event, "session_id": "s1", "cwd": "/work", **fields}
        question = Question(b"/_jackline/hook", sent, **headers, x_jackline_processes="41,40")
        self.endpoint.answer(question)
        deadline = time.monotonic() + PATIENCE
        while question.answer is None and time.monotonic() < deadline:
            # Files are read in threads, which know no virtual time: it passes for sleepers alone.
            await asyncio.sleep(0.0005)
            if self.clock._sleepers:
                await self.clock.advance(0.05)
        assert question.answer is not None, "a hook must be answered"
        status, body = question.answer
        assert status == 200
        return dict(json.loads(body)) if body else {}

    def call(self, outcome: str, *, agent: str | None = "a1", **facts: Any) -> None:
        """A call of session s1 has ended."""
        self.calls.on_event(ended(outcome, at=self.clock.wall(), agent=agent, **facts))

    def wall(self, call: str = "c1", lane: LaneId = OPUS) -> None:
        """An attempt has met a wall that falls at 15:00."""
        resets = NOON.replace(hour=15).timestamp()
        self.calls.on_event(
            AttemptFailed(
                *(self.clock.wall(), call, lane, "account_quota", "session", 429, None),
                *(0.1, resets, "a wall"),
            )
        )


def _has_control_token(request: ServiceRequest) -> bool:
    return request.header(b"x-jackline-control") == b"t"


def ended(outcome: str, *, at: float, agent: str | None, **facts: Any) -> CallEnded:
    """The end of a call, ordinary except for these facts."""
    usual: Mapping[str, Any] = {
        "call": "c1",
        "lane": OPUS,
        "model": "opus",
        "session": "s1",
        "parent": None,
        "tag": None,
        "stream": True,
        "status": 200 if outcome == "answered" else 429,
        "attempts": 1,
        "waited": 0.0,
        "took": 1.0,
        "request_id": None,
        "input_tokens": 1,
        "output_tokens": 1,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }
    return CallEnded(at=at, outcome=outcome, agent=agent, **{**usual, **facts})
