"""The page in a real browser: what it shows is true, and it can be used by everyone."""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from jackline.journal import JournalReader
from jackline.simulator.ledger import RequestOutcome
from jackline.testing.simulated_provider import SimulatedProvider
from tests.cli.gateways import Place
from tests.dashboard.browser import Scheme, opened
from tests.dashboard.fleets import announce, hour_of_work
from tests.dashboard.service_thread import ServiceThread
from tests.planted import KEY, PROMPT

PATIENCE = 120.0  # only a test that fails ever waits so long
# Long enough to be looked at on a busy machine, short enough to be waited for.
WALL = 25.0


def until(condition: Callable[[], object], page: Page) -> None:
    """Wait for something that the page or the service will come to."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, page.locator("body").inner_text()
        page.wait_for_timeout(50)


# A conversation that has begun, and is long enough to be cached.
BODY = json.dumps(
    {
        "model": "claude-opus-4-8",
        "max_tokens": 50,
        "messages": [
            {"role": "user", "content": PROMPT + 6000 * "."},
            {"role": "assistant", "content": "?"},
            {"role": "user", "content": "go on"},
        ],
    }
)


def ask(port: int, session: str, agent: str = "", tag: str = "") -> int:
    """One call of one agent; returns when it is answered."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"x-api-key": KEY, "x-claude-code-session-id": session}
    if agent:
        headers["x-claude-code-agent-id"] = agent
    try:
        path = f"/t/{tag}/v1/messages" if tag else "/v1/messages"
        line.request("POST", path, BODY, headers)
        answer = line.getresponse()
        answer.read()
        return answer.status
    finally:
        line.close()


@contextmanager
def held(port: int, agents: int, tag: str = "") -> Iterator[None]:
    """Agents that ask and wait; they have their answers when this is left."""
    threads = [
        threading.Thread(target=ask, args=(port, "session-1", f"agent-{number}", tag))
        for number in range(agents)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(PATIENCE)


def tell(words: str) -> None:
    """Figures for readers of the log; nothing depends on them."""
    sys.stdout.write(f"{words}\n")


def status(port: int) -> dict[str, Any]:
    """What `jackline status --json` prints, without the time that a process takes."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        line.request("GET", "/_jackline/status")
        result: dict[str, Any] = json.load(line.getresponse())
        return result
    finally:
        line.close()


def verdict(page: Page) -> str:
    return page.locator("#verdict").inner_text()


def figures(page: Page) -> list[dict[str, Any]]:
    """The frames since the page was opened with `FRAMES`."""
    result: list[dict[str, Any]] = page.evaluate("frames_seen")
    return result


# --- it is true -----------------------------------------------------------------------------------


def test_texts_and_numbers_are_those_of_status_and_of_the_ledger(
    browser: Browser, tmp_path: Path
) -> None:
    """A quota wall in the middle of work, seen through a real gateway."""
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up(), opened(browser, place.url) as page:
            for number in range(4):
                assert ask(place.port, "session-1", f"agent-{number}") == 200
            until(lambda: "4 calls" in page.locator(".burn .money").inner_text(), page)
            entries = [each for each in provider.ledger if each.outcome is RequestOutcome.COMPLETED]
            tokens = sum(each.input_tokens + each.output_tokens for each in entries)
            assert f"{tokens:,} tokens in 4 calls" in page.locator(".burn .money").inner_text()

            provider.quota_wall(WALL)
            with held(place.port, 6):
                until(lambda: page.locator(".key", has_text="parked 6").count() == 1, page)
                text = page.locator(".card").inner_text()
                assert page.locator(".names a[aria-label*='parked until']").count() == 6
                (lane,) = status(place.port)["lanes"]
                until(lambda: verdict(page) == status(place.port)["verdict"], page)
                assert "parked until" in verdict(page)
                assert "■ parked" in text
                assert lane["why"] in text
                assert f"{lane['in_flight']} of {lane['window']} in flight" in text
                assert f"{lane['waiting']} held" in text
                hour = time.strftime("%H:%M", time.gmtime(round(lane["until"])))
                assert f"to reset, {hour}" in text
                # Who looks from another zone sees the times of the sentences, not two clocks.
                with opened(browser, place.url, zone="Asia/Tokyo") as abroad:
                    expect(abroad.locator(".card")).to_contain_text(f"to reset, {hour}")
                    assert f"parked until {hour}" in verdict(abroad)
            until(lambda: "10 calls" in page.locator(".burn .money").inner_text(), page)
            until(lambda: verdict(page) == place.status()["verdict"], page)
            assert "6 calls held and delivered, 0 passed on as failed" in verdict(page)
            with JournalReader(place.state.journal) as reader:
                until(lambda: reader.totals(0.0).calls == 10, page)
                totals = reader.totals(0.0)
                unlucky = next(each for each in reader.calls(0, 1e12, 20) if each.attempts > 1)
            useful = [each for each in provider.ledger if each.outcome is RequestOutcome.COMPLETED]
            tokens = sum(each.input_tokens + each.output_tokens for each in useful)
            assert len(useful) == totals.answered == 10
            cached = totals.cache_read_tokens + totals.cache_write_tokens
            assert totals.input_tokens + totals.output_tokens + cached == tokens
            assert f"{tokens:,} tokens in 10 calls" in page.locator(".burn .money").inner_text()
            page.locator(".names a", has_text=unlucky.agent).click()
            page.locator(".detail", has_text="in the last day").wait_for()
            expect(page.locator(".detail")).to_contain_text("account_quota")


def test_the_page_lives_again_after_the_service_was_killed_and_started_anew(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up() as first, opened(browser, place.url, errors_expected=True) as page:
            ask(place.port, "before")
            page.locator(".names a").wait_for()
            with JournalReader(place.state.journal) as reader:
                until(lambda: reader.totals(0.0).calls == 1, page)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
            page.locator(".live.bad", has_text="not connected").wait_for()
            with place.up():
                began = time.monotonic()
                page.locator(".live.go").wait_for()
                tell(f"live again {time.monotonic() - began:.1f} s after the restart")
                # Everything was sent again, with what the journal knows of before.
                ask(place.port, "restarted")
                page.locator(".names a", has_text="restarted").wait_for()
                page.locator(".names a", has_text="before").wait_for()


# --- orders ---------------------------------------------------------------------------------------


def test_an_order_shows_what_will_happen_asks_and_can_be_undone(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        ask(int(service.url.rpartition(":")[2]), "session-1")
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            assert service.token not in page.url
            pause = page.get_by_role("button", name="pause anthropic/claude-opus-4-8")
            pause.click()
            expect(page.locator("dialog")).to_contain_text("Nothing more is sent on")
            page.get_by_role("button", name="Leave it").click()
            expect(page.locator("dialog")).to_be_hidden()
            expect(page.locator(".card .state")).to_have_text("● open")
            pause.click()
            page.get_by_role("button", name="Pause it").click()
            expect(page.locator(".card .state")).to_have_text("‖ paused")
            assert [lane.paused for lane in service.service.carrier.controller.lanes.values()] == [
                True
            ]
            page.get_by_role("button", name="Undo").click()
            expect(page.locator(".card .state")).to_have_text("● open")
            # The page knows the token as long as its tab lives, also when it is loaded anew.
            page.reload()
            pause.wait_for()


def in_vain(port: int) -> None:
    """One call that a gateway takes down with it."""
    with suppress(ConnectionError):
        ask(port, "session-1", "agent-1")


def test_a_lane_is_drained_shows_what_is_left_and_is_resumed(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider:
        provider.hang()
        with ServiceThread(tmp_path, provider.url) as service:
            port = int(service.url.rpartition(":")[2])
            thread = threading.Thread(target=in_vain, args=(port,))
            thread.start()
            with opened(browser, f"{service.url}/#token={service.token}") as page:
                card, asks = page.locator(".card"), page.locator("dialog")
                state = card.locator(".state")
                expect(card).to_contain_text("1 of 8 in flight")
                page.get_by_role("button", name="pause anthropic/").click()
                expect(asks).to_contain_text("The 1 call in flight finish (it drains)")
                page.get_by_role("button", name="Leave it").click()
                page.get_by_role("button", name="drain anthropic/").click()
                expect(asks).to_contain_text("its card says when the last has ended")
                expect(asks.locator("code")).to_have_text(
                    "jackline upstream drain anthropic/claude-opus-4-8"
                )
                page.get_by_role("button", name="Drain it").click()
                expect(page.locator("#toast")).to_contain_text("1 call in flight")
                expect(state).to_have_text("◌ draining")
                expect(card).to_contain_text("it drains: 1 still in flight")
                expect(card).to_contain_text("is paused by hand")
                page.get_by_role("button", name="resume anthropic/").click()
                expect(asks).to_contain_text("takes calls again")
                page.get_by_role("button", name="Resume it").click()
                expect(state).to_have_text("● open")
        thread.join(PATIENCE)


def test_a_lane_without_a_call_in_flight_needs_no_draining(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        ask(int(service.url.rpartition(":")[2]), "session-1")
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            page.get_by_role("button", name="pause anthropic/").click()
            assert page.get_by_role("button", name="drain anthropic/").count() == 0
            page.get_by_role("button", name="Pause it").click()
            expect(page.locator(".card")).to_contain_text("drained: nothing is in flight")
            expect(page.locator(".card .state")).to_have_text("‖ paused")


def test_without_the_token_the_page_only_shows_and_says_how_to_get_further(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        ask(int(service.url.rpartition(":")[2]), "session-1")
        with opened(browser, service.url) as page:
            page.locator(".card").wait_for()
            assert page.locator("button.order", has_text="pause").count() == 0
            expect(page.locator("#top")).to_contain_text("jackline open")
        with opened(browser, f"{service.url}/#token=wrong", errors_expected=True) as page:
            page.get_by_role("button", name="pause anthropic/claude-opus-4-8").click()
            page.get_by_role("button", name="Pause it").click()
            expect(page.locator("#toast")).to_contain_text("jackline open")
            expect(page.locator("#top")).to_contain_text("Read-only")


def test_a_read_only_service_is_shown_without_buttons(browser: Browser, tmp_path: Path) -> None:
    with (
        SimulatedProvider() as provider,
        ServiceThread(tmp_path, provider.url, read_only=True) as service,
    ):
        ask(int(service.url.rpartition(":")[2]), "session-1")
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            page.locator(".card").wait_for()
            assert page.locator("button.order", has_text="pause").count() == 0
            expect(page.locator("#top")).to_contain_text("--read-only")


# --- it fits, and finds ---------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1440, "dark"), (900, "light"), (420, "dark")])
def test_the_page_fits_every_width(
    browser: Browser, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    with ServiceThread(tmp_path) as service:
        events = hour_of_work(time.time(), 30, in_group=10)
        service.do(lambda running: announce(running, events))
        with opened(browser, service.url, scheme=scheme, width=width) as page:
            page.locator(".names a").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            picture = page.screenshot(full_page=True, path=tmp_path / f"{width}.png")
            # One colour alone would need a few kilobytes.
            assert len(picture) > 20_000


def test_search_and_filters_stay_in_the_address(browser: Browser, tmp_path: Path) -> None:
    with ServiceThread(tmp_path) as service:
        events = hour_of_work(time.time(), 60)
        service.do(lambda running: announce(running, events))
        with opened(browser, service.url) as page:
            expect(page.locator(".filters")).to_contain_text("60 agents")
            page.get_by_role("searchbox").fill("session-0000")
            expect(page.locator(".filters")).to_contain_text("25 of 60 agents")
            page.locator("button.key", has_text="failed").click()
            expect(page.locator(".filters")).to_contain_text("1 of 60 agents")
            page.get_by_label("span").select_option("15 min")
            address = page.url
            for each in ("q=session-0000", "state=failed", "span=900"):
                assert each in address
        with opened(browser, address) as again:
            expect(again.locator(".filters")).to_contain_text("1 of 60 agents")
            expect(again.get_by_label("span")).to_have_value("900")
            again.get_by_label("span").select_option("fits")
            assert "span" not in again.url


def test_a_filter_that_fits_nobody_any_more_can_still_be_taken_away(
    browser: Browser, tmp_path: Path
) -> None:
    with ServiceThread(tmp_path) as service:
        events = hour_of_work(time.time(), 3)
        service.do(lambda running: announce(running, events))
        with opened(browser, f"{service.url}/#/?state=queued") as page:
            expect(page.locator(".filters")).to_contain_text("0 of 3 agents")
            page.locator("button.key", has_text="queued 0").click()
            expect(page.locator(".filters")).to_contain_text("3 agents")
            expect(page.locator("button.key", has_text="queued")).to_have_count(0)


# --- many agents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [500, 5000])
def test_a_frame_touches_only_what_is_in_sight(
    browser: Browser, tmp_path: Path, agents: int
) -> None:
    with ServiceThread(tmp_path) as service:
        events = hour_of_work(time.time(), agents, calls=6 if agents > 1000 else 12)
        service.do(lambda running: announce(running, events))
        with opened(browser, service.url) as page:
            expect(page.locator(".filters")).to_contain_text(f"{agents:,} agents")
            # Above 150 agents the groups are folded; unfold one, then go to the end.
            page.locator(".names .group").first.wait_for()
            shown = page.locator(".names li").count()
            assert shown <= 60
            page.get_by_role("searchbox").fill("agent-")
            page.locator(".names button[aria-expanded=false]").first.click()
            page.locator(".names a").first.wait_for()
            lowest = page.locator(".names li").last.inner_text()
            page.locator(".scroller").evaluate("e => { e.scrollTop = e.scrollHeight }")
            until(lambda: page.locator(".names li").last.inner_text() != lowest, page)
            events = hour_of_work(time.time(), 20)
            service.do(lambda running: announce(running, events))
            page.wait_for_timeout(1500)
            result = [each for each in figures(page) if each["agents"] == agents]
            height = page.locator(".scroller").evaluate("e => e.clientHeight")
            assert result
            assert max(each["rows"] for each in result) <= height / 16 + 2
            took = sorted(each["took"] for each in result)
            tell(
                f"{agents} agents: {len(result)} frames, median {took[len(took) // 2]:.1f} ms,"
                f" longest {took[-1]:.1f} ms, at most {max(e['rows'] for e in result)} rows"
            )
