"""Find the lanes of a call: its fallback order, adjusted to where its conversation is.

Rules: (1) an order by hand counts from the next attempt on, also in the middle of a turn; (2)
otherwise no conversation changes its upstream in the middle of a turn, as long as its current one
accepts calls; (3) an upstream that has just recovered gets no more conversations than it can carry;
(4) behind an upstream that gets the client's own credential, those with a key of ours serve nobody
who has no credential, whose own was refused, or whom that upstream has never accepted (until it is
known to be down for others), unless the user configured it; (5) what is no model call, or comes on
another path than the API's own, is sent with the client's own credential or not at all.
Not here: the fallback order and conversations (routes.py), waiting (lanes/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jackline.calls import Dialect, PendingCall
from jackline.dialects.request_facts import continues_openai_turn, continues_turn
from jackline.events import CallEnded
from jackline.gateway.connection import Exchange
from jackline.gateway.identity import named
from jackline.gateway.lane_registry import (
    GatewayCaller,
    LaneRegistry,
    bare_credential,
    caller_of,
    shown,
)
from jackline.gateway.routes import (
    CallLanes,
    CallRoute,
    ConversationKey,
    Conversations,
    RouteChooser,
    SingleRoute,
)
from jackline.lanes import LaneController
from jackline.lanes.breaker import FLOWING
from jackline.providers.credential_forms import login_vendor
from jackline.providers.settings import ANTHROPIC, OPENAI, Credential, UpstreamSettings
from jackline.states import LaneState

_MOST_STAND_INS = 100
_OF_ANTHROPIC = (b"anthropic-version", b"anthropic-beta", b"x-api-key")
_TOLD_FOR = 3600.0
# A caller asks for a few models; whoever invents more of them gains nothing.
_REMEMBERED_MODELS = 16
# Conversations for each call that a recovering lane takes at once. Their tools run between calls,
# and a lane learns that it can take more only while it has as much to do as it can.
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
        self, chooser: RouteChooser, book: LaneRegistry, controller: LaneController
    ) -> None:
        self._chooser = chooser
        self._book = book
        self._known = controller.lanes
        self._conversations = Conversations()
        self._clients = book.clients
        self._stood_in: dict[tuple[str, str], ModelSubstitution] = {}

    def judged(self, carried: PendingCall, credential: bytes) -> None:
        """What lanes said of a call's client; nothing is learned of it where the key was ours."""
        clients = self._clients
        for lane, note in (
            (carried.doubted_on, clients.doubt),
            (carried.accepted_on, clients.accept),
            (carried.rejected_on, clients.reject),
        ):
            url = None if lane is None else self._own_vendor(lane)
            if url is not None and credential:
                note(url, credential)

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

        That a vendor has accepted the client is shown by a model's answer on a path of its API
        alone: others may ask for no key. `organization` is whose it is, as the answer to a login
        says.
        """
        upstream = _upstream_of(event.lane)
        place = self._book.upstream(event.lane)
        is_own = place is not None and _passes_through(place) and bool(bare_credential(credential))
        if proves_credential and place is not None and is_own:
            self._clients.accept(place.url, credential)
            if organization:
                self._book.confirm(place, credential, organization)
        if event.session is None:
            return
        talk = (event.session, event.agent), self._clients.digest(credential)
        self._conversations.answered(talk, upstream, now)
        if self._chooser.degrades(event.model, upstream, dialect):
            lane = shown(event.lane)
            before = self._stood_in.pop((event.model, lane), None)
            times = 1 if before is None else before.times + 1
            self._stood_in[event.model, lane] = ModelSubstitution(event.model, lane, times, now)
            if len(self._stood_in) > _MOST_STAND_INS:
                self._stood_in.pop(next(iter(self._stood_in)))

    def stand_ins(self, now: float) -> list[ModelSubstitution]:
        """Which models were answered by others lately, the latest last."""
        return [each for each in self._stood_in.values() if now - each.last <= _TOLD_FOR]

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
        book, chooser = self._book, self._chooser
        rungs: Sequence[CallRoute] = chooser.ladder(model, caller.identity, now, dialect)
        if not is_api_path or self._clients.is_rejected(caller.credential):
            may_pay = _takes_rejected if is_api_path else _passes_through
            rungs = [rung for rung in rungs if may_pay(rung.upstream)]
        if not rungs:
            return CallLanes((), ())
        if len(rungs) == 1:
            known = caller.places.get(model)
            if known is not None and known.rung is rungs[0] and known.places[0][0] in self._known:
                return known.places
            return self._only_place(model, rungs[0], caller, body, now)
        reader = _TURNS[dialect]
        closed = [rung.upstream.name for rung in rungs[1:] if _is_closed(rung.upstream, rungs[0])]
        url = rungs[0].upstream.url
        unproven = bool(closed) and not self._clients.is_accepted(url, caller.credential)
        if unproven and not self._may_prove_itself(url, caller.credential):
            rungs = [rung for rung in rungs if rung.upstream.name not in closed]
        talk = None
        if caller.who is not None:
            talk = caller.who, self._clients.digest(caller.credential)
        home = rungs[0].upstream.name if rungs else ""
        if rungs and not chooser.is_ordered(home, model, caller.identity, now):
            rungs = self._conversations.kept(talk, rungs, lambda: reader(body), now)
            # Its turn goes on where it was let to with this credential.
            unproven = unproven and rungs[0].upstream.name not in closed
        lanes: list[str] = []
        last: list[str] = []
        own_key: list[str] = []
        for upstream, name, degrades in rungs:
            account = book.account(upstream, caller, body)
            lane = book.lane(upstream, name, account, now)
            (last if degrades else lanes).append(lane)
            if upstream.name in closed:
                own_key.append(lane)
        if not lanes:
            lanes, last = last, []
        places = CallLanes(tuple(lanes), tuple(last), tuple(own_key), unproven and bool(own_key))
        if talk is not None and len(lanes) > 1 and self._any_recovers(lanes):
            return self._while_one_recovers(places, talk, lambda: reader(body), now)
        return places

    def _only_place(
        self,
        model: str,
        rung: CallRoute,
        caller: GatewayCaller,
        body: bytes | bytearray,
        now: float,
    ) -> CallLanes:
        book = self._book
        account = book.account(rung.upstream, caller, body)
        places = CallLanes((book.lane(rung.upstream, rung.model, account, now),), ())
        # Of a login the account may be known by the next call.
        if not caller.bearer and len(caller.places) < _REMEMBERED_MODELS:
            caller.places[model] = SingleRoute(rung, places)
        return places

    def _may_prove_itself(self, url: str, credential: bytes) -> bool:
        return bool(bare_credential(credential)) and not self._clients.is_doubted(url, credential)

    def may_ask_aside(
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

    def _own_vendor(self, lane: str) -> str | None:
        """The address that a lane's calls are sent to with the client's own credential, or None."""
        upstream = self._book.upstream(lane)
        return upstream.url if upstream is not None and _passes_through(upstream) else None

    def _any_recovers(self, lanes: Sequence[str]) -> bool:
        return any(self._known[name].state is LaneState.RECOVERING for name in lanes)

    def _while_one_recovers(
        self, places: CallLanes, talk: ConversationKey, is_in_turn: Callable[[], bool], now: float
    ) -> CallLanes:
        """The lanes of a call while one of them is only taking up work again.

        That one has little room at first, and whoever is in the middle of a turn would be sent on
        for lack of it.
        """
        lanes = places.lanes
        first, home = self._known[lanes[0]], _upstream_of(lanes[0])
        if self._conversations.is_at(talk, home, now):
            stays = first.state in FLOWING and not first.paused and is_in_turn()
            return places._replace(lanes=lanes[:1], last_resorts=lanes[1:]) if stays else places
        room = _FOR_EACH_CALL * first.limit(now)
        if first.state is not LaneState.RECOVERING or self._conversations.at_work(home, now) < room:
            return places
        takes = [name for name in lanes[1:] if self._known[name].state in FLOWING]
        others = [name for name in lanes if name not in takes]
        return places._replace(lanes=(*takes, *others))


def openai_caller(exchange: Exchange, tag: str | None) -> GatewayCaller:
    """The caller of a request in one of OpenAI's dialects; Codex tells its session and thread."""
    caller = caller_of(exchange, tag)
    session, thread = named(exchange.header(b"session-id")), named(exchange.header(b"thread-id"))
    if session is None:
        return caller
    agent = thread if thread != session else None
    identity = replace(caller.identity, session=session, agent=agent)
    return caller._replace(identity=identity, who=identity.who)


def upstream_for(exchange: Exchange, upstreams: Sequence[UpstreamSettings]) -> UpstreamSettings:
    """Whose business a request is that is no model call: the first upstream's of its own vendor.

    What a login says of itself counts most, then which vendor's headers come with it.
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


def _takes_rejected(upstream: UpstreamSettings) -> bool:
    return _passes_through(upstream) or upstream.accept_rejected_clients


def _is_closed(upstream: UpstreamSettings, first: CallRoute) -> bool:
    """Whether clients whom the first upstream does not take are not served with this one's key."""
    return (
        _passes_through(first.upstream)
        and not _passes_through(upstream)
        and not upstream.accept_rejected_clients
    )


def _upstream_of(lane: str) -> str:
    return lane.partition("/")[0]
