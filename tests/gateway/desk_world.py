"""A gateway's desk on a virtual clock, a scripted upstream, and clients on paper."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from jackline.calls import CallManager, Dialect
from jackline.clock import VirtualClock
from jackline.events import CallEnded, Event
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.connection import Bytes, Exchange
from jackline.gateway.lane_registry import LaneRegistry
from jackline.gateway.settings import GatewaySettings
from jackline.http1.requests import parse_head
from jackline.lane_id import LaneId
from jackline.lanes import LaneController
from jackline.private_files import installation_key
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.task_proof import task_in
from jackline.testing import ScriptedUpstream, Step

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
MODEL = "claude-opus-4-8"
LANE = f"anthropic/{MODEL}"
TARGET = "/v1/messages?beta=true"
CLAUDE_CODE = "claude-cli/2.1.197 (external, sdk-cli)"
WHOLE = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
).encode()
THROTTLED = Step(
    status=429,
    body=b'{"type":"error","error":{"type":"rate_limit_error","message":"Server is temporarily '
    b'limiting requests (not your usage limit)"}}',
    after=0.2,
)


def wall(seconds: float, after: float = 0.2) -> Step:
    """A quota wall whose reset is so far from the start."""
    reset = str(int(START.timestamp() + seconds))
    return Step(
        status=429,
        headers={
            "content-type": "application/json",
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-reset": reset,
            "request-id": "req_wall",
        },
        body=b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would '
        b"exceed your account's rate limit. Please try again later.\"}}",
        after=after,
    )


class ClientOnPaper:
    """The client's end of a connection, written down."""

    paused = False
    stays = False
    last_request = False
    local_address: object = ("127.0.0.1", 8766)

    def __init__(self, clock: VirtualClock) -> None:
        self.now = clock.monotonic
        self.wire = bytearray()
        self.was_reset = False
        self.complete = False
        self.exchange: Exchange

    def write(self, pieces: tuple[Bytes, ...], size: int) -> None:  # noqa: ARG002
        for piece in pieces:
            self.wire += piece

    def end_with(self, pieces: tuple[Bytes, ...], *, keep_alive: bool) -> None:  # noqa: ARG002
        for piece in pieces:
            self.wire += piece
        self.complete = True

    def reset(self) -> None:
        self.was_reset = True

    @property
    def over(self) -> bool:
        return self.complete or self.was_reset

    def status_now(self) -> int | None:
        return int(self.wire.split(b" ", 2)[1]) if self.wire else None

    @property
    def status(self) -> int | None:
        return self.status_now()

    @property
    def headers(self) -> dict[str, str]:
        lines = bytes(self.wire.partition(b"\r\n\r\n")[0]).decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def body(self) -> bytes:
        rest = bytes(self.wire.partition(b"\r\n\r\n")[2])
        if self.headers.get("transfer-encoding") != "chunked":
            return rest
        body = bytearray()
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return bytes(body)

    @property
    def events(self) -> list[str]:
        lines = self.body.decode().splitlines()
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


class World:
    """Everything behind the gateway's port, in virtual time."""

    def __init__(
        self,
        script: Sequence[Step] | Mapping[str, Sequence[Step]],
        settings: GatewaySettings | None = None,
    ) -> None:
        self.clock = VirtualClock(START)
        self.events: list[Event] = []
        draw = random.Random(3).random  # noqa: S311 -- seeded, so that tests repeat
        controller = LaneController([], draw, now=START.timestamp())
        given = settings or GatewaySettings()
        upstreams = given.upstreams
        self.book = LaneRegistry(controller, upstreams, b"salt", given.cache.ttl)
        for each in upstreams:
            # Its vendors know the client: what strangers may do is tests/attacks/'s.
            self.book.clients.accept(each.url, b"sk-ant-one")
        account = self.book.fingerprint(upstreams[0], b"sk-ant-one")
        if isinstance(script, Mapping):
            # By upstream: all of its lanes follow the same script.
            scripts = {
                self.lane_of(each, model): script[each.name]
                for each in upstreams
                if each.name in script
                for model in {MODEL, *each.models.values()}
            }
        else:
            scripts = {LaneId("anthropic", MODEL, account): script} if script else {}
        self.upstream = ScriptedUpstream(self.clock, scripts)
        self.carrier = CallManager(controller, self.upstream, self.clock, self.events.append)
        self.desk = CallIntake(
            settings or GatewaySettings(),
            self.carrier,
            self.book,
            self.clock,
            self.events.append,
            self.clock.monotonic,
        )
        self.desk.task_in = partial(task_in, installation_key())

    def lane_of(self, upstream: UpstreamSettings, model: str) -> LaneId:
        """The lane of a model there, for the one account of these tests."""
        passes = upstream.credential is Credential.PASS_THROUGH
        who = b"sk-ant-one" if passes else (upstream.secret or "").encode()
        return LaneId(upstream.name, model, self.book.fingerprint(upstream, who))

    def asked(self) -> list[str]:
        """The lanes that attempts went to, as people see them."""
        return [lane.label for lane in self.upstream.attempts]

    @property
    def ended(self) -> list[CallEnded]:
        return [event for event in self.events if isinstance(event, CallEnded)]

    def ask(
        self,
        text: str = "hi",
        *,
        stream: bool = True,
        session: str | None = "s1",
        agent: str | None = None,
        user_agent: str = CLAUDE_CODE,
        headers: Mapping[str, str] | None = None,
        tag: str | None = None,
    ) -> ClientOnPaper:
        """A client sends a messages call."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 99}
        given = {"User-Agent": user_agent, "x-api-key": "sk-ant-one", **(headers or {})}
        if session is not None:
            given["X-Claude-Code-Session-Id"] = session
        if agent is not None:
            given["x-claude-code-agent-id"] = agent
        return self.send(
            json.dumps(body | ({"stream": True} if stream else {})).encode(), given, tag
        )

    def send(
        self, body: bytes, headers: Mapping[str, str], tag: str | None = None
    ) -> ClientOnPaper:
        """A client sends these bytes."""
        client = ClientOnPaper(self.clock)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        raw = f"POST {TARGET} HTTP/1.1\r\nHost: 127.0.0.1:8766\r\n{lines}\r\n"
        head = parse_head(raw.encode())
        client.exchange = Exchange(client, head, body)
        self.desk.take(client.exchange, TARGET.encode(), tag, body)
        return client

    def send_foreign(
        self,
        target: str,
        dialect: Dialect,
        *,
        stream: bool = True,
        user_agent: str = "OpenAI/Python",
        headers: Mapping[str, str] | None = None,
    ) -> ClientOnPaper:
        """A client of one of OpenAI's dialects asks."""
        client = ClientOnPaper(self.clock)
        given = {
            "Host": "127.0.0.1",
            "Authorization": "Bearer sk-ant-one",
            "User-Agent": user_agent,
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        raw = f"POST {target} HTTP/1.1\r\n{lines}\r\n"
        body = json.dumps({"model": "gpt-5.5", "input": "hi", "stream": stream}).encode()
        client.exchange = Exchange(client, parse_head(raw.encode()), body)
        self.desk.take_foreign(client.exchange, target.encode(), None, dialect, body)
        return client

    async def pass_time(self, seconds: float) -> None:
        """Let time pass in steps small enough for every timer."""
        left = seconds
        while left > 0:
            await self.clock.advance(min(0.5, left))
            left -= 0.5

    async def until_over(self, *clients: ClientOnPaper, longest: float = 1000) -> None:
        """Let time pass until these clients have their answers."""
        waited = 0.0
        while not all(client.over for client in clients):
            assert waited < longest, "it takes too long"
            await self.clock.advance(0.5)
            waited += 0.5


def play(
    script: Sequence[Step] | Mapping[str, Sequence[Step]],
    scene: Callable[[World], Awaitable[None]],
    settings: GatewaySettings | None = None,
) -> World:
    """Run a scene; nothing may be left behind, and every call must have ended once."""

    async def whole() -> World:
        world = World(script, settings)
        async with world.carrier:
            keeper = asyncio.create_task(world.desk.look_after())
            await scene(world)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            assert world.carrier.under_way == 0
            assert not world.desk.calls
        assert world.upstream.open_now == 0
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, "tasks were left behind"
        return world

    return asyncio.run(whole())
