"""What belongs together is one: one time axis, one clock for a wall, one use of colours."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from jackline.assembly import Service
from jackline.events import WindowsReported
from jackline.testing.simulated_provider import SimulatedProvider
from tests.dashboard.browser import Scheme, opened
from tests.dashboard.fleets import LANES, announce, hour_of_work
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_page import WALL, ask, held, status, until

PLACES = """async () => {
	const { scale } = await import("/_jackline/page/axis.js");
	const left = document.querySelector(".timeline").getBoundingClientRect().left;
	const { x, at, ticks } = scale();
	const shown = [...document.querySelectorAll(".plot .tick")].filter((each) => each.innerText);
	const box = (each) => each.getBoundingClientRect();
	const middle = (each) => box(each).left + box(each).width / 2;
	return {
		now: [left + x(at), document.querySelector(".plot .moment").getBoundingClientRect().left],
		ticks: shown.map(middle), expected: ticks.map((time) => left + x(time)),
		burn: document.querySelector(".plot svg").getBoundingClientRect().left - left,
	};
}"""
COLOURS = """() => {
	const style = getComputedStyle(document.documentElement);
	const tones = ["go", "tool", "slow", "park", "down", "bad", "done", "try",
		"t-go", "t-tool", "t-park", "t-slow", "t-down", "t-done"];
	const probe = document.body.appendChild(document.createElement("i"));
	const plain = (colour) => { probe.style.color = colour; return getComputedStyle(probe).color; };
	const values = tones.map((tone) => style.getPropertyValue(`--${tone}`).trim());
	const states = values.filter(Boolean).map(plain);
	const all = (query) => [...document.querySelectorAll(query)];
	const amounts = all(".plot path").map((each) => getComputedStyle(each).fill)
		.concat(all(".bar").map((each) => getComputedStyle(each, "::after").backgroundColor));
	probe.remove();
	return [states, amounts];
}"""


def report_windows(service: Service) -> None:
    """Ten minutes ago a third of the window was used, now it is half of it."""
    now = time.time()
    for ago, used in ((600, 0.3), (1, 0.5)):
        windows = (("5h", used, float(round(now + 3 * 3600))),)
        service.observatory.announce(WindowsReported(now - ago, LANES[0], windows))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    with ServiceThread(tmp_path_factory.mktemp("axis")) as service:
        events = hour_of_work(time.time(), 12, in_group=6)
        service.do(lambda running: announce(running, events))
        service.do(report_windows)
        yield service


def test_fleet_events_and_burn_share_one_axis(browser: Browser, service: ServiceThread) -> None:
    for width in (1180, 420):
        with opened(browser, service.url, width=width) as page:
            page.locator(".plot .tick").first.wait_for()
            page.wait_for_timeout(300)
            found = page.evaluate(PLACES)
            assert abs(found["now"][0] - found["now"][1]) < 3
            assert found["ticks"]
            for each in found["ticks"]:
                assert min(abs(each - place) for place in found["expected"]) < 3
            assert found["burn"] > 50, "the burn begins where the names end"


def test_the_line_under_the_pointer_is_on_both(browser: Browser, service: ServiceThread) -> None:
    with opened(browser, service.url) as page:
        plot = page.locator(".plot")
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 30)
        line = page.locator(".plot .cursor")
        expect(line).to_be_visible()
        assert abs((line.bounding_box() or box)["x"] - box["x"] - 200) < 3
        timeline = page.locator(".timeline").bounding_box()
        assert timeline is not None
        page.mouse.move(box["x"] + 260, timeline["y"] + 60)
        until(lambda: abs((line.bounding_box() or box)["x"] - box["x"] - 260) < 3, page)


def test_colours_of_states_are_for_states_alone(browser: Browser, service: ServiceThread) -> None:
    schemes: tuple[Scheme, ...] = ("dark", "light")
    for scheme in schemes:
        with opened(browser, service.url, scheme=scheme) as page:
            page.locator(".plot path").first.wait_for(state="attached")
            states, amounts = page.evaluate(COLOURS)
            assert amounts
            assert not set(states) & set(amounts)


def test_everything_that_is_drawn_is_in_a_legend(browser: Browser, service: ServiceThread) -> None:
    with opened(browser, service.url) as page:
        page.locator(".names a").first.wait_for()
        drawn = page.evaluate(
            """async () => {
            const { state } = await import("/_jackline/page/feed.js");
            const kinds = new Set();
            for (const { flat } of state.stretches.values())
                for (let i = 2; i < flat.length; i += 3) kinds.add(state.agentStates[flat[i]]);
            return [...kinds];
        }"""
        )
        assert {"throttled", "parked", "answering"} <= set(drawn)
        keys = page.locator(".fleet button.key").all_inner_texts()
        for kind in drawn:
            assert any(f" {kind} " in key for key in keys), kind
        legend = page.locator(".fleet .marks")
        for words in (
            "now",
            "reset of a quota",
            "waits until there",
            "expected to go on",
            "happened",
        ):
            expect(legend).to_contain_text(words)
        expect(page.locator(".burn .marks")).to_contain_text("one shade for each lane")


def test_a_window_is_a_bar_with_its_forecast(browser: Browser, service: ServiceThread) -> None:
    port = int(service.url.rpartition(":")[2])
    with opened(browser, service.url) as page:
        gauge = page.locator(".gauges li", has_text="5-hour window")
        (forecast,) = status(port)["forecast"]
        expect(gauge).to_contain_text(f"{round(forecast['used'] * 100)} %, resets ")
        ends = time.strftime("%H:%M", time.gmtime(round(forecast["ends_at"] / 60) * 60))
        expect(gauge).to_contain_text(f"at this pace used up at {ends}")
        bar = gauge.locator(".bar")
        share = float(bar.evaluate("e => e.style.getPropertyValue('--share')"))
        assert share == pytest.approx(forecast["used"], abs=0.001)
        assert float(bar.evaluate("e => e.style.getPropertyValue('--ahead')")) == 1.0


def test_a_wall_has_one_clock_and_one_countdown(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict, the cards and the agents say the same words, in the zone of the service."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
            port = int(service.url.rpartition(":")[2])
            assert ask(port, "session-1", "agent-0") == 200
            provider.quota_wall(WALL)
            with held(port, 2), opened(browser, service.url, zone="UTC") as page:
                expect(page.locator("#verdict")).to_contain_text("parked until")
                words = """() => [document.querySelector("#verdict").innerText,
                    document.querySelector(".card").innerText,
                    document.querySelector(".names a[aria-label*=parked]").ariaLabel,
                    document.body.innerText]"""
                verdict, card, agent, whole = page.evaluate(words)
                found = re.findall(r"until (\S+) (\S+) \(in ([^)]*)\)", verdict)
                assert len(found) == 1, verdict
                ((clock, zone, left),) = found
                assert f"{left} to reset, {clock} {zone}" in " ".join(card.split())
                assert f"parked until {clock}" in agent
                assert "is parked until then" in verdict
                assert "UTC" not in whole
                assert f"times in {zone}" in whole
    finally:
        monkeypatch.undo()
        time.tzset()
