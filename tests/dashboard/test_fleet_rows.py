"""The rows of the fleet: who is at work comes first, many are bands, two keys go through all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from jackline.assembly import Service
from jackline.events import CallEnded
from jackline.lane_id import LaneId
from tests.dashboard.browser import opened
from tests.dashboard.fleets import announce
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_page import until

LANE = LaneId("anthropic", "claude-opus-4-8", "11aa")
LONG = "migrate-the-billing-service-and-all-of-its-tests-part-7"
MANY = 200
FITS = """[...document.querySelectorAll(".names .label-begin")]
	.every((each) => each.scrollWidth <= each.clientWidth)"""


def ended(
    at: float, session: str, agent: str, *, waited: float = 0.0, took: float = 5.0
) -> CallEnded:
    """A call that was answered at this moment."""
    who = (session, agent, None, None, True, 200, 1)
    model = LANE.model
    name = f"{session} {agent} {at}"
    return CallEnded(at, name, "answered", LANE, model, *who, waited, took, None, 900, 100, 0, 0)


def end(service: Service, session: str, agent: str | None) -> None:
    """Its end was reported."""
    service.observatory.fleet.ended(session, agent, time.time())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    """Three sessions: one has finished, one is at work, and of one two agents have finished."""
    now = time.time()
    with ServiceThread(tmp_path_factory.mktemp("small")) as service:
        names = [
            (f"{word}-session", f"agent-{n}") for word in ("aaa", "mixed", "zzz") for n in range(4)
        ]
        events = [ended(now - 30, *who) for who in names]
        service.do(
            lambda running: announce(running, [*events, ended(now - 20, "zzz-session", LONG)])
        )
        service.do(lambda running: end(running, "aaa-session", None))
        for agent in ("agent-0", "agent-1"):
            service.do(lambda running, agent=agent: end(running, "mixed-session", agent))  # type: ignore[misc]
        yield service


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    """Two hundred agents: all waited, then half of them worked, now all rest."""
    now = time.time()
    with ServiceThread(tmp_path_factory.mktemp("large")) as service:
        agents = [(f"session-{n % 8}", f"agent-{n:03d}") for n in range(MANY)]
        events = [ended(now - 300, *who, waited=600.0, took=600.5) for who in agents]
        events += [ended(now - 20, *who, took=200.0) for who in agents[: MANY // 2]]
        service.do(lambda running: announce(running, events))
        yield service


def rows(page: Page) -> list[str]:
    return [
        each or ""
        for each in page.locator(".names li > :first-child").evaluate_all(
            "all => all.map((each) => each.getAttribute('aria-label') || each.title)"
        )
    ]


def test_who_is_at_work_comes_first_and_who_has_finished_is_folded(
    browser: Browser, small: ServiceThread
) -> None:
    with opened(browser, small.url) as page:
        expect(page.locator(".names button")).to_have_count(4)
        seen = rows(page)
        heads = [
            each.split(":")[0] for each in seen if each.startswith("session") or "finished:" in each
        ]
        assert heads == [
            "session mixed-session",
            "2 finished",
            "session zzz-session",
            "session aaa-session",
        ]
        assert not any(each.startswith("agent-0: finished") for each in seen)
        over = page.locator(".names button", has_text="aaa-session")
        assert over.get_attribute("aria-expanded") == "false"
        page.locator(".names button", has_text="2 finished").click()
        expect(page.locator(".names a[aria-label='agent-0: finished']")).to_have_count(1)


def test_a_name_loses_its_middle_and_its_column_can_be_widened(
    browser: Browser, small: ServiceThread
) -> None:
    with opened(browser, small.url) as page:
        name = page.locator(".names .middle", has_text=LONG)
        begin, rest = name.locator("span").first, name.locator("span").last
        assert begin.evaluate("e => e.scrollWidth > e.clientWidth"), "it should not fit"
        assert LONG.endswith(rest.inner_text())
        assert name.get_attribute("title") == LONG
        edge = page.get_by_role("separator", name="width of the names")
        before = int(edge.get_attribute("aria-valuenow") or 0)
        edge.focus()
        page.keyboard.press("ArrowRight")
        expect(edge).to_have_attribute("aria-valuenow", str(before + 16))
        box = edge.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 4, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 304, box["y"] + 20)
        page.mouse.up()
        until(lambda: page.evaluate(FITS), page)
        wide = edge.get_attribute("aria-valuenow")
        page.reload()
        expect(edge).to_have_attribute("aria-valuenow", str(wide))


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label') || ''"))


def test_two_keys_go_through_the_rows_and_the_tabulator_passes_them(
    browser: Browser, large: ServiceThread
) -> None:
    with opened(browser, f"{large.url}/#/?q=session-1") as page:
        expect(page.locator(".filters")).to_contain_text("25 of 200 agents")
        page.keyboard.press("j")
        until(lambda: focused(page).startswith("session session-1:"), page)
        page.keyboard.press("j")
        until(lambda: focused(page).startswith("agent-001:"), page)
        for _ in range(24):
            page.keyboard.press("j")
        # Far below what was in sight.
        until(lambda: focused(page).startswith("agent-193:"), page)
        page.keyboard.press("k")
        until(lambda: focused(page).startswith("agent-185:"), page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.names')") is None
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
        page.keyboard.type("j?")
        expect(page.get_by_role("searchbox")).to_have_value("j?")
        page.get_by_role("searchbox").fill("")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("dialog[open]")).to_contain_text("waits for the reset of a quota")
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)


BAND = """async () => {
	const [{ band }, { state }, { scale }] = await Promise.all(
		["density", "feed", "axis"].map((name) => import(`/_jackline/page/${name}.js`)));
	const agents = [...state.agents].map(([key, agent]) => ({ key, agent }));
	const made = band("test", agents, 50, scale(), {}, 0);
	const { found } = made.counts;
	// In the order of the band: answering, between calls, queued.
	return { bin: made.bin, first: made.first, counts: [0, 1, 2].map((i) => [...found[i]]) };
}"""


def test_many_agents_are_their_states_over_time(browser: Browser, large: ServiceThread) -> None:
    """What is drawn of a moment is how many were in each state then, not a share of now."""
    with opened(browser, large.url) as page:
        assert rows(page)[0].startswith(f"all {MANY} agents:")
        found: dict[str, Any] = page.evaluate(BAND)
        (first, *_) = large.do(lambda service: service.observatory.fleet.known())
        member = large.do(lambda service: service.observatory.fleet.member(first))
        assert member is not None
        now = member.stretches[0].ends + 300

        def at(seconds_ago: float) -> list[int]:
            place = int((now - seconds_ago) / found["bin"]) - int(found["first"])
            return [int(each[place]) for each in found["counts"]]

        assert at(600) == [0, 0, MANY]
        assert at(260) == [0, MANY // 2, 0]
        assert at(120) == [MANY // 2, 0, 0]
