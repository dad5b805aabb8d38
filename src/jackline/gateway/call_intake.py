"""Submit calls: parse the request, recognise the client, choose lanes, look after waiting calls.

Rules: (1) a body is parsed as little as its lane needs, and forwarded as the bytes that came; (2)
every call that was submitted ends in exactly one `CallEnded`; (3) one timer for all waiting calls,
and each call decides what is done for it; (4) a wall clock that was set, or a machine that slept,
is noticed here at the latest.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from jackline.agents.runner import TOOLS_HEADER
from jackline.agents.task_meter import TaskMeters
from jackline.calls import (
    CallManager,
    CallRefusal,
    CallRequest,
    Cap,
    Dialect,
    HoldLimits,
    Mode,
    PendingCall,
    takes_prefill,
)
from jackline.clock import Clock
from jackline.dialects import RequestFacts, TokenUsage, read_request
from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values
from jackline.dialects.request_facts import read_openai_request
from jackline.events import Announce, CallEnded
from jackline.gateway.caller import (
    NO_PREFIX,
    GatewayCaller,
    Identity,
    Prefix,
    TaskIn,
    Who,
    begins_conversation,
    caller_of,
    conversation_of,
    credential_of,
    identify,
    no_task,
    openai_caller,
    prefix_of,
)
from jackline.gateway.client_call import ANSWERED, CallCounts, ClientCall
from jackline.gateway.client_retries import ClientRetries, OpenCalls
from jackline.gateway.connection import Exchange
from jackline.gateway.lane_registry import LaneRegistry, TooManyLanesError
from jackline.gateway.own_answers import (
    RefusalAnswer,
    gateway_refusal,
    note_lines,
    request_id,
    vendor_refusal,
)
from jackline.gateway.placement import ModelSubstitution, Placement, RouteChooser, upstream_for
from jackline.gateway.settings import CapSettings, GatewaySettings, StreamMode
from jackline.gateway.vendor_limits import LimitReading
from jackline.lane_id import LaneId
from jackline.lanes import Call, RemainingWork
from jackline.outside_names import cut_name, problem_of_model
from jackline.providers.settings import Credential
from jackline.upstream.interface import UpstreamRequest

EVERY = 1.0
_log = logging.getLogger(__name__)
NativeError: TypeAlias = Callable[[LaneId, int, bytes], bytes]
# A side call is no agent's turn: its client does better with the vendor's error than with waiting.
_SIDE_CALL_HOLD = HoldLimits(quota=0.0, other=30.0)
# The agent that a session's own calls belong to.
_MAIN = ""
_JUDGED = "judged"
# The paths of vendors' APIs. On another path a vendor may answer before it checks the key, or read
# another one than the one that is checked here.
_API_PATHS = frozenset(
    (
        b"/v1/messages",
        b"/v1/messages/count_tokens",
        b"/v1/models",
        b"/v1/chat/completions",
        b"/chat/completions",
        b"/v1/responses",
        b"/responses",
    )
)
_ONLY_WITH_OWN_CREDENTIAL = (
    "Jackline: behind an upstream that gets the client's own credential, the key of another one"
    " serves model calls only. Call the vendor itself for its list of models, or put that upstream"
    " first."
)
_ONLY_EXACT_PATHS = (
    "Jackline: an upstream's own key is sent to the exact paths of its API alone, such as"
    " /v1/messages. Put a prefix into the upstream's url instead of the client's base URL."
)
_UNREAD = RequestFacts(None, False, 0, 0)
_TRACEPARENT = b"traceparent"
_TOOLS = TOOLS_HEADER.encode()


# Call ids are unique over restarts by their first part, and cheap by their second.
_THIS_PROCESS = f"jl_{secrets.token_hex(4)}"
_numbers = count(1)


def new_call_id() -> str:
    """A name for a call that no other call has."""
    return f"{_THIS_PROCESS}{next(_numbers):06x}"


def _as_it_came(_lane: LaneId, _status: int, body: bytes) -> bytes:
    return body


class CallIntake:
    """Where messages calls begin and end."""

    def __init__(
        self,
        settings: GatewaySettings,
        carrier: CallManager,
        lanes: LaneRegistry,
        clock: Clock,
        announce: Announce,
        ticks: Callable[[], float],
        native_error: NativeError = _as_it_came,
    ) -> None:
        self.chooser = RouteChooser()
        self.use(settings)
        self.carrier = carrier
        self.counts = CallCounts()
        self._clock = clock
        # The time that calls are measured in, which is never set; that of reports; and that of
        # `Exchange.last_write`.
        self.now = clock.steady
        self.wall = clock.wall
        self.ticks = ticks
        self._native_error = native_error
        self._lanes = lanes
        self._announce = announce
        self._returning = ClientRetries()
        self._work = RemainingWork()
        self.task_meters = TaskMeters()
        self.task_in: TaskIn = no_task
        self._placing = Placement(self.chooser, lanes, carrier.controller)
        self._open: dict[str, ClientCall] = {}
        self._turns = OpenCalls()
        # Of the bodies of all open calls, and of those that are being unpacked.
        self.held_bytes = 0
        lanes.close_idle = carrier.close_idle_lanes
        lanes.close_unproven = carrier.close_unproven_lanes

    def use(self, settings: GatewaySettings) -> None:
        """Take calls in by these settings from now on."""
        self.settings = settings
        self.chooser.use(settings.upstreams, settings.never_degrade)
        hold = settings.hold
        self._until_reset = HoldLimits(math.inf, hold.other)
        usual = HoldLimits(hold.quota, hold.other)
        self._usual_hold = self._until_reset if hold.until_reset else usual
        self._capped = settings.caps != CapSettings()
        # Else it depends on the client.
        self._mode_for_all: Mode | None = None
        if settings.stream is StreamMode.LIVE:
            self._mode_for_all = "live"
        elif settings.stream is StreamMode.BLOCK:
            self._mode_for_all = "block"

    @property
    def limit_readings(self) -> Mapping[str, LimitReading]:
        """What vendors' APIs reported of limits, by upstream."""
        return self._lanes.readings

    @property
    def substitutions(self) -> list[ModelSubstitution]:
        """Which models were answered by others lately."""
        return self._placing.substitutions(self.now())

    @property
    def calls(self) -> list[ClientCall]:
        """Every call under way."""
        return list(self._open.values())

    def take(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a model call; `readable` is its body, decompressed, or None if that failed."""
        caller = caller_of(exchange, tag, self.task_in)
        identity, who, body = caller.identity, caller.who, exchange.body
        if readable is not None and has_too_many_values(readable):
            self._turn_away(exchange, _too_many_values(), identity, _UNREAD, new_call_id())
            return
        facts = _UNREAD if readable is None else read_request(readable)
        now = self._clock.steady()
        call_id, since = new_call_id(), None
        if who is not None:
            # Whoever joins a call needs no room: it is looked for before there is any.
            waiting = self._turns.waiting(who, exchange)
            if waiting is not None:
                waiting.join(exchange)
                self.counts.joined += 1
                return
            fate = self._returning.fate(who, caller.credential, body, now)
            if fate is not None:
                refusal = vendor_refusal(self.in_native_words(fate), self.wall())
                self._turn_away(exchange, refusal, identity, facts, call_id)
                return
            place = self._returning.place(who, caller.credential, body, now)
            if place is not None:
                call_id, since = place.call, place.since
        elif self._returning.knows_unnamed:
            call_id, since = self._unnamed_place(caller, body, call_id, now)
        no = self._refused_at_once(facts, body)
        if no is not None:
            self._turn_away(exchange, no, identity, facts, call_id)
            return
        model = facts.model or "unknown-model"
        lanes, last_resorts, own_key, unproven = self._placing.places(
            model, caller, body, now, is_api_path=_is_api_path(target)
        )
        if not lanes:
            self._turn_away(exchange, _no_lane(target), identity, facts, call_id)
            return
        conversation, prefix, begins = self._cached_parts(who, readable, lanes, now)
        cache, its_upstream = self.settings.cache, self._lanes.upstream(lanes[0])
        # By position, in the order of its fields: every call is made here.
        request = CallRequest(
            call_id,
            _message(exchange, target, caller, readable),
            Call(
                0,
                lanes,
                0.0 if who is None else self._work.asks(now, who[0], who[1] or _MAIN),
                facts.input_tokens,
                facts.max_tokens,
                facts.stream,
                since,
                conversation,
                prefix.name,
                prefix.tokens,
                begins,
                # What is configured of prompt caches for its tag or class; None if nothing is.
                (cache.tags.get(identity.tag or "") or cache.classes.get(identity.class_ or ""))
                if conversation
                else None,
                caller.bearer
                and its_upstream is not None
                and its_upstream.credential is Credential.PASS_THROUGH,
            ),
            last_resorts,
            self._mode_for_all or ("live" if identity.is_watched else "block"),
            "anthropic",
            takes_prefill(model),
            self._until_reset if caller.afk else self._usual_hold,
            self._caps(identity) if self._capped else (),
            own_key,
            unproven,
        )
        call = ClientCall(self, exchange, identity, facts.model or "", request, now)
        if who is not None:
            self._turns.add(who, exchange, call)
        self._submit(call)

    def _cached_parts(
        self, who: Who | None, body: bytes | bytearray | None, lanes: tuple[LaneId, ...], now: float
    ) -> tuple[str, Prefix, bool]:
        """What prompt caches may hold of a call, and whether it begins its conversation.

        Its prefix is looked for only where its own cache is cold.
        """
        if body is None:
            return "", NO_PREFIX, False
        conversation = conversation_of(who, body)
        if not conversation:
            return "", NO_PREFIX, False
        begins = begins_conversation(body)
        known = self.carrier.controller.lanes[lanes[0]].caches.conversations.get(conversation)
        is_warm = known is not None and now < known.until and not begins
        return conversation, NO_PREFIX if is_warm else prefix_of(body), begins

    def _refused_at_once(
        self, facts: RequestFacts, body: bytes | bytearray
    ) -> RefusalAnswer | None:
        """Why a call is refused, whoever sends it."""
        problem = None if facts.model is None else problem_of_model(facts.model)
        if problem is not None:
            return gateway_refusal(400, f"Jackline: {problem}.")
        return self.busy(body)

    def _has_room(self, size: int, own: int) -> bool:
        held = self.held_bytes
        return held == own or held + size <= self.settings.limits.held_bodies

    def take_room(self, size: int, own: int = 0) -> bool:
        """Count so many bytes more as held, if there is room; `own` are held for the same body.

        One that comes alone is held, however large it is.
        """
        has_room = self._has_room(size, own)
        if has_room:
            self.held_bytes += size
        return has_room

    def no_room(self) -> RefusalAnswer:
        """The answer where there is no room for a body."""
        return _retry_later("the calls under way hold as much as limits.held_bodies allows")

    def hold_more(self, size: int) -> None:
        """Count so many bytes more as held, or less."""
        self.held_bytes += size

    def busy(self, body: bytes | bytearray) -> RefusalAnswer | None:
        """Why a call is refused, whatever it is: too many wait, or too much is held."""
        limits = self.settings.limits
        # Those that wait are some of those that are open.
        most = limits.waiting_calls
        if len(self._open) >= most and self.carrier.calls_waiting >= most:
            return _retry_later(
                f"{most} calls wait already, as many as limits.waiting_calls allows"
            )
        return None if self._has_room(len(body), 0) else self.no_room()

    def take_foreign(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        dialect: Dialect,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a model call of a client that speaks one of OpenAI's dialects."""
        caller = openai_caller(exchange, tag, self.task_in)
        call_id, now = new_call_id(), self.now()
        if readable is not None and has_too_many_values(readable):
            self._turn_away(exchange, _too_many_values(), caller.identity, _UNREAD, call_id)
            return
        facts = _UNREAD if readable is None else read_openai_request(readable)
        model, body, since = facts.model or "unknown-model", exchange.body, None
        if self._returning.knows_unnamed:
            call_id, since = self._unnamed_place(caller, body, call_id, now)
        no = self._refused_at_once(facts, body)
        if no is not None:
            self._turn_away(exchange, no, caller.identity, facts, call_id)
            return
        lanes, last_resorts, own_key, unproven = self._placing.places(
            model, caller, body, now, dialect, is_api_path=_is_api_path(target)
        )
        if not lanes:
            no = _no_lane(target)
            if not self.chooser.routes(model, caller.identity, now, dialect):
                no = gateway_refusal(
                    404,
                    f"Jackline: no upstream of kind {dialect} is configured. Add one: jackline"
                    f" upstream add NAME --kind {dialect} …",
                )
            self._turn_away(exchange, no, caller.identity, facts, call_id)
            return
        mode = self.settings.stream
        # Users of these clients mostly watch them, and they retry by themselves. An unattended
        # Codex would add the half of a cut answer to its conversation.
        client = caller.identity.client
        blocks = client.codex and client.headless and mode is not StreamMode.LIVE
        request = CallRequest(
            call_id,
            _message(exchange, target, caller, readable),
            Call(0, lanes, 0.0, facts.input_tokens, facts.max_tokens, facts.stream, since),
            last_resorts=last_resorts,
            mode="block" if blocks or mode is StreamMode.BLOCK else "live",
            dialect=dialect,
            hold=self._until_reset if caller.afk else self._usual_hold,
            caps=self._caps(caller.identity) if self._capped else (),
            own_key=own_key,
            unproven=unproven,
        )
        call = ClientCall(self, exchange, caller.identity, facts.model or "", request, now)
        self._submit(call)

    def take_side_call(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        name: str,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a call that is no turn of an agent: counting tokens, listing models."""
        now = self.now()
        caller = caller_of(exchange, tag, self.task_in)
        if readable is not None and has_too_many_values(readable):
            no: RefusalAnswer | None = _too_many_values()
        else:
            no = self._refused_at_once(_UNREAD, exchange.body)
        if no is not None:
            self._turn_away(exchange, no, caller.identity, _UNREAD, new_call_id())
            return
        upstream = upstream_for(exchange, self.settings.upstreams)
        is_api_path = _is_api_path(target)
        if not self._placing.may_send_side_call(
            upstream, self.settings.upstreams, caller.credential, is_api_path=is_api_path
        ):
            words = _ONLY_WITH_OWN_CREDENTIAL if is_api_path else _ONLY_EXACT_PATHS
            no = gateway_refusal(403, words)
            self._turn_away(exchange, no, caller.identity, _UNREAD, new_call_id())
            return
        account = f"{self._lanes.account(upstream, caller, exchange.body)}-{name}"
        lane = self._lanes.lane(upstream, name, account, now)
        message = _message(exchange, target, caller, readable)
        call_id = new_call_id()
        call = Call(0, (lane,), stream=False)
        request = CallRequest(call_id, message, call, hold=_SIDE_CALL_HOLD)
        self._submit(ClientCall(self, exchange, caller.identity, name, request, now))

    def _submit(self, call: ClientCall) -> None:
        self._open[call.request.id] = call
        self.held_bytes += call.held_bytes
        try:
            call.carried = self.carrier.submit(call.request, call)
        except BaseException:
            # The call manager stores nothing of it either; the router answers its client.
            call.over = True
            self._forget(call)
            raise
        if call.over:
            # It ended at once; the call manager has dropped it already.
            self._forget(call)

    def open_lane(self, name: LaneId) -> bool:
        """Open a lane that was known before a restart; whether its upstream still exists."""
        self._lanes.open(name, self.now())
        return name in self.carrier.controller.lanes

    @property
    def paused(self) -> tuple[str, ...]:
        """Upstreams and patterns of lanes that are paused by hand, with the lanes to come."""
        return self._lanes.paused

    @paused.setter
    def paused(self, names: tuple[str, ...]) -> None:
        self._lanes.paused = names

    def choose_again(self) -> None:
        """An order was made by hand: calls that wait are sent where it says."""
        now = self.now()
        for call in self.calls:
            exchange = call.asker
            if exchange is None or call.carried is None or call.request.hold is _SIDE_CALL_HOLD:
                continue
            self._choose_for(call, exchange, now)

    def reconsider(self, call: ClientCall, now: float) -> None:
        """A call has waited long where its conversation is: it may go anywhere now."""
        asker, is_turn = call.asker, call.request.hold is not _SIDE_CALL_HOLD
        if asker is not None and is_turn and len(self.settings.upstreams) > 1:
            self._choose_for(call, asker, now, sticks=False)

    def _choose_for(
        self, call: ClientCall, exchange: Exchange, now: float, *, sticks: bool = True
    ) -> None:
        dialect, tag = call.request.dialect, call.identity.tag
        native = dialect == "anthropic"
        caller = (
            caller_of(exchange, tag, self.task_in)
            if native
            else openai_caller(exchange, tag, self.task_in)
        )
        if not sticks:
            caller = caller._replace(who=None)
        body = call.request.message.body
        try:
            lanes, last, own_key, unproven = self._placing.places(
                call.model or "unknown-model",
                caller,
                body,
                now,
                dialect,
                is_api_path=_is_api_path(call.request.message.target),
            )
        except TooManyLanesError:
            return  # it stays where it waits
        if call.carried is not None and lanes:
            self.carrier.reroute(call.carried, lanes, last, own_key, unproven=unproven)

    async def look_after(self, every: float = EVERY) -> None:
        """Check all calls again and again, until cancelled."""
        clock = self._clock
        while True:
            await clock.sleep(every)
            clock.beat()
            self.carrier.follow_clock()
            now = clock.steady()
            calls = self.calls
            tasks = ((call.identity.task, call) for call in calls)
            self.task_meters.look(
                [(task, call.waiting) for task, call in tasks if task is not None], now
            )
            for call in calls:
                try:
                    call.keep_alive(now)
                except Exception as error:  # noqa: BLE001 -- the border of one call: others go on
                    _log.error("a bug in Jackline while holding a call", exc_info=error)
            self.carrier.review()

    def send_home(self) -> None:
        """The gateway stops: clients that still wait shall try again."""
        for call in self.calls:
            call.send_home()

    # --- called by calls ---

    def ended(self, call: ClientCall, event: CallEnded) -> None:
        """A call is over."""
        self._forget(call)
        self.counts.count(event)
        request, who = call.request, call.identity.who
        is_answered, now = event.outcome in ANSWERED, self.now()
        is_turn = request.hold is not _SIDE_CALL_HOLD
        if call.spent is not None and call.identity.task is not None and is_turn:
            last = call.lane.model
            for model, used in {last: TokenUsage(), **call.spent}.items():
                self.task_meters.count_call(
                    call.identity.task, model, used, answered=is_answered and model == last
                )
        carried = call.carried
        if is_turn and (request.call.login or len(self.settings.upstreams) > 1):
            # Which lane has refused the call's client, and which has answered it.
            credential = credential_of(request.message.headers)
            if carried is not None:
                self._placing.judged(carried, credential)
            if is_answered:
                spoke = carried is not None and carried.is_model_answer
                self._placing.answered(
                    event,
                    request.dialect,
                    credential,
                    now,
                    proves_credential=spoke and _is_api_path(request.message.target),
                    organization=call.organization if request.call.login else None,
                )
        elif is_turn and carried is not None:
            # Others may be added while a call waits. Once for each head that a connection sends.
            asker = call.asker
            if carried.rejected_on is not None or (asker is not None and _JUDGED not in asker.memo):
                self._judge_alone(carried, asker)
        if who is not None and is_turn:
            session, agent = who[0], who[1] or _MAIN
            if request.dialect != "anthropic":
                pass  # its agent is not known well enough there
            elif is_answered:
                self._work.answered(now, session, agent, event.took - event.waited)
            else:
                self._work.withdrawn(now, session, agent)
        self._announce(event)

    def _judge_alone(self, carried: PendingCall, asker: Exchange | None) -> None:
        """Note what the only upstream there is has shown of a call's client."""
        message = carried.request.message
        is_accepted = carried.is_model_answer and _is_api_path(message.target)
        if asker is not None and is_accepted:
            asker.memo[_JUDGED] = True
        elif asker is not None:
            asker.memo.pop(_JUDGED, None)
        self._placing.judged_alone(carried, credential_of(message.headers), is_accepted=is_accepted)

    def in_native_words(self, refusal: CallRefusal) -> CallRefusal:
        """The refusal with an error of another dialect translated to the client's."""
        theirs = refusal.rejection
        if theirs is None or theirs.lane is None:
            return refusal
        body = self._native_error(theirs.lane, theirs.status, theirs.body)
        if body is theirs.body:
            return refusal
        others = [(n, v) for n, v in theirs.headers if n.lower() != b"content-type"]
        headers = [*others, (b"content-type", b"application/json")]
        return replace(refusal, rejection=replace(theirs, body=body, headers=headers))

    def keep_place(self, call: ClientCall, now: float) -> None:
        """The client of a waiting call has gone and may come back."""
        request = call.request
        if request.hold is _SIDE_CALL_HOLD:
            return
        # In other dialects a session does not identify who tries again.
        who = call.identity.who if request.dialect == "anthropic" else None
        message = request.message
        payer = credential_of(message.headers)
        self._returning.left(who, payer, message.body, request.id, since=call.since, now=now)

    def _unnamed_place(
        self, caller: GatewayCaller, body: bytes | bytearray, call_id: str, now: float
    ) -> tuple[str, float | None]:
        """The name of a call, and when it was first sent if its client has come back for it."""
        place = self._returning.unnamed_place(caller.credential, body, now)
        return (call_id, None) if place is None else (place.call, place.since)

    def remember_fate(self, call: ClientCall, refusal: CallRefusal) -> None:
        """A call was refused when its status could no longer be sent."""
        who = call.identity.who
        if who is not None:
            message = call.request.message
            payer = credential_of(message.headers)
            self._returning.doomed(who, payer, message.body, refusal, self.now())

    def _forget(self, call: ClientCall) -> None:
        if self._open.pop(call.request.id, None) is not None:
            self.held_bytes -= call.held_bytes
        self._turns.forget(call)

    def _caps(self, identity: Identity) -> tuple[Cap, ...]:
        caps = self.settings.caps
        found: list[Cap] = []
        if caps.session is not None and identity.session is not None:
            found.append((("session", identity.session), caps.session))
        if caps.agent is not None and identity.agent is not None:
            found.append((("agent", identity.agent), caps.agent))
        if identity.tag is not None and identity.tag in caps.tags:
            found.append((("tag", identity.tag), caps.tags[identity.tag]))
        return tuple(found)

    def _turn_away(
        self,
        exchange: Exchange,
        no: RefusalAnswer,
        identity: Identity,
        facts: RequestFacts,
        call_id: str,
    ) -> None:
        """Refuse a call that is not submitted at all."""
        notes = note_lines(call_id, names_it=request_id(no.headers) is None)
        exchange.respond(no.status, no.headers, no.body, notes)
        event = CallEnded(
            at=self.wall(),
            call=call_id,
            outcome="refused",
            lane=None,
            model=cut_name(facts.model or ""),
            session=identity.session,
            agent=identity.agent,
            parent=identity.parent,
            tag=identity.tag,
            stream=facts.stream,
            status=no.status,
            attempts=0,
            waited=0.0,
            took=0.0,
            request_id=None,
            input_tokens=0,
            output_tokens=0,
            cache_read_tokens=0,
            cache_write_tokens=0,
        )
        self.counts.count(event)
        self._announce(event)


class TracedIntake(CallIntake):
    """Reports the traces of calls, too, and the tools that agents ran before them.

    It is used only while spans are sent, so that without a collector no call pays for it. Set both
    functions before the first call.
    """

    on_trace: Callable[[str, bytes], None]
    """Called with a call and the `traceparent` that it came with."""
    on_tools: Callable[[str, str, bytes], None]
    """Called with session, agent, and what the agent reports of its tools."""

    def take(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a model call."""
        tools = exchange.header(_TOOLS)
        if tools is not None:
            who = identify(exchange.header, tag)
            self.on_tools(who.session or "", who.agent or "", tools)
        super().take(exchange, target, tag, readable)

    def ended(self, call: ClientCall, event: CallEnded) -> None:
        """A call is over."""
        for name, value in call.request.message.headers:
            if name.lower() == _TRACEPARENT:
                self.on_trace(event.call, value)
                break
        super().ended(call, event)


def _message(
    exchange: Exchange, target: bytes, caller: GatewayCaller, readable: bytes | bytearray | None
) -> UpstreamRequest:
    body = exchange.body
    plain = None if readable is body else readable
    return UpstreamRequest(exchange.method, target, caller.headers, body, caller.lines, plain)


def _retry_later(words: str) -> RefusalAnswer:
    return gateway_refusal(503, f"Jackline: {words}.", [(b"retry-after", b"30")])


def _too_many_values() -> RefusalAnswer:
    words = (
        f"Jackline: the request has more than {MOST_VALUES:,} values, counted by its commas; no"
        " model reads so many. Send fewer messages, or put data into a file or an image."
    )
    return gateway_refusal(413, words)


def _is_api_path(target: bytes) -> bool:
    return target.partition(b"?")[0] in _API_PATHS


def _no_lane(target: bytes) -> RefusalAnswer:
    """Why a call may go nowhere, though its dialect is spoken."""
    if not _is_api_path(target):
        return gateway_refusal(403, _ONLY_EXACT_PATHS)
    words = (
        "Jackline: the client's own credential was refused by its vendor, so this call is not"
        " served with the key of another upstream. Log in again or give the client a valid key;"
        " accept_rejected_clients = true on an upstream serves such clients even so."
    )
    return gateway_refusal(401, words)
