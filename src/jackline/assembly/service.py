"""Run one gateway: open its parts, keep them together, close them again.

Laws: (1) nothing is open before all is well: a taken port leaves no journal behind; (2) while it
stops, running calls finish and new ones are told to come back, then what was learned is kept; (3) a
changed configuration is taken up without dropping a call; (4) a state folder that cannot be written
to is told, and stops no traffic; (5) no request is looked at before what was known is known again.
Not here: signals, the background process (cli/up.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Self

from jackline import __version__
from jackline.assembly.addresses import local_url
from jackline.assembly.background_agents import BackgroundAgents
from jackline.assembly.faces import Standing, Watched, Working, make_faces
from jackline.assembly.measuring import Measuring
from jackline.assembly.notifying import Notifying
from jackline.assembly.observing import Observatory
from jackline.assembly.recalling import recall_past
from jackline.assembly.remembering import keep_remembering, recall, remember
from jackline.assembly.run_orders import RunOrders
from jackline.assembly.session_continuing import SessionContinuing
from jackline.assembly.state_dir import SALT_BYTES, Running, StateDir
from jackline.assembly.tracing import TracedDesk, Tracing
from jackline.assembly.waking import Waker
from jackline.assembly.watching import Watching
from jackline.calls import Carrier
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.config.watching import Reloaded, Watcher
from jackline.control import Picture, verdict
from jackline.control.forecast import foretold
from jackline.control.statusline import status_line
from jackline.dashboard.flow_book import FlowBook
from jackline.errors import JournalError, UsageError
from jackline.events import AttemptFailed, Event, LaneChanged, ServiceNoted, WindowsTold
from jackline.failures import Failure
from jackline.failures.sentences import moment_in_words, name_of
from jackline.gateway.control_paths import ControlPaths
from jackline.gateway.desk import Desk
from jackline.gateway.exchange import Exchange
from jackline.gateway.hand_orders import HandOrders
from jackline.gateway.holding import look_after
from jackline.gateway.lane_book import LaneBook, shown
from jackline.gateway.listening import Listener
from jackline.gateway.routing import Router
from jackline.gateway.status_pages import StatusPages
from jackline.gateway.telling import picture
from jackline.hooks.asked import HookAsked
from jackline.journal import Journal, JournalReader
from jackline.lanes import LaneController
from jackline.lanes.states import State
from jackline.providers.making import provider_for
from jackline.providers.provided_upstream import ProvidedUpstream
from jackline.providers.settings import UpstreamKind, UpstreamSettings

_log = logging.getLogger("jackline")
# How often a gateway that stops looks whether its calls have ended.
_LOOK_EVERY = 0.05


class CannotListenError(Exception):
    """The gateway's address cannot be had; `reason` is what the system said."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Service:
    """A running gateway; `async with` starts and stops it."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.stop_asked = asyncio.Event()
        self._clock = clock or SystemClock()
        self._reload = reload
        self._state = StateDir(config.state_dir)
        self._stack = AsyncExitStack()
        self._notes: dict[str, str] = {}
        self._started = self._clock.wall()
        self._memory_due = False
        self._patient = True
        self.observatory = Observatory(self._clock, lambda: self.config.prices)
        self._tracing: Tracing | None = None
        # Requests that came before all was well.
        self._early: list[Exchange] = []

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return local_url(self.config.gateway.listen.host, self._listener.port)

    async def __aenter__(self) -> Self:
        self._build()
        try:
            await self._listener.open()
        except OSError as error:
            raise CannotListenError(error) from error
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            await self._listener.close(0)
            raise
        self._let_in()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._announce(ServiceNoted(self._clock.wall(), "stopping"))
        # Before their calls are turned away: agents that wait at a turn's end lose nothing.
        self._agents.desk.ask_to_stop()
        left = 0.0 if kind is not None else await self._finish_calls()
        await self._listener.close(left)
        await self._stack.aclose()

    def cut_short(self) -> None:
        """Do not wait for running calls any longer."""
        self._patient = False
        self._listener.cut()

    async def _finish_calls(self) -> float:
        """Let running calls end while new ones are told to come back; the seconds left."""
        self._listener.draining = True
        self.desk.send_home()
        ticks = asyncio.get_running_loop().time
        until = ticks() + self.config.gateway.limits.drain_seconds
        while self._patient and self.desk.calls and ticks() < until:  # noqa: ASYNC110 -- below
            # Once in a gateway's life; an event would be one more thing for every call to do.
            await asyncio.sleep(_LOOK_EVERY)
        return max(0.0, until - ticks()) if self._patient else 0.0

    # --- building -------------------------------------------------------------------------------

    def _build(self) -> None:
        settings = self.config.gateway
        now = self._clock.wall()
        salt = self._salt()
        self._journal = Journal(
            self._state.journal, settings=self.config.journal, wall=self._clock.wall
        )
        draw = random.Random().random  # noqa: S311 -- jitter, not secrets
        controller = LaneController([], draw, now=now)
        self._upstream = ProvidedUpstream(
            {each.name: provider_for(each, os.environ) for each in settings.upstreams},
            _foreign(settings.upstreams),
            self._note_repair,
        )
        self.carrier = Carrier(controller, self._upstream, self._clock, self._announce)
        self._book = LaneBook(controller, settings.upstreams, salt)
        ticks = asyncio.get_running_loop().time
        make_desk = Desk if self.config.otlp.endpoint is None else TracedDesk
        self.desk = make_desk(
            settings,
            self.carrier,
            self._book,
            self._clock,
            self._announce,
            ticks,
            self._upstream.native_error,
        )
        if isinstance(self.desk, TracedDesk):
            self._tracing = Tracing(
                self.config.otlp,
                lambda: self.config.gateway.upstreams,
                self.observatory,
                self._clock,
            )
            self.desk.tracer = self._tracing.tracer
        pages = _status_pages(settings.upstreams)
        self._pages = StatusPages(pages, self._is_troubled, self._clock, draw, os.environ)
        self._token = secrets.token_urlsafe(24)
        readings = {
            b"/": self._hello,
            b"/healthz": self._health,
            b"/readyz": self._ready,
            b"/_jackline/status": self.status,
        }
        self._hand_orders = HandOrders(self.desk, self._keep_orders)
        orders = {
            b"/_jackline/stop": self._stop,
            b"/_jackline/use": self._hand_orders.use,
            b"/_jackline/back": self._hand_orders.back,
            b"/_jackline/pause": self._hand_orders.pause,
            b"/_jackline/resume": self._hand_orders.resume,
        }
        control = ControlPaths(readings, orders, self._token)
        standing = Standing(self.status, self._line, self._session_stopped)
        watching = Watching(self.desk, self.observatory, self.status, self._pages.note, self._clock)
        watched = Watched(
            watching.facts,
            self._state.flows,
            self._state.journal,
            RunOrders(self._state.folder).carry_out,
            lambda: self.config.gateway.listen.read_only,
            lambda: self._listener.draining,
        )
        self._agents = BackgroundAgents(
            lambda: self.config, lambda: self.url, self._state.flows, self._clock
        )
        self._continuing = SessionContinuing(
            lambda: self.config.continue_sessions, self._agents.host, self._clock, draw
        )
        working = Working(self._agents.desk, lambda: self.config.tools)
        self._faces = make_faces(standing, watched, working, control.trusts, self._clock)
        self._flow_book = FlowBook(self._state.flows, self._clock)
        self._measuring = Measuring(
            watching.facts,
            self.observatory,
            self._journal,
            self._state.flows,
            self._flow_book,
            self._clock,
        )
        self._notifying = Notifying(
            lambda: self.config.notify,
            watching.facts,
            self.observatory,
            self._flow_book,
            self._clock,
        )
        faces = (*self._faces.shown, self._measuring.face)
        router = Router(self.desk, self._upstream, control, faces)
        self._router = router
        self._listener = Listener(settings, self._early.append)
        router.stopping = self._listener

    async def _open(self) -> None:
        # Its word is taken back last of all: who waits for its end may then use the folder.
        self._stack.callback(self._state.tell_stopped, os.getpid())
        await asyncio.to_thread(self._journal.open)
        self._stack.push_async_callback(asyncio.to_thread, self._journal.close)
        self._stack.push_async_callback(self._upstream.close)
        await self._stack.enter_async_context(self.carrier)
        self._recall()
        await recall_past(self._state.journal, self.observatory.announce, self._clock)
        self.observatory.settle_past()
        self._hand_orders.recall(self._state.orders())
        self._stack.callback(self._remember)
        self._keep(look_after(self.desk, self._clock))
        self._stack.push_async_callback(self._pages.close)
        self._keep(self._pages.watch())
        if self._tracing is not None:
            self._keep(self._tracing.watch())
        self._stack.push_async_callback(self._flow_book.close)
        for work in (*self._faces.work, *self._measuring.work, self._notifying.watch):
            self._keep(work())
        self._stack.push_async_callback(self._agents.close)
        self._keep(self._agents.serve())
        self._keep(Waker(self._state.flows, self._clock, here=self._agents.wakes).watch())
        self._keep(self.observatory.keep_settling())
        self._keep(keep_remembering(self.carrier, self._clock, self._remember))
        if self._reload is not None:
            watcher = Watcher(
                self.config,
                self._read_again,
                changed=self._reconfigure,
                failed=self._keep_old,
                clock=self._clock,
            )
            self._keep(watcher.run())
        self._tell_running()
        self._announce(ServiceNoted(self._clock.wall(), "started", self.url))

    def _let_in(self) -> None:
        """Take requests, those first that came while the port was open and we were not ready."""
        self._listener.handle = self._router.handle
        for exchange in self._early:
            if not exchange.gone:
                self._router.handle(exchange)
        self._early.clear()

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        """Run a task for as long as the service runs; its failure is logged, not lost."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_tell_failure)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    # --- the state folder -----------------------------------------------------------------------

    def _salt(self) -> bytes:
        try:
            self._state.make()
            return self._state.salt()
        except OSError as error:
            self._cannot_keep(error)
            return secrets.token_bytes(SALT_BYTES)

    def _tell_running(self) -> None:
        upstream = self.config.gateway.upstream.url
        word = Running(os.getpid(), self.url, upstream, __version__, self._started, self._token)
        try:
            self._state.tell_running(word)
        except OSError as error:
            self._cannot_keep(error)

    def _cannot_keep(self, error: OSError) -> None:
        words = (
            f"the state folder {self._state.folder} cannot be written to"
            f" ({error.strerror or type(error).__name__}): nothing is remembered over a restart,"
            " and `down` cannot reach this gateway"
        )
        if self._notes.get("state") != words:
            self._notes["state"] = words
            _log.error("%s", words)

    # --- memory ---------------------------------------------------------------------------------

    def _recall(self) -> None:
        try:
            with JournalReader(self._state.journal) as reader:
                memory = reader.lane_memory()
        except JournalError as error:
            _log.warning("what the lanes knew cannot be read: %s", error.message)
            return
        if memory is not None:
            upstream, now = self._addresses(), self._clock.wall()
            for name in recall(self.carrier, self._book, upstream, memory[1], now):
                _log.info("%s goes on from what was known", shown(name))

    def _remember(self) -> None:
        self._memory_due = False
        upstream = self._addresses()
        remember(self.carrier, upstream, self._clock.wall(), self._journal.announce)

    def _keep_orders(self, orders: bytes) -> None:
        try:
            self._state.keep_orders(orders)
        except OSError as error:
            self._cannot_keep(error)

    def _addresses(self) -> str:
        return " ".join(each.url for each in self.config.gateway.upstreams)

    def _announce(self, event: Event) -> None:
        self.observatory.announce(event)
        if isinstance(event, WindowsTold):
            return  # news of the moment, with every answer: not for the records
        self._journal.announce(event)
        if isinstance(event, LaneChanged):
            until = "" if event.until is None else f" until {_hour(event.until, self._clock)}"
            why = event.why.replace(event.lane, shown(event.lane))
            _log.info("%s is %s%s. %s", shown(event.lane), event.state, until, why)
            if not self._memory_due:
                # Once for all lanes that change in the same moment.
                self._memory_due = True
                asyncio.get_running_loop().call_soon(self._remember)
        elif isinstance(event, AttemptFailed):
            _log.info("%s: %s on %s", event.call, event.why, shown(event.lane))

    # --- configuration --------------------------------------------------------------------------

    def _read_again(self) -> Config:
        """The configuration as it is now; called in a thread of its own."""
        config = self.config if self._reload is None else self._reload()
        # A fault that was cured by going back to what holds is told by no change.
        self._notes.pop("configuration", None)
        return config

    def _reconfigure(self, reloaded: Reloaded) -> None:
        old, new = self.config.gateway, reloaded.config.gateway
        changed = [each for each in new.upstreams if each not in old.upstreams]
        try:
            # Before anything is taken over: an upstream that cannot be made changes nothing.
            made = {each.name: provider_for(each, os.environ) for each in changed}
        except UsageError as error:
            self._keep_old(error)
            return
        self.config = reloaded.config
        self.desk.use(new)
        self._listener.limits = new.limits
        if new.upstreams != old.upstreams:
            for name, provider in made.items():
                self._upstream.use(name, provider)
            self._upstream.foreign = _foreign(new.upstreams)
            self._book.use(new.upstreams)
            self._pages.use(_status_pages(new.upstreams))
            for given in self._book.open_lanes():
                self.carrier.limit_lane(given)
        _log.setLevel(self.config.log_level.upper())
        words = str(reloaded)
        self._notes["configuration"] = f"configuration read: {words}"
        _log.info("configuration read: %s", words)
        self._announce(ServiceNoted(self._clock.wall(), "configured", words))

    def _note_repair(self, lane: str, words: str) -> None:
        _log.info("%s: %s", shown(lane), words)
        self._announce(ServiceNoted(self._clock.wall(), "repaired", f"{shown(lane)}: {words}"))

    def _keep_old(self, error: UsageError) -> None:
        self._notes["configuration"] = f"the old configuration stays: {error.message}"
        _log.error("the old configuration stays: %s", error.message)
        self._announce(ServiceNoted(self._clock.wall(), "misconfigured", error.message))

    # --- control --------------------------------------------------------------------------------

    def _is_troubled(self, upstream: str) -> bool:
        lanes = self.carrier.controller.lanes.values()
        troubled = (State.BROKEN, State.LIMITED)
        return any(e.name.startswith(f"{upstream}/") and e.state in troubled for e in lanes)

    def _reported(self) -> list[str]:
        """What vendors say about the lanes that are in trouble."""
        lanes = self.carrier.controller.lanes.values()
        places = {shown(e.name).partition("/")[::2] for e in lanes if e.state is not State.OPEN}
        notes = (self._pages.note(upstream, model) for upstream, model in sorted(places))
        return list(dict.fromkeys(note for note in notes if note))

    def status(self) -> dict[str, object]:
        """The picture of now, with its verdict and what is to be expected."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self.observatory.windows.forecasts(self._clock.wall())
        agents = sum(call.agent is not None for call in drawn.waiting) + drawn.calls_in_flight
        told = foretold(forecasts, agents, now)
        sentence = verdict(drawn, now)
        return {
            **drawn.to_json(f"{sentence} {told}" if told else sentence),
            "forecast": [each.to_json() for each in forecasts],
        }

    def _picture(self) -> Picture:
        return picture(
            self.desk,
            self._journal.health,
            url=self.url,
            started=self._started,
            connections=self._listener.connections,
            notes=(*self._notes.values(), *self._reported()),
        )

    def _line(self, _session: str) -> str:
        forecasts = self.observatory.windows.forecasts(self._clock.wall())
        return status_line(self._picture(), forecasts, self._clock.now())

    def _session_stopped(
        self, told: HookAsked, failure: Failure, processes: tuple[int, ...]
    ) -> None:
        words = f"session {told.session_id} stopped: {name_of(failure)}"
        self._announce(ServiceNoted(self._clock.wall(), "session stopped", words))
        _log.info("%s", words)
        self._continuing.stopped(told, failure, processes)

    def _hello(self) -> dict[str, object]:
        return {
            "jackline": __version__,
            "status": f"{self.url}/_jackline/status",
            "process": os.getpid(),
            "state": str(self._state.folder.absolute()),
            "stopping": self._listener.draining or self.stop_asked.is_set(),
        }

    def _health(self) -> dict[str, object]:
        return {"ok": True}

    def _ready(self) -> dict[str, object]:
        return {"ok": not self._listener.draining}

    def _stop(self, _asked: Mapping[str, object]) -> dict[str, object]:
        self.stop_asked.set()
        return {"stopping": True}


def _status_pages(upstreams: Sequence[UpstreamSettings]) -> dict[str, str]:
    return {each.name: each.status_page for each in upstreams if each.status_page}


def _foreign(upstreams: Sequence[UpstreamSettings]) -> frozenset[str]:
    kinds = (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES)
    return frozenset(each.name for each in upstreams if each.kind in kinds)


def _hour(moment: float, clock: Clock) -> str:
    now = clock.now()
    return moment_in_words(datetime.fromtimestamp(moment, now.tzinfo).replace(microsecond=0), now)


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the gateway has stopped", exc_info=error)
