"""Vendors' rate limits are read at start and daily, gently, and can do no harm."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from jackline import event_loop
from jackline.clock import VirtualClock
from jackline.gateway.vendor_limits import UnreadLimitsError, VendorLimits
from jackline.lanes import KnownLimits
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from tests.planted import WORD
from tests.upstream.loopback import Server, Wire, until

NOW = datetime(2026, 11, 15, 10, 2, tzinfo=UTC)
ADMIN = f"sk-ant-admin01-{WORD}"
OPUS = "claude-opus-4-8"
DAY = 86_400


def page(models: list[str], next_page: str | None = None, **limits: int) -> bytes:
    told = [{"type": name, "value": value} for name, value in limits.items()]
    entry = {"group_type": "model_group", "models": models, "limits": told}
    return json.dumps({"data": [entry], "next_page": next_page}).encode()


FIFTY = page([OPUS], requests_per_minute=50, output_tokens_per_minute=8000)


def http(status: int, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class WatchersClock(VirtualClock):
    """Virtual time that is moved only while its one sleeper sleeps."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self.asleep = False

    async def sleep(self, seconds: float) -> None:
        self.asleep = True
        await super().sleep(seconds)
        self.asleep = False

    async def pass_by(self, seconds: float) -> None:
        await until(lambda: self.asleep)
        await self.advance(seconds)
        await until(lambda: self.asleep)


class World:
    """An API on loopback, virtual time, and what became of it."""

    def __init__(self, *answers: bytes) -> None:
        self.clock = WatchersClock()
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.notes: dict[str, str] = {}
        self.changes = 0
        self.keys = {"env:ADMIN": ADMIN}
        self.settings = UpstreamSettings(
            "main", credential=Credential.API_KEY, admin_key="env:ADMIN"
        )
        self.patience = 10.0

    async def serve(self, wire: Wire) -> None:
        while request := await wire.request():
            self.asked.append(request)
            answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
            await wire.say(answer)

    def look_up(self, reference: str) -> str:
        if reference not in self.keys:
            raise ValueError("the environment variable ADMIN is not set")
        return self.keys[reference]

    def _changed(self) -> None:
        self.changes += 1

    def run(self, story: Callable[[VendorLimits], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Server(self.serve) as server:
                self.settings = replace(self.settings, url=server.url)
                limits = VendorLimits(
                    (self.settings,),
                    self.look_up,
                    self.notes,
                    self.clock,
                    lambda: 0.5,
                    {},
                    patience=self.patience,
                )
                limits.changed = self._changed
                watching = asyncio.create_task(limits.watch())
                try:
                    await story(limits)
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
                    await limits.close()

        event_loop.run(main())

    async def looked(self) -> None:
        await until(lambda: self.clock.asleep)

    async def passes(self, seconds: int) -> None:
        """Let so many seconds pass, in steps that no look is longer than."""
        for _ in range(seconds // 30):
            await self.clock.pass_by(30.0)

    @property
    def note(self) -> str:
        return self.notes.get("limits of main", "")


def test_limits_are_read_at_start_and_daily() -> None:
    world = World(http(200, FIFTY), http(200, page([OPUS], requests_per_minute=80)))

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings["main"].limits == {OPUS: KnownLimits(50, None, 8000)}
        assert limits.readings["main"].read_at == NOW.timestamp()
        await world.clock.pass_by(DAY - 60)
        assert len(world.asked) == 1
        await world.clock.pass_by(120)
        assert len(world.asked) == 2
        assert limits.readings["main"].limits == {OPUS: KnownLimits(80)}
        assert world.changes == 2
        assert world.notes == {}

    world.run(story)


def test_every_page_is_read_and_a_cursor_that_leads_in_a_circle_ends() -> None:
    world = World(
        http(200, page([OPUS], "second", requests_per_minute=1)),
        http(200, page(["claude-x"], "second", requests_per_minute=2)),
    )

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert set(limits.readings["main"].limits) == {OPUS, "claude-x"}
        lines = [raw.partition(b" HTTP")[0] for raw in world.asked]
        assert lines == [
            b"GET /v1/organizations/rate_limits?group_type=model_group",
            b"GET /v1/organizations/rate_limits?group_type=model_group&page=second",
        ]

    world.run(story)


def test_pages_without_end_are_not_followed_for_ever() -> None:
    world = World(*(http(200, page([OPUS], f"{n}", requests_per_minute=1)) for n in range(99)))

    async def story(_limits: VendorLimits) -> None:
        await world.looked()
        assert len(world.asked) == 20

    world.run(story)


def test_a_workspaces_limits_go_over_the_organizations() -> None:
    world = World(http(200, FIFTY), http(200, page([OPUS], requests_per_minute=10)))
    world.settings = replace(world.settings, workspace="wrkspc_1")

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings["main"].limits == {OPUS: KnownLimits(10, None, 8000)}
        assert b"/v1/organizations/workspaces/wrkspc_1/rate_limits?" in world.asked[1]

    world.run(story)


def test_without_the_workspaces_limits_the_organizations_are_not_taken() -> None:
    world = World(http(200, FIFTY), http(404))
    world.settings = replace(world.settings, workspace="wrkspc_1")

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings == {}
        assert "no such API, workspace or project" in world.note

    world.run(story)


def test_openai_is_asked_by_project_with_a_bearer() -> None:
    body = {
        "data": [{"model": "gpt-5.5", "max_requests_per_1_minute": 7, "max_tokens_per_1_minute": 9}]
    }
    world = World(http(200, json.dumps(body).encode()))
    world.settings = replace(world.settings, kind=UpstreamKind.OPENAI_RESPONSES, project="proj_1")

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings["main"].limits == {"gpt-5.5": KnownLimits(7, 9)}
        assert world.asked[0].startswith(b"GET /v1/organization/projects/proj_1/rate_limits?")
        assert f"Authorization: Bearer {ADMIN}".encode() in world.asked[0]

    world.run(story)


BAD = {
    "refused": (http(401, b'{"error": "%b"}' % ADMIN.encode()), "the key was refused (status 401)"),
    "forbidden": (http(403), "the key was refused (status 403)"),
    "missing": (http(404), "no such API"),
    "throttled": (http(429, b"", "Retry-After: 1"), "answers with status 429"),
    "down": (http(503, b"x" * 3_000_000), "too large"),
    "nonsense": (http(200, b"<html>hello</html>"), "not what the vendor documents"),
    "another document": (http(200, b'{"data": {"a": 1}}'), "not what the vendor documents"),
    "huge": (http(200, b"[" * 2_000_000), "its answer is too large"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", ""),
}


@pytest.mark.parametrize(("answer", "says"), BAD.values(), ids=BAD.keys())
def test_an_answer_that_cannot_be_read_changes_nothing_and_is_said(
    answer: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(answer)
    caplog.set_level(logging.DEBUG)

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings == {}
        assert world.changes == 0
        assert world.note.startswith("limits of main cannot be read from its vendor: ")
        assert says in world.note
        assert "headers report them" in world.note
        with pytest.raises(UnreadLimitsError) as raised:
            await limits.read("main")
        assert raised.value.fix
        assert WORD not in f"{world.note}{raised.value}{raised.value.fix}{caplog.text}"

    world.run(story)


def test_failures_back_off_and_a_reading_ends_them() -> None:
    world = World(http(503), http(503), http(503), http(200, FIFTY))

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        asked_at = []
        for passed in range(0, 900, 10):
            before = len(world.asked)
            await world.clock.pass_by(10.0)
            if len(world.asked) > before:
                asked_at.append(passed + 10)
        assert asked_at == [60, 180, 420]
        assert world.notes == {}
        assert OPUS in limits.readings["main"].limits

    world.run(story)


def test_a_vendor_that_never_answers_rightly_is_asked_about_hourly() -> None:
    world = World(http(401))

    async def story(_limits: VendorLimits) -> None:
        await world.looked()
        await world.passes(DAY // 2)
        assert 12 <= len(world.asked) <= 20

    world.run(story)


def test_what_was_read_before_holds_while_it_cannot_be_read_again() -> None:
    world = World(http(200, FIFTY), http(503))

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        await world.clock.pass_by(DAY + 60)
        assert limits.readings["main"].limits[OPUS] == KnownLimits(50, None, 8000)
        assert "what was read before holds" in world.note

    world.run(story)


def test_a_key_that_cannot_be_had_is_said_and_nothing_is_sent() -> None:
    world = World(http(200, FIFTY))
    world.keys = {}

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert world.asked == []
        assert "the environment variable ADMIN is not set" in world.note
        world.keys = {"env:ADMIN": ADMIN}
        await world.clock.pass_by(62.0)
        assert OPUS in limits.readings["main"].limits

    world.run(story)


def test_silence_ends() -> None:
    world = World(b"")
    world.patience = 0.05

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        assert limits.readings == {}
        assert "no whole answer within 0.05 s" in world.note

    world.run(story)


def test_the_key_goes_to_the_upstreams_own_host_alone() -> None:
    """A redirect, to wherever, is an answer like any other, and no second request is made."""

    async def main() -> None:
        strangers: list[bytes] = []

        async def stranger(wire: Wire) -> None:
            while raw := await wire.request():
                strangers.append(raw)
                await wire.say(http(200, FIFTY))

        async with Server(stranger) as elsewhere:
            for status in (301, 302, 303, 307, 308):
                world = World(http(status, b"", f"Location: {elsewhere.url}/v1/x"))
                async with Server(world.serve) as server:
                    settings = replace(world.settings, url=server.url)
                    limits = VendorLimits(
                        (settings,), world.look_up, {}, world.clock, lambda: 0.5, {}
                    )
                    with pytest.raises(UnreadLimitsError, match="not followed"):
                        await limits.read("main")
                    await limits.close()
                assert [ADMIN.encode() in raw for raw in world.asked] == [True]
        assert strangers == []

    event_loop.run(main())


def test_an_answer_to_settings_that_have_changed_meanwhile_is_left_aside() -> None:
    world = World(http(200, FIFTY))
    arrived, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(wire: Wire) -> None:
        while await wire.request():
            arrived.set()
            await may_answer.wait()
            await wire.say(http(200, FIFTY))

    world.serve = slow  # type: ignore[method-assign]

    async def story(limits: VendorLimits) -> None:
        await arrived.wait()
        limits.use(())
        may_answer.set()
        await world.looked()
        assert limits.readings == {}
        assert (world.changes, world.notes) == (0, {})

    world.run(story)


def test_only_upstreams_with_an_admin_key_are_asked_and_changes_are_followed() -> None:
    world = World(http(200, FIFTY))

    async def story(limits: VendorLimits) -> None:
        await world.looked()
        plain = replace(world.settings, name="plain", admin_key=None)
        limits.use((world.settings, plain))
        await world.clock.pass_by(10.0)
        assert len(world.asked) == 1
        limits.use((replace(world.settings, workspace="wrkspc_1"), plain))
        assert limits.readings == {}
        await world.clock.pass_by(10.0)
        assert len(world.asked) == 3
        assert set(limits.readings) == {"main"}
        limits.use((plain,))
        assert limits.readings == {}
        await world.clock.pass_by(DAY + 60)
        assert len(world.asked) == 3

    world.run(story)
