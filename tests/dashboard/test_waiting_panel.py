"""The page lists waiting calls in their order, and shows what lapsed caches cost."""

from __future__ import annotations

import os
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from jackline.assembly import Service
from jackline.dialects import TokenUsage
from jackline.events import CallEnded
from jackline.gateway.caller import conversation_of
from jackline.lane_id import LaneId
from jackline.lanes import Call
from jackline.lanes.lane import Lane
from jackline.testing.simulated_provider import SimulatedProvider
from tests.dashboard.browser import opened
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_page import BODY, ask, held
from tests.planted import WORD

AGES = (30.0, 200.0, 400.0, None)
"""How long ago each agent's conversation was cached: it is warm, about to lapse, lapsed, new."""


def remember(service: Service) -> None:
    """Let the lane know of caches, and send nothing more on it."""
    (lane,) = service.desk.carrier.controller.lanes.values()
    now = service.desk.now()
    for number, age in enumerate(AGES):
        name = conversation_of(("session-1", f"agent-{number}"), BODY.encode())
        lane.caches.conversations.pop(name, None)
        if age is not None:
            call = Call(0, (), conversation=name)
            lane.caches.answered(call, now - age, 0.0, TokenUsage(3, 10, 0, 120_000))
    service.desk.carrier.controller._caches_seen = True
    service.desk.carrier.pause_lane(lane.id, paused=True)


def resume(service: Service) -> None:
    (lane,) = _lanes(service)
    service.desk.carrier.pause_lane(lane.id, paused=False)


def _lanes(service: Service) -> list[Lane]:
    return list(service.desk.carrier.controller.lanes.values())


def pictures(page: Page, folder: Path) -> None:
    """At three widths, none of which may be wider than its window."""
    folder = Path(os.environ.get("JACKLINE_SCREENSHOTS") or folder)
    for width in (1440, 900, 420):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"waiting-{width}.png", full_page=True)


def test_who_waits_is_listed_in_its_order_with_the_reason(browser: Browser, tmp_path: Path) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as thread:
        port = int(thread.url.rpartition(":")[2])
        assert ask(port, "session-1", "agent-9") == 200
        thread.do(remember)
        with opened(browser, thread.url) as page, held(port, len(AGES)):
            try:
                rows = page.locator(".waiting tbody tr")
                expect(rows).to_have_count(len(AGES))
                for row, agent, rank, words in (
                    (0, "agent-1", "closing", "lapses in"),
                    (1, "agent-0", "normal", "the most urgent goes first"),
                    (2, "agent-2", "lapsed", "it lost its cache of 120,000 tokens"),
                    (3, "agent-3", "new", "it begins a conversation"),
                ):
                    expect(rows.nth(row)).to_contain_text(agent)
                    expect(rows.nth(row)).to_contain_text(rank)
                    expect(rows.nth(row)).to_contain_text(words)
                expect(rows.nth(0)).to_contain_text("120 k, lapses in")
                note = page.locator("#top .note", has_text="prompt cache")
                expect(note).to_contain_text("360,000 tokens to write again, $2.25")
                expect(note).to_contain_text('cache.ttl = "1h"')
                pictures(page, tmp_path)
                assert WORD not in page.locator("body").inner_text()
            finally:
                thread.do(resume)
            expect(page.locator(".waiting")).to_have_count(0)


def test_an_agents_page_says_where_a_wait_cost_its_cache(browser: Browser, tmp_path: Path) -> None:
    now = time.time()
    lane = LaneId("anthropic", "claude-opus-4-8", "1")
    who = ("claude-opus-4-8", "s1", "a1", None, None, True, 200, 1)
    first = CallEnded(now - 900, "c1", "answered", lane, *who, 0.0, 5.0, None, 3, 9, 0, 64_000)
    late = CallEnded(now - 60, "c2", "answered", lane, *who, 830.0, 835.0, None, 3, 9, 0, 64_000)
    with ServiceThread(tmp_path) as thread:
        for each in (first, late):
            thread.do(lambda service, each=each: service._journal.announce(each))  # type: ignore[misc]
        assert thread.do(lambda service: service._journal.flush())
        with opened(browser, f"{thread.url}/#/agent/s1/a1") as page:
            expect(page.locator(".detail")).to_contain_text(
                "1 call waited while its prompt cache lapsed, for up to 13 min 50 s: 64,000 tokens"
                " were written again, $0.40 instead of $0.032."
            )
