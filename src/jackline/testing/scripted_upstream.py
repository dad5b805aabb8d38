"""An upstream that follows a script, on any clock and without a socket.

Rules: (1) each attempt plays the next step of its lane's script, and the last step again and
again; (2) it records every attempt; (3) the rules of upstream/interface.py hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackline.clock import Clock
from jackline.lane_id import LaneId
from jackline.upstream.interface import ResponseHandler, UpstreamRequest

STREAMED = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":100,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Hello"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
    b'"stop_sequence":null},"usage":{"output_tokens":20}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one attempt meets: a wait, then an answer, an error, a break or silence.

    A good answer comes in two halves with the same wait between them, or `between`; `cut` leaves
    out the second and breaks the connection, `truncated` ends it there cleanly. `first` is sent at
    once, before the wait.
    """

    says: bytes = STREAMED
    after: float = 1.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    breaks: OSError | None = None
    cut: int | None = None
    truncated: bool = False
    silent: bool = False
    first: bytes = b""
    between: float | None = None


@dataclass(slots=True)
class ScriptedUpstream:
    """An upstream whose lanes each follow a script; lanes without one always answer."""

    clock: Clock
    scripts: Mapping[LaneId, Sequence[Step]] = field(default_factory=dict)
    attempts: list[LaneId] = field(default_factory=list)
    messages: list[UpstreamRequest] = field(default_factory=list)
    open_now: int = 0

    def start(
        self, message: UpstreamRequest, lane: LaneId, handler: ResponseHandler
    ) -> ScriptedAttempt:
        """Begin the next step of the lane's script."""
        script = self.scripts.get(lane, (Step(),))
        step = script[min(self.attempts.count(lane), len(script) - 1)]
        self.attempts.append(lane)
        self.messages.append(message)
        return ScriptedAttempt(self, step, handler)


class ScriptedAttempt:
    """One attempt in progress."""

    def __init__(self, upstream: ScriptedUpstream, step: Step, handler: ResponseHandler) -> None:
        self._upstream = upstream
        self._step = step
        self._handler: ResponseHandler | None = handler
        self.paused = False
        upstream.open_now += 1
        self._task = asyncio.get_running_loop().create_task(self._play())

    def hang_up(self) -> None:
        """Cancel the attempt."""
        self._close()
        self._task.cancel()

    def pause(self) -> None:
        """Record that the reader is slow; the script goes on."""
        self.paused = True

    def resume(self) -> None:
        """Record that the reader has caught up."""
        self.paused = False

    def _close(self) -> None:
        if self._handler is not None:
            self._handler = None
            self._upstream.open_now -= 1

    async def _play(self) -> None:
        step, clock = self._step, self._upstream.clock
        stream_headers = {"content-type": "text/event-stream", **step.headers}
        if step.first:
            self._send(200, stream_headers, step.first)
        await clock.sleep(1_000_000 if step.silent else step.after)
        if step.breaks is not None:
            self._end(step.breaks)
        elif step.status != 200:
            self._send(step.status, step.headers, step.body)
            self._end(None)
        else:
            half = len(step.says) // 2 if step.cut is None else step.cut
            if not step.first:
                self._send(200, stream_headers, step.says[:half])
            elif self._handler is not None:
                self._handler.received(step.says[len(step.first) : half])
            await clock.sleep(step.after if step.between is None else step.between)
            if step.cut is not None:
                self._end(ConnectionResetError("connection reset by peer"))
                return
            if not step.truncated and self._handler is not None:
                self._handler.received(step.says[half:])
            self._end(None)

    def _send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        if self._handler is not None:
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            self._handler.began(status, raw)
        # The handler may have hung up meanwhile.
        if self._handler is not None and data:
            self._handler.received(data)

    def _end(self, error: OSError | None) -> None:
        handler = self._handler
        self._close()
        if handler is not None and error is None:
            handler.ended()
        elif handler is not None and error is not None:
            handler.broke(error)
