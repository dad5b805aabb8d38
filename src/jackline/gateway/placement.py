"""Choose the lanes of a call: the fallback order of upstreams for its model and conversation.

Rules: (1) the same model elsewhere comes before another model, the cheaper of equal routes first;
another model only where the user configured it, and never for what is marked `never_degrade`; (2)
an order by hand comes first and ends at its time; nothing is chosen by the content of answers; (3)
a conversation, recognised by its credential, too, stays where it was last answered while its turn
goes on and that lane accepts calls; a recovering upstream gets no more than it can carry; (4) a key
of ours behind an upstream that gets the client's own serves nobody who has no credential, whose own
was refused, or whom that upstream has never accepted (until it is known to be down for others),
unless the user configured it; (5) what is no model call, or comes on another path than the API's
own, is sent with the client's own credential or not at all.
"""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from jackline.calls import Dialect, PendingCall
from jackline.dialects.request_facts import continues_openai_turn, continues_turn
from jackline.events import CallEnded
from jackline.gateway.caller import CallLanes, CallRoute, GatewayCaller, Identity, Who
from jackline.gateway.connection import Exchange
from jackline.gateway.lane_registry import LaneRegistry, bare_credential
from jackline.lane_id import LaneId
from jackline.lanes import LaneController
from jackline.lanes.breaker import FLOWING
from jackline.providers.credential_forms import login_vendor
from jackline.providers.settings import ANTHROPIC, OPENAI, Credential, UpstreamSettings
from jackline.states import LaneState


@dataclass(frozen=True, slots=True)
class RouteOverride:
    """An order by hand: use this upstream, for these calls, until then (as `now` is measured)."""

    upstream: str
    model: str | None = None
    session: str | None = None
    agent: str | None = None
    until: float | None = None

    def holds(self, model: str, identity: Identity, now: float) -> bool:
        """Whether it is about this call, and still in force."""
        return (
            (self.until is None or now < self.until)
            and (self.model is None or fnmatchcase(model, self.model))
            and (self.session is None or identity.session == self.session)
            and (self.agent is None or identity.agent == self.agent)
        )

    def moved(self, seconds: float) -> RouteOverride:
        """The same order with its end on a clock that is ahead by so much."""
        return self if self.until is None else replace(self, until=self.until + seconds)


# What the kinds of marks in `never_degrade` apply to.
_MARKED: Mapping[str, Callable[[Identity], str | None]] = {
    "tag": lambda identity: identity.tag,
    "agent": lambda identity: identity.agent,
    "class": lambda identity: identity.class_,
}


class _NeverDegrade(NamedTuple):
    """One entry of `never_degrade`, compiled once: every call is matched against all of them."""

    kind: str | None
    """One of `_MARKED`; None for a pattern of models."""
    fits: Callable[[str], object]

    @classmethod
    def of(cls, entry: str) -> _NeverDegrade:
        kind, found, rest = entry.partition(":")
        marks = bool(found) and kind in _MARKED
        pattern = fnmatch.translate(rest if marks else entry)
        return cls(kind if marks else None, re.compile(pattern).match)


class RouteChooser:
    """The fallback orders of the configuration in force."""

    def __init__(self) -> None:
        self._upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
        self._never: tuple[_NeverDegrade, ...] = ()
        self._routes: dict[tuple[Dialect, str], tuple[CallRoute, ...]] = {}
        self.orders: tuple[RouteOverride, ...] = ()

    def use(self, upstreams: Sequence[UpstreamSettings], never_degrade: Sequence[str] = ()) -> None:
        """Choose among these from now on; orders by hand stay."""
        self._upstreams = tuple(upstreams)
        self._never = tuple(map(_NeverDegrade.of, never_degrade))
        self._routes.clear()

    def routes(
        self, model: str, identity: Identity, now: float, dialect: Dialect = "anthropic"
    ) -> tuple[CallRoute, ...]:
        """Where the call may go, the preferred first; empty only when nobody speaks its dialect."""
        routes = self._routes.get((dialect, model)) or self._configured(model, dialect)
        if len(routes) <= 1:
            return routes
        if self._never and self._is_marked(model, identity):
            routes = tuple(route for route in routes if not route.degrades) or routes[:1]
        for order in self.orders:
            chosen = [route for route in routes if route.upstream.name == order.upstream]
            if chosen and order.holds(model, identity, now):
                others = [route for route in routes if route.upstream.name != order.upstream]
                # What was chosen by hand is no last resort, whatever model it is.
                return (*(route._replace(degrades=False) for route in chosen), *others)
        return routes

    def _configured(self, model: str, dialect: Dialect) -> tuple[CallRoute, ...]:
        known = self._routes.get((dialect, model))
        if known is not None:
            return known
        is_native = dialect == "anthropic"
        found: list[CallRoute] = []
        for upstream in self._upstreams:
            serves_claude = is_native and upstream.kind.facts.serves_claude
            if not is_native and upstream.kind.value != dialect:
                continue
            targets = (to for pattern, to in upstream.models.items() if fnmatchcase(model, pattern))
            target = next(targets, None)
            if target is None:
                if serves_claude or not is_native:
                    found.append(CallRoute(upstream, model, False))
                continue
            if is_native:
                # Clouds, bridges and routers add more to a model's name, and dots for dashes:
                # us.anthropic.claude-opus-4-8-v1:0, claude-opus-4.8, anthropic/claude-opus-4.8.
                is_same = serves_claude and model.replace(".", "-") in target.replace(".", "-")
            else:
                # Routers put the vendor before the name: openai/gpt-5.5. Others may be any model.
                is_same = target.rpartition("/")[2] == model
            found.append(CallRoute(upstream, target, not is_same))
        found.sort(key=lambda route: (route.degrades, route.upstream.cost_class.rank))
        if is_native and not found:
            # Nobody serves it: the preferred upstream may answer that itself.
            found = [CallRoute(self._upstreams[0], model, False)]
        routes = tuple(found)
        if len(self._routes) < 1024:
            self._routes[dialect, model] = routes
        return routes

    def degrades(self, model: str, upstream: str, dialect: Dialect = "anthropic") -> bool:
        """Whether another model answers for this one there."""
        routes = self._configured(model, dialect)
        return any(route.degrades for route in routes if route.upstream.name == upstream)

    def is_ordered(self, upstream: str, model: str, identity: Identity, now: float) -> bool:
        """Whether an order by hand sends such a call to this upstream."""
        return any(
            order.upstream == upstream and order.holds(model, identity, now)
            for order in self.orders
        )

    def _is_marked(self, model: str, identity: Identity) -> bool:
        for kind, fits in self._never:
            named = model if kind is None else _MARKED[kind](identity)
            if named is not None and fits(named):
                return True
        return False


# Whose conversation it is, and a digest of what its client logs in with.
ConversationKey: TypeAlias = tuple[Who, bytes]

# How long vendors cache a prompt: after that, staying saves nothing.
_CACHE_SECONDS = 300.0
# Who was answered within this is expected to go on soon: its tools run.
_AT_WORK_SECONDS = 30.0
_MOST_CONVERSATIONS = 10_000


class Conversations:
    """Where conversations were last answered."""

    def __init__(self) -> None:
        self._places: OrderedDict[ConversationKey, tuple[str, float]] = OrderedDict()

    def answered(self, conversation: ConversationKey, upstream: str, now: float) -> None:
        """A conversation was answered there."""
        self._places[conversation] = (upstream, now)
        self._places.move_to_end(conversation)
        if len(self._places) > _MOST_CONVERSATIONS:
            self._places.popitem(last=False)

    def order(
        self,
        conversation: ConversationKey | None,
        routes: Sequence[CallRoute],
        is_in_turn: Callable[[], bool],
        now: float,
        barred: Sequence[str] = (),
    ) -> Sequence[CallRoute]:
        """The routes of a call: first where its conversation is, unless that is `barred` to it."""
        place = None if conversation is None else self._places.get(conversation)
        if place is None or place[0] == routes[0].upstream.name:
            return routes
        upstream, since = place
        if upstream in barred or now - since > _CACHE_SECONDS or not is_in_turn():
            return routes
        here = [route for route in routes if route.upstream.name == upstream]
        others = [route for route in routes if route.upstream.name != upstream]
        # Where it is already, it is no last resort.
        return (*(route._replace(degrades=False) for route in here), *others)

    def place(self, conversation: ConversationKey, now: float) -> str | None:
        """The upstream that a conversation was last answered at, if that is not long ago."""
        upstream, since = self._places.get(conversation, (None, now))
        return upstream if now - since <= _CACHE_SECONDS else None

    def at_work(self, upstream: str, now: float) -> int:
        """How many conversations are under way there."""
        found = 0
        for place, since in reversed(self._places.values()):
            if now - since > _AT_WORK_SECONDS:
                break
            found += place == upstream
        return found


_MOST_SUBSTITUTIONS = 100
_OF_ANTHROPIC = (b"anthropic-version", b"anthropic-beta", b"x-api-key")
_REPORTED_FOR = 3600.0
# A caller uses a few models; whoever invents more of them gains nothing.
_REMEMBERED_MODELS = 16
# Conversations for each call that a recovering lane accepts at once. Their tools run between calls,
# and a lane learns that it can accept more only while it has as much to do as it can.
_FOR_EACH_CALL = 2
_TURNS: Mapping[Dialect, Callable[[bytes | bytearray], bool]] = {
    "anthropic": continues_turn,
    "openai-chat": continues_openai_turn,
    "openai-responses": continues_openai_turn,
}


class ModelSubstitution(NamedTuple):
    """Another model has answered in place of one, so many times, and last at that time."""

    model: str
    lane: str
    times: int
    last: float


class Placement:
    """Knows where each call may go."""

    def __init__(
        self, chooser: RouteChooser, registry: LaneRegistry, controller: LaneController
    ) -> None:
        self._chooser = chooser
        self._registry = registry
        self._known = controller.lanes
        self._conversations = Conversations()
        self._clients = registry.clients
        self._substitutions: dict[tuple[str, str], ModelSubstitution] = {}

    def judged(self, carried: PendingCall, credential: bytes) -> None:
        """Note the lanes' verdicts on a call's client; with a key of ours there are none."""
        clients = self._clients
        for lane, note in (
            (carried.doubted_on, clients.doubt),
            (carried.accepted_on, clients.accept),
            (carried.rejected_on, clients.reject),
        ):
            place = None if lane is None else self._registry.upstream(lane)
            if place is not None and _passes_through(place) and credential:
                note(place.url, credential)

    def judged_alone(self, carried: PendingCall, credential: bytes, *, is_accepted: bool) -> None:
        """The same where there is only one upstream, which may have answered as a model does."""
        self.judged(carried, credential)
        place = self._registry.upstream(carried.request.call.lanes[0])
        is_own = place is not None and _passes_through(place) and bool(bare_credential(credential))
        if place is not None and is_own and is_accepted and carried.rejected_on is None:
            self._clients.accept(place.url, credential)

    def answered(
        self,
        event: CallEnded,
        dialect: Dialect,
        credential: bytes,
        now: float,
        *,
        proves_credential: bool,
        organization: bytes | None = None,
    ) -> None:
        """A call was answered, and so its conversation is there.

        Only a model's answer on a path of its API shows that a vendor has accepted the client:
        other paths may need no key. `organization` is the one that the answer to a login names.
        """
        if event.lane is None:
            return
        upstream = event.lane.upstream
        place = self._registry.upstream(event.lane)
        is_own = place is not None and _passes_through(place) and bool(bare_credential(credential))
        if proves_credential and place is not None and is_own:
            self._clients.accept(place.url, credential)
            if organization:
                self._registry.confirm(place, credential, organization)
        if event.session is None:
            return
        conversation = (event.session, event.agent), self._clients.digest(credential)
        self._conversations.answered(conversation, upstream, now)
        if self._chooser.degrades(event.model, upstream, dialect):
            lane = event.lane.label
            before = self._substitutions.pop((event.model, lane), None)
            times = 1 if before is None else before.times + 1
            self._substitutions[event.model, lane] = ModelSubstitution(
                event.model, lane, times, now
            )
            if len(self._substitutions) > _MOST_SUBSTITUTIONS:
                self._substitutions.pop(next(iter(self._substitutions)))

    def substitutions(self, now: float) -> list[ModelSubstitution]:
        """Which models were answered by others lately, the latest last."""
        return [each for each in self._substitutions.values() if now - each.last <= _REPORTED_FOR]

    def places(
        self,
        model: str,
        caller: GatewayCaller,
        body: bytes | bytearray,
        now: float,
        dialect: Dialect = "anthropic",
        *,
        is_api_path: bool = True,
    ) -> CallLanes:
        """Where a call may go; nowhere when nobody speaks its dialect or its client is refused.

        Nor with a key of ours on another path than the API's own: how a vendor reads dots or
        doubled slashes there is not known here.
        """
        registry, chooser = self._registry, self._chooser
        routes: Sequence[CallRoute] = chooser.routes(model, caller.identity, now, dialect)
        if not is_api_path or self._clients.is_rejected(caller.credential):
            routes = [
                route
                for route in routes
                if _passes_through(route.upstream)
                or (is_api_path and route.upstream.accept_rejected_clients)
            ]
        if not routes:
            return CallLanes((), ())
        if len(routes) == 1:
            known = caller.places.get(model)
            if known is not None and known[0] is routes[0] and known[1].lanes[0] in self._known:
                return known[1]
            return self._only_place(model, routes[0], caller, body, now)
        reader = _TURNS[dialect]
        # Those whose key is for no client that the first upstream does not accept.
        closed = [
            route.upstream.name
            for route in (routes[1:] if _passes_through(routes[0].upstream) else ())
            if not (_passes_through(route.upstream) or route.upstream.accept_rejected_clients)
        ]
        url = routes[0].upstream.url
        clients, credential = self._clients, caller.credential
        unproven = bool(closed) and not clients.is_accepted(url, credential)
        if unproven and (not bare_credential(credential) or clients.is_doubted(url, credential)):
            routes = [route for route in routes if route.upstream.name not in closed]
        conversation = None
        if caller.who is not None:
            conversation = caller.who, self._clients.digest(caller.credential)
        home = routes[0].upstream.name if routes else ""
        if routes and not chooser.is_ordered(home, model, caller.identity, now):
            # Nobody has judged an unproven client's key, and its turn is its own word: each call
            # asks the first upstream again, and only evidence of an outage opens ours to it.
            barred = closed if unproven else ()
            routes = self._conversations.order(
                conversation, routes, lambda: reader(body), now, barred
            )
        lanes: list[LaneId] = []
        last: list[LaneId] = []
        own_key: list[LaneId] = []
        for upstream, name, degrades in routes:
            account = registry.account(upstream, caller, body)
            lane = registry.lane(upstream, name, account, now)
            (last if degrades else lanes).append(lane)
            if upstream.name in closed:
                own_key.append(lane)
        if not lanes:
            lanes, last = last, []
        places = CallLanes(tuple(lanes), tuple(last), tuple(own_key), unproven and bool(own_key))
        if (
            conversation is not None
            and len(lanes) > 1
            and any(self._known[name].state is LaneState.RECOVERING for name in lanes)
        ):
            return self._while_one_recovers(places, conversation, lambda: reader(body), now)
        return places

    def _only_place(
        self,
        model: str,
        route: CallRoute,
        caller: GatewayCaller,
        body: bytes | bytearray,
        now: float,
    ) -> CallLanes:
        registry = self._registry
        account = registry.account(route.upstream, caller, body)
        places = CallLanes((registry.lane(route.upstream, route.model, account, now),), ())
        # Of a login the account may be known by the next call.
        if not caller.bearer and len(caller.places) < _REMEMBERED_MODELS:
            caller.places[model] = route, places
        return places

    def may_send_side_call(
        self,
        upstream: UpstreamSettings,
        upstreams: Sequence[UpstreamSettings],
        credential: bytes,
        *,
        is_api_path: bool,
    ) -> bool:
        """Whether a client's side calls go there: with our key only where all calls go first."""
        if _passes_through(upstream):
            return True
        if not is_api_path:
            return False
        if upstream.accept_rejected_clients:
            return True
        is_first = upstream is upstreams[0] or not any(map(_passes_through, upstreams))
        return is_first and not self._clients.is_rejected(credential)

    def _while_one_recovers(
        self,
        places: CallLanes,
        conversation: ConversationKey,
        is_in_turn: Callable[[], bool],
        now: float,
    ) -> CallLanes:
        """The lanes of a call while one of them recovers.

        That one has little room at first, and a call in the middle of a turn would be rerouted for
        lack of it.
        """
        lanes = places.lanes
        first, home = self._known[lanes[0]], lanes[0].upstream
        if self._conversations.place(conversation, now) == home:
            stays = first.state in FLOWING and not first.paused and is_in_turn()
            return places._replace(lanes=lanes[:1], last_resorts=lanes[1:]) if stays else places
        room = _FOR_EACH_CALL * first.limit(now)
        if first.state is not LaneState.RECOVERING or self._conversations.at_work(home, now) < room:
            return places
        takes = [name for name in lanes[1:] if self._known[name].state in FLOWING]
        others = [name for name in lanes if name not in takes]
        return places._replace(lanes=(*takes, *others))


def upstream_for(exchange: Exchange, upstreams: Sequence[UpstreamSettings]) -> UpstreamSettings:
    """The upstream for a request that is no model call: the first one of its own vendor.

    The vendor that issued a login counts most, then which vendor's headers come with it.
    """
    vendor = login_vendor(exchange.headers)
    if vendor not in (ANTHROPIC, OPENAI):
        of_anthropic = any(exchange.header(name) is not None for name in _OF_ANTHROPIC)
        if of_anthropic or exchange.header(b"authorization") is None:
            return upstreams[0]
        vendor = OPENAI
    facts = ((each, each.kind.facts) for each in upstreams)
    own = (each for each, its in facts if its.client_vendor == vendor and its.cloud is None)
    return next(own, upstreams[0])


def relay_upstream(
    exchange: Exchange, upstreams: Sequence[UpstreamSettings]
) -> UpstreamSettings | None:
    """Where a request goes that is not a model call: only ever with the client's own credential."""
    first = upstream_for(exchange, upstreams)
    vendor = first.kind.facts.client_vendor
    same_vendor = (each for each in upstreams if each.kind.facts.client_vendor == vendor)
    return next(filter(_passes_through, (first, *same_vendor)), None)


def _passes_through(upstream: UpstreamSettings) -> bool:
    return upstream.credential is Credential.PASS_THROUGH
