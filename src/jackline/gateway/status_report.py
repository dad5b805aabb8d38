"""Collect the service's status, and the facts of its page, from the parts of the running service.

Rules: (1) looking changes nothing; (2) the verdict is made here once, for every interface; (3) no
prompt, answer, key or token: an account is shown by its salted fingerprint, a lane by its public
name; (4) long lists are cut, with their true length beside them, and waiting calls are in the order
in which they would be sent; (5) lanes on which nothing is cached cost nothing. The sentences are
made in control/.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from jackline import __version__
from jackline.clock import Clock
from jackline.control import CallStatus, GatewayStatus, LaneStatus, LimitStatus
from jackline.control.board import Facts, FlowFacts, waiting_rows
from jackline.control.fleet import LiveCall, calls_by_agent, calls_by_task, waited_for
from jackline.control.forecast import (
    CacheAdvice,
    CacheRewriteCost,
    Forecast,
    forecast_sentence,
)
from jackline.control.needs import Need, NeedFacts, find_needs
from jackline.control.observatory import Observatory
from jackline.control.status import NO_AGENTS, AgentCounts, TurnStatus
from jackline.control.stored_runs import StoredRuns
from jackline.control.text import left_text, limit_text, moment_text, whole_second
from jackline.failures.sentences import duration_in_words, zone_name
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.client_call import ClientCall
from jackline.gateway.listener import Listener
from jackline.gateway.status_pages import StatusPages
from jackline.journal import Journal, JournalHealth
from jackline.lane_id import LaneId, Payer
from jackline.lanes import Call, LimitOrigin
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.lanes.queue_positions import QueuePosition
from jackline.states import AgentState, LaneState

STATUS = b"/_jackline/status"
_MOST_CALLS = 200
_ANY_CALL = Call(0, ())


def picture(
    desk: CallIntake,
    health: JournalHealth,
    *,
    url: str,
    started: float,
    connections: int,
    at: datetime,
    notes: tuple[str, ...] = (),
) -> GatewayStatus:
    """The state of everything now, which is `at`, in the reader's time zone."""
    carrier, counts = desk.carrier, desk.counts
    now = desk.now()
    waiting_on: dict[LaneId, int] = {}
    calls = [call for call in desk.calls if call.carried is not None]
    waiting = [call for call in calls if call.waiting]
    for call in waiting:
        for name in () if call.carried is None else carrier.lanes_of(call.carried):
            waiting_on[name] = waiting_on.get(name, 0) + 1
    lanes = carrier.controller.lanes.values()
    # In the order in which they would be sent; those in no queue come last.
    positions = carrier.controller.turns(now, _MOST_CALLS) if waiting else ()
    turns = {turn.call: turn for turn in positions}
    queued = {number: call for call in waiting if (number := _number(call)) in turns}
    others = (call for call in waiting if _number(call) not in turns)
    listed = [
        *(queued[number] for number in turns if number in queued),
        *islice(others, _MOST_CALLS - len(queued)),
    ]
    stand_ins = [
        f"another model stood in: {one.lane} for {one.model},"
        f" {'once' if one.times == 1 else f'{one.times} times'}, last {_left(now - one.last)} ago"
        for one in desk.substitutions
    ]
    return GatewayStatus(
        at=at.timestamp(),
        version=__version__,
        url=url,
        upstream=desk.settings.upstream.url,
        started=started,
        lanes=tuple(_lane(desk, lane, waiting_on.get(lane.id, 0), now) for lane in lanes),
        waiting=tuple(_call(desk, call, at, now, turns) for call in listed),
        calls_waiting=len(waiting),
        calls_in_flight=carrier.controller.calls_in_flight,
        connections=connections,
        outcomes=dict(counts.outcomes),
        held_and_delivered=counts.held_and_delivered,
        joined=counts.joined,
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        journal_ok=health.ok,
        journal_problem=health.problem,
        journal_lost=health.dropped,
        journal_gap=health.gap,
        notes=(*notes, *filter(None, (health.notice,)), *_order_notes(desk, now), *stand_ins),
    )


def _order_notes(desk: CallIntake, now: float) -> Iterator[str]:
    """The orders by hand that are in force."""
    for order in desk.chooser.orders:
        if order.until is not None and order.until <= now:
            continue
        named = (("models", order.model), ("session", order.session), ("agent", order.agent))
        about = ", ".join(f"{what} {name}" for what, name in named if name)
        end = "until changed" if order.until is None else f"for {_left(order.until - now)}"
        yield f"by hand, {end}: {about or 'all calls'} to {order.upstream}"


def _left(seconds: float) -> str:
    return duration_in_words(timedelta(seconds=max(1, round(seconds))))


def _lane(desk: CallIntake, lane: Lane, waiting: int, now: float) -> LaneStatus:
    flows = lane.state in FLOWING and not lane.paused
    reason = None if flows else lane.waiting(_ANY_CALL, now)
    origins, reading = lane.allowance.origins, desk.limit_readings.get(lane.id.upstream)
    read_at = None if reading is None else reading.read_at
    return LaneStatus(
        name=lane.label,
        upstream=lane.id.upstream,
        state=lane.shown_state.value,
        why="" if reason is None else reason.why,
        until=None if reason is None else desk.carrier.controller.date_of(reason.until),
        in_flight=len(lane.attempts),
        window=lane.limit(now),
        waiting=waiting,
        paused=lane.paused,
        cause=None if lane.cause is None else (lane.cause.kind.value, lane.cause.sub),
        limits={name: bucket.level_at(now) / bucket.cap for name, bucket in lane.buckets.items()},
        known_limits={
            name: LimitStatus(
                bucket.cap,
                origins[name].value,
                read_at if origins[name] is LimitOrigin.VENDOR else None,
            )
            for name, bucket in lane.buckets.items()
        },
    )


def _number(call: ClientCall) -> int:
    return 0 if call.carried is None else call.carried.number


def _call(
    desk: CallIntake, call: ClientCall, at: datetime, now: float, turns: Mapping[int, QueuePosition]
) -> CallStatus:
    reason = None if call.carried is None else desk.carrier.waiting(call.carried)
    turn = turns.get(_number(call))
    since = at.timestamp() - (now - call.since)
    ahead = desk.carrier.controller.wall_ahead
    return CallStatus(
        call=call.request.id,
        session=call.identity.session,
        agent=call.identity.agent,
        tag=call.identity.tag,
        model=call.model,
        lane=call.lane.label,
        state="waiting",
        why="" if reason is None else reason.why,
        until=None if reason is None else reason.until,
        since=since,
        attempts=0 if call.carried is None else len(call.carried.story),
        turn=None if turn is None else TurnStatus.of(turn, ahead, since, at),
    )


# A recovering lane accepts ever more calls: who waits for it is in its queue.
_CLOSED = {
    LaneState.PARKED: AgentState.PARKED,
    LaneState.DOWN: AgentState.DOWN,
    LaneState.THROTTLED: AgentState.THROTTLED,
    LaneState.RECOVERING: AgentState.QUEUED,
}
_ANSWERS_ELSEWHERE = ("parked", "down", "recovering")
# Calls that were answered by another upstream so recently still are.
_ANSWERED_LATELY = 120.0


class LiveCalls:
    """The calls of one gateway, each described once a turn of the event loop."""

    def __init__(self, desk: CallIntake) -> None:
        self._desk = desk
        self._seen: list[LiveCall] | None = None

    def look(self) -> list[LiveCall]:
        """Every call that was submitted and has not ended."""
        if self._seen is None:
            ahead = self._desk.wall() - self._desk.now()
            under_way = [call for call in self._desk.calls if call.carried is not None]
            self._seen = [self._live(call, call.since + ahead) for call in under_way]
            asyncio.get_running_loop().call_soon(self._forget)
        return self._seen

    def _forget(self) -> None:
        self._seen = None

    def _live(self, call: ClientCall, since: float) -> LiveCall:
        who, carried, ahead = call.identity, call.carried, self._desk.wall() - self._desk.now()
        state, why, until, waited = AgentState.ANSWERING, "", None, None
        failing_since = None
        attempt = None if carried is None else carried.attempt
        name = call.lane if attempt is None else attempt.lane
        lane = self._desk.carrier.controller.lanes.get(name)
        if carried is not None and call.waiting:
            closed = None if lane is None else _CLOSED.get(lane.shown_state)
            state = self._waited_for(call) if closed is None else closed
            failing_since = since if state is AgentState.DOWN else None
            reason = self._desk.carrier.waiting(carried)
            if reason is not None:
                why = reason.why
                until = None if reason.until is None else float(whole_second(reason.until))
        elif attempt is not None and lane is not None and lane.doubts(attempt.permit):
            # It met silence: nobody answers it.
            state, why = AgentState.DOWN, lane.waiting(_ANY_CALL, self._desk.now()).why
            failing_since = since
        elif carried is not None and carried.waited >= 1.0:
            waited = (since, self._waited_for(call))
            since += carried.waited
        if (
            carried is not None
            and not carried.delivered
            and self._waited_for(call) is AgentState.DOWN
        ):
            # From its first attempt on: what fails, is tried, and fails again has not recovered.
            failing_since = carried.story[0].began + ahead
        return LiveCall(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            name,
            since,
            state,
            why,
            until,
            waited,
            who.task or "",
            failing_since,
        )

    def _waited_for(self, call: ClientCall) -> AgentState:
        story = [] if call.carried is None else call.carried.story
        failure = story[-1].failure if story else None
        return AgentState.QUEUED if failure is None else waited_for(failure.kind.value)


_TROUBLED = (LaneState.DOWN, LaneState.THROTTLED)
_FLOWS_EVERY = 2.0
# Counting takes a few microseconds an agent: of a large fleet it is done this often at most.
_FEW = 100
_AGENTS_A_SECOND = 1000.0


def in_trouble(desk: CallIntake, upstream: str) -> bool:
    """Whether a lane of this upstream is closed for a reason that its vendor may explain."""
    lanes = desk.carrier.controller.lanes.values()
    return any(e.id.upstream == upstream and e.state in _TROUBLED for e in lanes)


@dataclass(frozen=True, slots=True)
class ReportSources:
    """The parts that a status is read from; `notes` are sentences that hold until removed."""

    desk: CallIntake
    live: LiveCalls
    journal: Journal
    listener: Listener
    pages: StatusPages
    observatory: Observatory
    book: StoredRuns
    notes: Mapping[str, str]


# Lists that the page shows in another form, or not at all; the advice is among the notes.
_NOT_IN_HEAD = frozenset(("schema", "at", "lanes", "waiting", "cache_advice"))


class StatusReport:
    """The status of one service; `watch` must run for as long as it does."""

    def __init__(self, sources: ReportSources, url: Callable[[], str], clock: Clock) -> None:
        """`url` returns the base URL for clients; called when the port is known."""
        self._from = sources
        self._url = url
        self._clock = clock
        self._agent_counts = NO_AGENTS
        self._counted_at = float("-inf")
        self._started = clock.steady()

    @property
    def started(self) -> float:
        """When the service was started, by the wall clock as it is set now."""
        return self._clock.wall() - (self._clock.steady() - self._started)

    async def watch(self) -> None:
        """Read the states of runs again and again, until cancelled."""
        while True:
            await self._from.book.look()
            await self._clock.sleep(_FLOWS_EVERY)

    def status(self) -> dict[str, object]:
        """The picture of now, with its verdict and what is to be expected."""
        return self._status_at(self._clock.now())

    def _status_at(self, now: datetime) -> dict[str, object]:
        drawn = self._picture()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        agents = self._agents()
        costs = self._cache_costs(forecasts)
        forecast = forecast_sentence(forecasts, agents.present or drawn.calls_in_flight, now, costs)
        needs = self._needs(drawn, agents)
        sentence = drawn.verdict(now, agents, needs)
        advice = self._cache_advice()
        drawn = replace(drawn, notes=(*drawn.notes, *(each.sentence(now) for each in advice)))
        return {
            **drawn.to_json(f"{sentence} {forecast}" if forecast else sentence),
            "believed_at": self._from.journal.believed_at,
            "needs": [asdict(need) for need in needs],
            "upstreams": [each.url for each in self._from.desk.settings.upstreams],
            "forecast": [
                each.to_json() | {"caches": asdict(costs[each.payer])}
                if each.payer in costs
                else each.to_json()
                for each in forecasts
            ],
            "cache_advice": [each.to_json(now) for each in advice],
        }

    def line(self, _session: str) -> str:
        """The short form, for a client's status line."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        agents = self._agents()
        return drawn.status_line(forecasts, now, agents, self._needs(drawn, agents))

    def waits(self) -> dict[str, object]:
        """What the agents of flows do or wait for here, by task id; and what needs a person."""
        needs = self._needs(self._picture(), self._agents())
        return {
            "agents": {
                task: [call.state.value, call.lane.label, call.why, call.until]
                for task, call in calls_by_task(self._from.live.look()).items()
            },
            "needs": [need.text for need in needs if need.about.is_of_gateway],
        }

    def hello(self, state: Path, *, stopping: bool) -> dict[str, object]:
        """The service at this port, for whoever finds it."""
        return {
            "jackline": __version__,
            "status": f"{self._url()}/_jackline/status",
            "process": os.getpid(),
            "state": str(state.absolute()),
            "stopping": stopping,
        }

    def health(self) -> dict[str, object]:
        """It is alive."""
        return {"ok": True}

    def ready(self) -> dict[str, object]:
        """Whether it accepts calls."""
        return {"ok": not self._from.listener.draining}

    def _agents(self) -> AgentCounts:
        """The agents of now; a large fleet's of a moment ago."""
        fleet, now = self._from.observatory.fleet, self._clock.monotonic()
        size = len(fleet)
        if size <= _FEW or now - self._counted_at >= size / _AGENTS_A_SECOND:
            live, flows = self._from.live.look(), self._from.book.known
            self._agent_counts = AgentCounts.of(
                live, fleet, flows.agent_states, self._clock.wall(), flows.wait_reasons
            )
            self._counted_at = now
        return self._agent_counts

    def _needs(self, drawn: GatewayStatus, agents: AgentCounts) -> tuple[Need, ...]:
        parts = self._from
        flows = parts.book.known
        return find_needs(
            NeedFacts(
                drawn.at,
                drawn.lanes,
                flows.runs,
                flows.resources,
                parts.live.look(),
                parts.observatory.refused,
                agents.lost,
            )
        )

    def _picture(self) -> GatewayStatus:
        parts = self._from
        drawn = picture(
            parts.desk,
            parts.journal.health,
            url=self._url(),
            started=self.started,
            connections=parts.listener.connections,
            at=self._clock.now(),
            notes=(*parts.notes.values(), *self._reported()),
        )
        drawn = replace(
            drawn, calls_survived=self._survived(), answered_instead=self._answered_instead(drawn)
        )
        labels = self._from.book.known.labels
        if not labels or not drawn.waiting:
            return drawn
        named = (
            replace(call, label=str(labels.get(call.agent or "", ""))) for call in drawn.waiting
        )
        return replace(drawn, waiting=tuple(named))

    def _survived(self) -> int:
        """Of the calls that were passed on as failed: after how many their agents go on."""
        counts, states = self._from.desk.counts, self._from.book.known.agent_states
        back = calls_by_agent(self._from.live.look())
        waiting = (
            count
            for who, count in counts.failed.items()
            if who in back or states.get(who[1], AgentState.FAILED) is not AgentState.FAILED
        )
        return counts.survived + sum(waiting)

    def _answered_instead(self, drawn: GatewayStatus) -> str:
        """Which upstreams answer while the first one is closed."""
        first = self._from.desk.settings.upstreams[0].name
        closed = [
            lane.state
            for lane in drawn.lanes
            if lane.upstream == first and lane.state in _ANSWERS_ELSEWHERE
        ]
        answered, failed = self._from.observatory.answered_at, self._from.observatory.failed_at
        others = [
            each.name
            for each in self._from.desk.settings.upstreams[1:]
            if drawn.at - answered.get(each.name, float("-inf")) < _ANSWERED_LATELY
        ]
        fails = drawn.at - failed.get(first, float("-inf")) < _ANSWERED_LATELY
        if not others or not (closed or fails):
            return ""
        why = f"is {min(closed, key=_ANSWERS_ELSEWHERE.index)}" if closed else "fails"
        return f"Calls are answered by {', '.join(others)}, because {first} {why}."

    def _reported(self) -> list[str]:
        """What vendors report about the lanes that are in trouble."""
        lanes = self._from.desk.carrier.controller.lanes.values()
        places = {e.id[:2] for e in lanes if e.state is not LaneState.OPEN}
        notes = (self._from.pages.note(upstream, model) for upstream, model in sorted(places))
        return list(dict.fromkeys(note for note in notes if note))

    def facts(self, flows: FlowFacts) -> Facts:
        """All facts of now that the page shows; `flows` was read from the store of runs."""
        # One moment for all of it: what is left of a wait is the same in every sentence.
        parts, now = self._from, self._clock.now()
        status: Mapping[str, Any] = self._status_at(now)
        desk, observatory = parts.desk, parts.observatory
        ahead = desk.wall() - desk.now()
        head = {name: value for name, value in status.items() if name not in _NOT_IN_HEAD}
        return Facts(
            at=now.timestamp(),
            head=head
            | {
                "upstreams": [each.name for each in desk.settings.upstreams],
                "orders": [asdict(order.moved(ahead)) for order in desk.chooser.orders],
                "read_only": desk.settings.listen.read_only,
                "utc_offset": (now.utcoffset() or timedelta()).total_seconds(),
                "zone": zone_name(now),
                "answers": observatory.answers.rows(now.timestamp()),
            },
            lanes=dict(self._lane_rows(status, now)),
            live=parts.live.look(),
            fleet=observatory.fleet,
            burn=observatory.burn,
            today=now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp(),
            news=list(observatory.news),
            flows=flows,
            waiting=waiting_rows(status["waiting"]),
        )

    def _lane_rows(
        self, status: Mapping[str, Any], now: datetime
    ) -> Iterator[tuple[str, dict[str, object]]]:
        upstreams = {each.name: each for each in self._from.desk.settings.upstreams}
        lanes, at = self._from.desk.carrier.controller.lanes, now.timestamp()
        for (lane_id, lane), row in zip(lanes.items(), status["lanes"], strict=True):
            upstream = upstreams.get(lane_id.upstream)
            limits = {each: round(share, 2) for each, share in row["limits"].items()}
            # It is on its way back to so many calls at once.
            returns = lane.state in (LaneState.THROTTLED, LaneState.RECOVERING)
            why, until = row["why"], row["until"]
            if not why and row["waiting"] and (held := lane.held_up(self._clock.steady())):
                why = held.why
                until = self._from.desk.carrier.controller.date_of(held.until)
            yield (
                # Only a key that no other row has.
                " ".join(lane_id),
                row
                | {
                    "limits": limits,
                    "limit_text": limit_text(row, now),
                    "why": why,
                    "until": None if until is None else whole_second(until),
                    # The words of the verdict, so that a wall has one clock and one countdown.
                    "until_text": "" if until is None else moment_text(until, now),
                    "left": "" if until is None or until <= at else left_text(until, now),
                    "aim": round(lane.window.peak) if returns else 0,
                    "first_byte": round(lane.first_byte, 1),
                    "upstream": lane_id.upstream,
                    "model": lane_id.model,
                    "account": lane_id.account,
                    "sort": "" if upstream is None else upstream.kind.value,
                    "reported": self._from.pages.note(lane_id.upstream, lane_id.model) or "",
                },
            )

    def _cached_lanes(self) -> list[Lane]:
        lanes = self._from.desk.carrier.controller.lanes.values()
        return [lane for lane in lanes if lane.caches.in_use]

    def _cache_advice(self) -> list[CacheAdvice]:
        """The advice about each lane whose prompt caches need some."""
        desk, price_of = self._from.desk, self._from.observatory.price_of
        lanes = [lane for lane in self._cached_lanes() if not lane.caches.reads_count]
        # The conversations that wait, by each lane that they may go to.
        waiting: dict[LaneId, set[str]] = {}
        for call in desk.calls if lanes else ():
            conversation = call.request.call.conversation
            if call.carried is None or not call.waiting or not conversation:
                continue
            for name in desk.carrier.lanes_of(call.carried):
                waiting.setdefault(name, set()).add(conversation)
        ahead = desk.carrier.controller.wall_ahead
        found: list[CacheAdvice] = []
        for lane in lanes:
            names = waiting.get(lane.id, set())
            if not names and (lane.state in FLOWING or lane.paused):
                continue
            price = price_of(lane.id.model)
            advice = CacheAdvice.of(lane, names, price, desk.now(), wall_ahead=ahead)
            if advice is not None:
                found.append(advice)
        return found

    def _cache_costs(self, forecasts: Iterable[Forecast]) -> dict[Payer, CacheRewriteCost]:
        """What the forecast walls will cost, by account, where that matters."""
        price_of = self._from.observatory.price_of
        found: dict[Payer, CacheRewriteCost] = {}
        for each in forecasts:
            if each.ends_at is None or each.used >= 1.0:
                continue
            lanes = [lane for lane in self._cached_lanes() if lane.id.payer == each.payer]
            priced = [(lane, price_of(lane.id.model)) for lane in lanes]
            cost = CacheRewriteCost.of_wall(
                priced, self._from.desk.now(), begins=each.ends_at, ends=each.resets_at
            )
            if cost is not None:
                found[each.payer] = cost
        return found
