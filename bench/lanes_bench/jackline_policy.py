"""Put the controller under test on the stage: reports go in, sends and aborts come out.

Rules: (1) thin: nothing is decided here; (2) failures reach the controller through `classify`, as
in production; (3) what is known of the remaining work is set by the order, and by nothing else.
Not here: the controller (jackline.lanes), silence (the controller has its own patience).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum

from jackline.dialects import TokenUsage
from jackline.failures import Failure, Observation, classify
from jackline.lane_id import LaneId
from jackline.lanes import Call as LaneCall
from jackline.lanes import (
    ControllerSettings,
    LaneController,
    LaneDecision,
    LaneSettings,
    RemainingWork,
)
from jackline.simulator.time_model import DEFAULT_EPOCH
from lanes_bench.cached_fleet import PREFIX, SHARED, CachedStep
from lanes_bench.crew import Call
from lanes_bench.policy import Attempt, Desk, Ill, Policy, Trouble


class Order(Enum):
    """What the queue is told about the work behind a call."""

    NOTHING = "fifo"
    IDENTITIES = "session and agent"
    EXACT = "exact"


class Jackline(Policy):
    """The controller, told which session and which agent a call belongs to, as a gateway knows."""

    idle_limit: float | None = None
    order = Order.IDENTITIES
    knows_caches = True

    def __init__(
        self, desk: Desk, draw: random.Random, settings: ControllerSettings | None = None
    ) -> None:
        super().__init__(desk, draw)
        self._names = tuple(
            LaneId(f"lane-{index}", account=f"lane-{index}") for index in range(desk.lanes)
        )
        lanes = [
            LaneSettings(name, cached_counts=counts)
            for name, counts in zip(self._names, desk.reads_count, strict=True)
        ]
        self.controller = LaneController(lanes, draw.random, now=DEFAULT_EPOCH, settings=settings)
        self._calls: dict[int, Call] = {}
        self._attempts: dict[int, Attempt] = {}
        self._known: dict[tuple[object, ...], Failure] = {}
        self._wakes = float("inf")
        self._work = RemainingWork()

    def ready(self, call: Call) -> None:
        """Submit it."""
        self._calls[call.id] = call
        wanted = LaneCall(
            call.id,
            self._names,
            remaining=self._remaining(call),
            input_tokens=call.plan.input_tokens,
            max_tokens=8192,
            conversation="/".join(names_of(call)) if self.knows_caches else "",
            prefix=PREFIX if self.knows_caches and isinstance(call.plan, CachedStep) else "",
            prefix_tokens=SHARED,
        )
        self._obey(self.controller.submit(self._now(), wanted))

    def first_byte(self, attempt: Attempt, headers: Mapping[str, str]) -> None:
        """Report it."""
        self._obey(self.controller.first_byte(self._now(), permit_of(attempt), headers))

    def received(self, attempt: Attempt) -> None:
        """Report it."""
        decision = self.controller.received(self._now(), permit_of(attempt))
        if decision is not None:
            self._obey(decision)

    def answered(self, attempt: Attempt, output_tokens: int) -> None:
        """Report it."""
        permit = permit_of(attempt)
        self._attempts.pop(permit, None)
        self._calls.pop(attempt.call.id, None)
        session, agent = names_of(attempt.call)
        self._work.answered(self._now(), session, agent, self.desk.now - attempt.sent_at)
        usage = self._usage(attempt, output_tokens)
        self._obey(self.controller.finished(self._now(), permit, usage))

    def _usage(self, attempt: Attempt, output_tokens: int) -> TokenUsage:
        hit = attempt.hit
        if hit is None:
            return TokenUsage(attempt.call.plan.input_tokens, output_tokens)
        if not self.knows_caches:
            return TokenUsage(hit.plain + hit.written, output_tokens)
        return TokenUsage(hit.plain, output_tokens, hit.read, hit.written, hit.written_1h)

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """Classify it and report it."""
        permit = permit_of(attempt)
        self._attempts.pop(permit, None)
        failure = self._failure(trouble)
        self._obey(self.controller.failed(self._now(), permit, failure, trouble.headers))

    def _remaining(self, call: Call) -> float:
        """What the controller is told of the work behind the call, in seconds."""
        if self.order is Order.NOTHING:
            return 0.0
        if self.order is Order.EXACT:
            return call.path_left - call.plan.service
        session, agent = names_of(call)
        return self._work.asks(self._now(), session, agent)

    def _failure(self, trouble: Trouble) -> Failure:
        asked = trouble.headers.get("retry-after")
        key = (trouble.ill, trouble.status, trouble.body, trouble.how, asked)
        known = self._known.get(key)
        if known is None:
            now = datetime.fromtimestamp(self._now(), UTC)
            known = self._known[key] = classify(_observation(trouble), now=now)
        return known

    def _obey(self, decision: LaneDecision) -> None:
        ended = [each.permit for each in decision.aborts]
        for permit in (*ended, *decision.hang_ups):
            attempt = self._attempts.pop(permit, None)
            if attempt is not None:
                self.desk.cancel(attempt)
        for refusal in decision.refusals:
            self.desk.give_up(self._calls.pop(refusal.call))
        for send in decision.sends:
            call = self._calls[send.call]
            lane = self._names.index(send.lane)
            self._attempts[send.permit] = self.desk.send(call, lane, send.permit)
        if decision.wake_at is not None:
            self._wake(decision.wake_at - DEFAULT_EPOCH)

    def _wake(self, at: float) -> None:
        if at < self._wakes - 1e-4:
            self._wakes = at
            self.desk.at(at + 1e-5, lambda: self._tick(at))

    def _tick(self, at: float) -> None:
        if at == self._wakes:
            self._wakes = float("inf")
            self._obey(self.controller.tick(self._now()))

    def _now(self) -> float:
        return DEFAULT_EPOCH + self.desk.now


class JacklineFifo(Jackline):
    """The controller, told nothing about the work."""

    order = Order.NOTHING


class JacklineUncached(Jackline):
    """The controller, told nothing about prompt caches: as it was before it knew of them."""

    knows_caches = False


class JacklineExact(Jackline):
    """The controller, told the exact remaining path."""

    order = Order.EXACT


def permit_of(attempt: Attempt) -> int:
    """The permit under which the controller knows the attempt."""
    return attempt.ticket if isinstance(attempt.ticket, int) else 0


def names_of(call: Call) -> tuple[str, str]:
    """The session and the agent that the call belongs to, as a client names them."""
    return str(call.agent.plan.workflow), str(call.agent.index)


def _observation(trouble: Trouble) -> Observation:
    if trouble.ill is Ill.REFUSED and trouble.status is not None:
        return Observation.of_response(trouble.status, trouble.headers, trouble.body.encode())
    if trouble.body:
        return Observation.of_stream(f"event: error\ndata: {trouble.body}\n\n".encode())
    return Observation.of_exception(ConnectionResetError("Connection reset by peer"))
