"""Play one policy against the provider on a virtual clock, and count what comes of it.

Rules: (1) one heap, ties in the order of arrival: the same seed gives the same run; (2) a surfaced
failure kills the agent and a person restarts it 900 s later; (3) useful is the work, wasted is
every other request sent.
Not here: which call is sent when (policies), what the provider does (jackline.simulator).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from jackline.simulator.exchange import (
    Accepted,
    Bytes,
    Completed,
    ProviderEvent,
    Rejected,
)
from jackline.simulator.provider import ProviderModel
from jackline.simulator.vendor_facts import reads_count
from lanes_bench.cached_fleet import CachedStep
from lanes_bench.crew import Call, Crew
from lanes_bench.policy import Attempt, Desk, Ill, Policy, Trouble
from lanes_bench.scenarios import Scenario
from lanes_bench.upstreams import request_for
from lanes_bench.workload import Fleet

RESTART_AFTER = 900.0
PolicyMaker = Callable[[Desk, random.Random], Policy]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run is cut off: virtual seconds and events on the wire."""

    seconds: float
    sends: int


class Stage:
    """The run of one policy; it is the policy's `Desk`."""

    def __init__(
        self, fleet: Fleet, scenario: Scenario, upstreams: list[ProviderModel], limits: Limits
    ) -> None:
        self.now = 0.0
        self.lanes = len(upstreams)
        self.reads_count = [reads_count("anthropic", lane.model) for lane in scenario.lanes]
        self.crew = Crew(fleet)
        self.sent = 0
        self.answered = 0
        self.surfaced = 0
        self.stuck = False
        # For each call that was sent again: when it was sent before, and when again.
        self.sent_again: list[tuple[float, float]] = []
        self._sent_at: dict[int, float] = {}
        self.latencies: list[float] = []
        self.longest_wait = 0.0
        # Answers whose conversation was in the prompt cache up to the call before.
        self.hits = 0
        self._scenario = scenario
        self._upstreams = upstreams
        self._limits = limits
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = 0
        self._open: list[dict[int, Attempt]] = [{} for _ in upstreams]
        self._policy: Policy | None = None

    def play(self, make: PolicyMaker, seed: int) -> None:
        """Run until all work is done or a limit is met."""
        draw = random.Random(f"policy {seed}")  # noqa: S311 - a simulation, not a secret
        self._policy = policy = make(self, draw)
        for call in self.crew.start():
            self._later(call, policy)
        while self.crew.unfinished and self.sent < self._limits.sends:
            if not self._step(policy):
                return

    def send(self, call: Call, lane: int = 0, ticket: object = None) -> Attempt:
        """Put the call on the wire."""
        self.sent += 1
        before = self._sent_at.get(call.id)
        if before is not None:
            self.sent_again.append((before, self.now))
        self._sent_at[call.id] = self.now
        delay = self._scenario.lanes[lane].delay(self.now, call.plan)
        request = request_for(self._scenario.lanes[lane], call.plan, delay)
        identity = self._upstreams[lane].arrive(self.now, request)
        attempt = Attempt(identity, call, lane, self.now, self.now, ticket=ticket)
        self._open[lane][identity] = attempt
        if self._policy is not None and self._policy.idle_limit is not None:
            self._watch(attempt, self._policy.idle_limit)
        return attempt

    def cancel(self, attempt: Attempt) -> None:
        """Hang up; no report follows."""
        attempt.over = True
        if self._open[attempt.lane].pop(attempt.id, None) is not None:
            self._upstreams[attempt.lane].cancel(self.now, attempt.id)

    def give_up(self, call: Call) -> None:
        """The agent dies; a person restarts it later, or lets a conversation go on."""
        self.surfaced += 1
        if self._policy is not None:
            begin = self.crew.resume if isinstance(call.plan, CachedStep) else self.crew.restart
            self._later(begin(call.agent, self.now + RESTART_AFTER), self._policy)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self._ticket += 1
        heapq.heappush(self._timers, (max(when, self.now), self._ticket, do))

    def _later(self, call: Call, policy: Policy) -> None:
        self.at(call.ready_at, lambda: policy.ready(call))

    def _step(self, policy: Policy) -> bool:
        when = self._timers[0][0] if self._timers else float("inf")
        first: ProviderModel | None = None
        lane = -1
        for index, upstream in enumerate(self._upstreams):
            due = upstream.next_at()
            if due is not None and due <= when:
                when, first, lane = due, upstream, index
        if when > self._limits.seconds:
            # Nothing will ever happen again: a policy that forgot to be woken.
            self.stuck = when == float("inf")
            return False
        self.now = max(self.now, when)
        if first is None:
            heapq.heappop(self._timers)[2]()
            return True
        for event in first.advance(self.now):
            attempt = self._open[lane].get(event.id)
            if attempt is not None:
                self._tell(policy, attempt, event)
        return True

    def _tell(self, policy: Policy, attempt: Attempt, event: ProviderEvent) -> None:
        attempt.received_at = self.now
        if isinstance(event, Bytes):
            policy.received(attempt)
        elif isinstance(event, Accepted):
            attempt.accepted = True
            attempt.hit = self._upstreams[attempt.lane].hit(attempt.id)
            waited = attempt.sent_at - attempt.call.ready_at
            self.longest_wait = max(self.longest_wait, waited)
            policy.first_byte(attempt, event.headers)
        elif isinstance(event, Completed):
            self._close(attempt)
            self._complete(policy, attempt, event.output_tokens)
        elif isinstance(event, Rejected):
            self._close(attempt)
            policy.troubled(attempt, Trouble(Ill.REFUSED, event.status, event.headers, event.body))
        else:
            self._close(attempt)
            policy.troubled(attempt, Trouble(Ill.BROKEN, body=event.body, how=event.how))

    def _close(self, attempt: Attempt) -> None:
        attempt.over = True
        del self._open[attempt.lane][attempt.id]

    def _complete(self, policy: Policy, attempt: Attempt, output_tokens: int) -> None:
        self.answered += 1
        self.latencies.append(self.now - attempt.call.ready_at)
        plan = attempt.call.plan
        if isinstance(plan, CachedStep) and attempt.hit is not None:
            self.hits += 0 < plan.earlier <= attempt.hit.read
        following = self.crew.advance(self.now, attempt.call.agent)
        policy.answered(attempt, output_tokens)
        for call in following:
            self._later(call, policy)

    def _watch(self, attempt: Attempt, limit: float) -> None:
        self.at(attempt.received_at + limit, lambda: self._silence(attempt, limit))

    def _silence(self, attempt: Attempt, limit: float) -> None:
        if attempt.over or self._policy is None:
            return
        if self.now < attempt.received_at + limit - 1e-6:
            self._watch(attempt, limit)
            return
        self.cancel(attempt)
        self._policy.troubled(attempt, Trouble(Ill.SILENT))
