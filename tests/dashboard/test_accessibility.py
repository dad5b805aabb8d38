"""Everyone can use the page: by keyboard, by screen reader, in both themes, on a small screen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from jackline.assembly import Service
from jackline.events import CallEnded
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.testing.simulated_provider import SimulatedProvider
from tests.dashboard.browser import Scheme, opened
from tests.dashboard.fleets import announce, hour_of_work
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_page import WALL, ask, held, status
from tests.real_clients.npm_packages import unpacked

AXE = "axe-core@4.14.0"
RUN = "parkedrun1"


def faults(page: Page) -> list[str]:
    """What axe finds that is serious or worse."""
    page.evaluate(
        (unpacked(AXE, "axe-core-4.14.0", "axe.min.js") / "package/axe.min.js").read_text()
    )
    found = page.evaluate("axe.run()")
    return [
        f"{each['id']}: {each['help']} {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    """A fleet of sixty with an hour behind it, and a run that waits for a person."""
    folder = tmp_path_factory.mktemp("everyone")
    with SimulatedProvider() as provider, ServiceThread(folder, provider.url) as service:
        ask(int(service.url.rpartition(":")[2]), "session-0000", "agent-00")
        events = hour_of_work(time.time(), 60)
        service.do(lambda running: announce(running, events))
        service.wait(_parked_run(service.folder / "flows.db"))
        yield service


async def _parked_run(store: Path) -> None:
    engine = open_run_store(run_store_url(store.parent))
    try:
        run = RunRecord(RUN, "nightly", "nightly.py", b"{}")
        claim = await engine.create(run, owner="x", lease=60)
        agent = CallKind.AGENT
        call = CallRecord(RUN, "k1", 0, agent, "greeter", "ask", "t-1", CallState.RUNNING)
        await engine.begin_call(claim, call)
        await engine.end_call(claim, replace(call, state=CallState.FAILED, terminated_by="error"))
        record = await engine.run(RUN)
        assert record is not None
        await engine.let_go(claim, replace(record, state=RunState.PARKED, why="the quota is gone"))
    finally:
        await engine.close()


@pytest.mark.parametrize("width", [1440, 420])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_page_is_accessible(
    browser: Browser, service: ServiceThread, scheme: Scheme, width: int
) -> None:
    address = f"{service.url}/#token={service.token}"
    with opened(browser, address, scheme=scheme, width=width) as page:
        page.locator(".names a").first.wait_for()
        assert faults(page) == []
        page.get_by_role("button", name="pause").first.click()
        assert faults(page) == [], "the question before an order"
        page.get_by_role("button", name="Leave it").click()
        page.goto(f"{service.url}/#/agent/session-0000/agent-00")
        page.locator(".detail table").first.wait_for()
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"{service.url}/#/run/{RUN}")
        expect(page.locator(".detail h2")).to_contain_text("nightly")
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_fleet_can_be_walked_by_keyboard(browser: Browser, service: ServiceThread) -> None:
    with opened(browser, f"{service.url}/#/?q=session-0001") as page:
        first = page.locator(".names a").first
        first.focus()
        name = first.get_attribute("aria-label") or ""
        # It was last heard of minutes ago; on a slow machine that becomes a quarter of an hour.
        assert name in ("agent-00: quiet", "agent-00: finished")
        page.keyboard.press("Enter")
        page.locator(".detail h2", has_text="agent-00").wait_for()
        assert page.evaluate("document.activeElement.id") == "main"
        page.go_back()
        first.wait_for()
        fold = page.locator(".names button").first
        assert fold.get_attribute("aria-expanded") == "true"
        fold.press("Enter")
        expect(fold).to_have_attribute("aria-expanded", "false")


def test_the_tabulator_goes_from_top_to_bottom_and_skips_nothing(
    browser: Browser, service: ServiceThread
) -> None:
    with opened(browser, f"{service.url}/#token={service.token}") as page:
        page.locator(".names a").first.wait_for()
        heights: list[tuple[float, str]] = []
        for _ in range(8):
            page.keyboard.press("Tab")
            heights.append(
                tuple(
                    page.evaluate(
                        "[document.activeElement.getBoundingClientRect().top + scrollY,"
                        " document.activeElement.tagName]"
                    )
                )
            )
        kinds = {kind for _, kind in heights}
        assert {"A", "BUTTON"} <= kinds
        # In lines: a button begins a little above the words beside it.
        lines = [top // 12 for top, _ in heights]
        assert lines == sorted(lines)


def test_the_focus_stays_while_the_page_lives_on(browser: Browser, service: ServiceThread) -> None:
    """Rows before it come and go, and the focused name keeps the focus."""
    with opened(browser, f"{service.url}/#/?q=session-0000") as page:
        row = page.locator(".names a[aria-label^='agent-10:']")
        row.focus()

        def others_come(running: Service) -> None:
            ended = [each for each in hour_of_work(time.time(), 3) if isinstance(each, CallEnded)]
            for each in ended:
                # Sorted before the one that is looked at, in the same group, and so many that it
                # is out of sight then.
                running.observatory.announce(each._replace(agent=f"agent-0{each.call}"))

        service.do(others_come)
        expect(page.locator(".filters")).to_contain_text("agents")
        page.wait_for_timeout(1500)
        shown = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert str(shown).startswith("agent-10:")
        # Those behind a row that goes away stay what they are, and so does the focus.
        page.get_by_role("searchbox").evaluate("e => { e.value = 'agent-1' }")
        page.get_by_role("searchbox").dispatch_event("input")
        expect(page.locator(".names a[aria-label^='agent-00:']")).to_have_count(0)
        shown = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert str(shown).startswith("agent-10:")


def test_only_the_verdict_is_read_out_and_not_its_clocks(browser: Browser, tmp_path: Path) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        port = int(service.url.rpartition(":")[2])
        assert ask(port, "session-1", "agent-0") == 200
        provider.quota_wall(WALL)
        with held(port, 2):
            while "parked until" not in status(port)["verdict"]:
                time.sleep(0.02)
            with opened(browser, service.url) as page:
                expect(page.locator("#verdict")).to_contain_text("(in ")
                loud = page.locator("[aria-live], [role=status], [role=alert], [role=log]")
                # What an order came to is the other: silent until somebody gives one.
                ids = loud.evaluate_all("all => all.map((each) => each.id)")
                assert ids == ["spoken", "toast"]
                assert page.locator("#toast").inner_text() == ""
                words = page.locator("#spoken").text_content() or ""
                assert "parked until" in words
                assert "(in " not in words
                page.wait_for_timeout(1500)
                assert page.locator("#spoken").text_content() == words, "clocks are not read out"
