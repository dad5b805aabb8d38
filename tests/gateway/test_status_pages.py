"""Status pages are asked gently while something is wrong, and can do no harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import event_loop
from jackline.clock import VirtualClock
from jackline.gateway.status_pages import (
    PRESETS,
    StatusPage,
    StatusPages,
    family_and_version,
    incident_sentence,
    parse_status_page,
    vendor_of,
)
from tests.upstream.loopback import Server, Wire, until

NOW = datetime(2026, 11, 15, 13, 0, tzinfo=UTC)
OPUS = "claude-opus-4-8"
SONNET = "claude-sonnet-4-6"


def incident(name: str, status: str = "investigating", **more: Any) -> dict[str, Any]:
    return {"name": name, "status": status, "created_at": "2026-11-15T12:45:10.123Z", **more}


def summary(*incidents: dict[str, Any]) -> bytes:
    page = {"name": "Claude", "url": "https://status.claude.com"}
    return json.dumps({"page": page, "components": [], "incidents": incidents}).encode()


ON_OPUS = summary(incident("Elevated errors on Opus"))


class WatchersClock(VirtualClock):
    """Virtual time that is moved only while its one sleeper sleeps: no look is overtaken by it."""

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
    """A page on loopback, virtual time, and a switch for trouble."""

    def __init__(self, page: bytes | Callable[[Wire], Awaitable[None]]) -> None:
        self.clock = WatchersClock()
        self.page = page
        self.troubled = True
        self.asked = 0
        self.patience = 10.0

    async def serve(self, wire: Wire) -> None:
        while request := await wire.request():
            assert request.startswith(b"GET /api/v2/summary.json ")
            self.asked += 1
            if not isinstance(self.page, bytes):
                await self.page(wire)
                continue
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.page)}\r\n\r\n".encode()
            await wire.say(head + self.page)

    async def next_look(self) -> None:
        """Let time pass until the page has been looked at once more."""
        before = self.asked
        while self.asked == before:
            await self.clock.pass_by(1.0)

    def run(self, story: Callable[[StatusPages], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Server(self.serve) as server:
                pages = StatusPages(
                    {"main": server.url},
                    lambda name: name == "main" and self.troubled,
                    self.clock,
                    lambda: 0.5,
                    {},
                    patience=self.patience,
                )
                watching = asyncio.create_task(pages.watch())
                try:
                    await story(pages)
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
                    await pages.close()

        event_loop.run(main())

    async def passes(self, seconds: int) -> None:
        for _ in range(seconds // 2):
            await self.clock.pass_by(2.0)


def test_other_pages_can_be_named_while_it_runs() -> None:
    world = World(ON_OPUS)

    async def story(pages: StatusPages) -> None:
        await world.next_look()
        await until(lambda: pages.note("main") is not None)
        known = dict(pages.addresses)
        pages.use({})
        assert pages.note("main") is None
        asked = world.asked
        await world.passes(300)
        assert world.asked == asked
        pages.use(known)
        await world.next_look()
        await until(lambda: pages.note("main") is not None)
        pages.use(known)
        assert pages.note("main") is not None, "one that stays keeps what it said"

    world.run(story)


def test_nothing_is_asked_while_all_is_well() -> None:
    world = World(ON_OPUS)
    world.troubled = False

    async def story(pages: StatusPages) -> None:
        await world.passes(600)
        assert pages.note("main", OPUS) is None

    world.run(story)
    assert world.asked == 0


def test_in_trouble_the_page_is_asked_about_once_a_minute_and_told() -> None:
    world = World(ON_OPUS)

    async def story(pages: StatusPages) -> None:
        await world.next_look()
        assert world.clock.monotonic() <= 8
        note = pages.note("main", OPUS)
        assert note == "Claude reports: Elevated errors on Opus, since 12:45"
        assert pages.note("main", SONNET) is None
        assert pages.note("other", OPUS) is None
        await world.passes(600)
        assert world.asked == 1 + 600 // 60

    world.run(story)


def test_when_trouble_is_over_it_is_forgotten() -> None:
    world = World(ON_OPUS)

    async def story(pages: StatusPages) -> None:
        await world.next_look()
        world.troubled = False
        assert pages.note("main", OPUS) is None
        await world.passes(300)
        assert world.asked == 1
        world.troubled = True
        assert pages.note("main", OPUS) is None, "what was said about the last trouble"
        await world.next_look()
        assert pages.note("main", OPUS)

    world.run(story)


async def _unavailable(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}")


async def _redirect(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 302 Found\r\nLocation: http://x.test/\r\nContent-Length: 0\r\n\r\n")


async def _reset(wire: Wire) -> None:
    wire.reset()


async def _silent(wire: Wire) -> None:
    await wire.reader.read()


async def _flood(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    while True:
        await wire.say(b" " * 65536)


@pytest.mark.parametrize(
    "broken",
    [
        b"", b"[]", b"<html>down</html>", b'{"incidents": 3}', b"[" * 100_000,
        _unavailable, _redirect, _reset, _silent, _flood,
    ],
)  # fmt: skip
def test_a_page_that_fails_changes_nothing_and_is_asked_less_often(
    broken: bytes | Callable[[Wire], Awaitable[None]],
) -> None:
    world = World(ON_OPUS)
    if broken is _silent:
        world.patience = 0.5

    async def story(pages: StatusPages) -> None:
        await world.next_look()
        world.page = broken
        await world.next_look()
        assert pages.note("main", OPUS), "what it said holds for a while"
        world.asked = 0
        await world.passes(1200)
        assert 2 <= world.asked <= 5
        assert pages.note("main", OPUS) is None, "but not for ever"
        world.page = ON_OPUS
        await world.next_look()
        assert pages.note("main", OPUS)

    world.run(story)


def test_the_well_known_pages_are_told_by_their_vendors_names() -> None:
    assert [vendor_of(url) for url in PRESETS.values()] == ["Anthropic", "OpenAI"]
    assert vendor_of("https://status.example") == ""


def test_without_pages_nothing_is_asked_or_told() -> None:
    world = World(ON_OPUS)

    async def story(pages: StatusPages) -> None:
        pages.use({})
        await world.passes(120)
        assert pages.note("main", OPUS) is None

    world.run(story)
    assert world.asked == 0


# --- reading ------------------------------------------------------------------------------


def page(*incidents: dict[str, Any]) -> StatusPage:
    found = parse_status_page(summary(*incidents), NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "about", "not_about"),
    [
        ("Elevated errors on Opus", [OPUS, "us.anthropic.claude-opus-4-1-v1:0"], [SONNET]),
        ("opus 4.8 elevated errors", [OPUS, "claude-opus-4-8@20260701"], ["claude-opus-4-7"]),
        ("Elevated errors on Claude Opus 4 and Opus 4.1", ["claude-opus-4-20250514"], [OPUS]),
        ("Elevated errors for Sonnet 4.5 and 4.6", [SONNET, "claude-sonnet-4-5"], [OPUS]),
        ("Elevated errors across many models", [OPUS, SONNET], []),
        ("Elevated errors on the API", [OPUS, SONNET, "gpt-5.2"], []),
        ("Degraded performance of Claude Sonnet 3.5", ["claude-3-5-sonnet-20241022"], [SONNET]),
    ],
)
def test_an_incident_is_about_the_models_it_names(
    name: str, about: list[str], not_about: list[str]
) -> None:
    seen = page(incident(name))
    assert [model for model in about if seen.about(model) is None] == []
    assert [model for model in not_about if seen.about(model) is not None] == []


def test_the_newest_update_tells_the_model_where_the_name_does_not() -> None:
    seen = page(incident("Elevated errors", incident_updates=[{"body": "Opus 4.8 is affected."}]))
    assert seen.about(OPUS)
    assert seen.about(SONNET) is None


def test_what_is_over_or_no_trouble_is_not_told() -> None:
    seen = page(
        incident("Elevated errors on Opus", "resolved"),
        incident("Delayed credits on the Claude Platform", "monitoring"),
    )
    assert seen.reports == ()


def test_the_incident_that_names_the_model_goes_first_then_the_latest() -> None:
    seen = page(
        incident("Elevated errors on Opus"),
        incident("API outage", created_at="2026-11-15T12:59:00Z"),
        incident("API errors", created_at="2026-11-15T12:58:00Z"),
    )
    opus, sonnet = seen.about(OPUS), seen.about(SONNET)
    assert opus is not None
    assert sonnet is not None
    assert (opus.name, sonnet.name) == ("Elevated errors on Opus", "API outage")


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ("2026-11-14T22:10:00Z", "V reports: API errors, since 22:10 on 14 November"),
        ("2026-11-15T13:45:00+01:00", "V reports: API errors, since 12:45"),
        ("soon", "V reports: API errors"),
        ("2026-11-15T12:45:00", "V reports: API errors"),
    ],
)
def test_the_beginning_is_told_in_the_readers_time(begun: str, words: str) -> None:
    report = page(incident("API errors", created_at=begun)).about(OPUS)
    assert report is not None
    assert incident_sentence(report, "V", NOW) == words


def test_a_vendors_words_stay_on_one_short_line() -> None:
    report = page(incident("API errors\r\nX-Evil: 1\x1b[31m " + "very " * 100)).about(OPUS)
    assert report is not None
    assert report.name.isprintable()
    assert len(report.name) <= 120


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-4-8", ("opus", "4.8")),
        ("claude-opus-4-20250514", ("opus", "4")),
        ("claude-3-5-sonnet-20241022", ("sonnet", "3.5")),
        ("claude-3-haiku-20240307", ("haiku", "3")),
        ("gpt-5.2-codex", ("gpt", "5.2")),
        ("llama-3", ("", "")),
    ],
)
def test_models_are_known_by_family_and_version(model: str, expected: tuple[str, str]) -> None:
    assert family_and_version(model) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["incidents", "name", "status", "incident_updates", "body", "page"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
)


@given(
    JSON | st.fixed_dictionaries({"incidents": st.lists(JSON, max_size=3)}), st.text(max_size=20)
)
def test_no_page_and_no_model_raises(document: Any, model: str) -> None:
    found = parse_status_page(json.dumps(document).encode(), NOW)
    if found is not None:
        found.about(model)


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    parse_status_page(body, NOW)
