"""Runs of flows on the page, from a real run in a real process to the order that mends it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, expect

from jackline.flows.records import RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.lane_id import LaneId
from jackline.testing.simulated_provider import SimulatedProvider
from tests import warm_processes
from tests.dashboard.browser import opened
from tests.dashboard.service_thread import ServiceThread

FLOW = '''
from pathlib import Path
from jackline import agent, flow, phase, step

def look(place: str) -> str:
    """Fails until somebody has put things right."""
    return Path(place).read_text()

@flow
async def mend(place: str) -> str:
    async with phase("ask"):
        await agent("Say anything.", label="greeter")
    async with phase("look"):
        return await step(look, place)
'''


def jackline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm_processes.run(
        [sys.executable, "-m", "jackline", *arguments, "--state", str(folder / "state")],
        env={**os.environ, "ANTHROPIC_API_KEY": "none", "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_failed_run_is_seen_understood_and_retried_from_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "mending.py").write_text(FLOW)
    missing = tmp_path / "missing.txt"
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        ran = jackline(tmp_path, "run", "mending.py", "--place", str(missing))
        assert ran.returncode == 1, ran.stderr
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            card = page.locator(".run")
            expect(card.locator(".state")).to_have_text("▲ failed")
            expect(card).to_contain_text("1 of 1 agent ok; 1 step, 1 failed")
            card.locator("summary").click()
            expect(card.locator(".tree li")).to_have_count(2)
            expect(card.locator(".tree").first).to_contain_text("greeter")
            # The flow knows that its agent has ended; the timeline takes its word for it.
            expect(page.locator(".names a", has_text="greeter")).to_have_attribute(
                "aria-label", re.compile("^greeter · mend .*: finished$")
            )
            card.locator("h3 a").click()
            expect(page.locator(".detail")).to_contain_text("To go on: jackline resume")
            expect(page.locator(".detail")).to_contain_text("FileNotFoundError")
            calls = len(provider.ledger)
            missing.write_text("found")
            page.get_by_role("button", name="retry run").click()
            expect(page.locator("dialog")).to_contain_text(
                "What failed runs again (0 agents, 1 step)"
            )
            expect(page.locator("dialog code")).to_contain_text("--failed")
            page.locator("dialog .do").click()
            expect(page.locator("#toast.shown")).not_to_have_text("…")
            page.go_back()
            expect(card.locator(".state")).to_have_text("✓ finished")
            assert len(provider.ledger) == calls, "what was finished was paid for again"


def test_one_call_is_retried_from_its_leaf_and_a_run_resumed_and_cancelled(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "mending.py").write_text(FLOW)
    missing = tmp_path / "missing.txt"
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        assert jackline(tmp_path, "run", "mending.py", "--place", str(missing)).returncode == 1
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            state = page.locator(".run .state")
            page.get_by_role("button", name="resume run").click()
            expect(page.locator("dialog")).to_contain_text(
                "What is finished answers from the store and costs nothing: 1 of 1 agent ok"
            )
            expect(page.locator("dialog")).to_contain_text("It cannot be undone from here.")
            page.locator("dialog .do").click()
            # What failed is still missing: the run has gone on, and has failed again.
            expect(page.locator("#toast.shown")).to_contain_text(
                re.compile("jackline resume|missing.txt")
            )
            expect(state).to_have_text("▲ failed")
            assert len(provider.ledger) == 1, "what was finished was asked for again"
            missing.write_text("found")
            page.locator(".run summary").click()
            page.get_by_role("button", name="retry look").click()
            expect(page.locator("dialog")).to_contain_text("labelled look run again")
            expect(page.locator("dialog code")).to_contain_text("--only look")
            page.locator("dialog .do").click()
            expect(state).to_have_text("✓ finished")
            service.wait(_leave_parked(service.folder / "flows.db"))
            later = page.locator(".run", has_text="later").locator(".state")
            expect(later).to_have_text("■ parked")
            page.get_by_role("button", name="cancel run parked").click()
            expect(page.locator("dialog")).to_contain_text("The run ends for good")
            page.locator("dialog .do").click()
            expect(later).to_have_text("– cancelled")


async def _leave_parked(store: Path) -> None:
    """A run that waits for a person."""
    engine = open_run_store(run_store_url(store.parent))
    try:
        run = RunRecord("parked", "later", "", b"{}")
        claim = await engine.create(run, owner="x", lease=60)
        record = await engine.run("parked")
        assert record is not None
        await engine.let_go(claim, replace(record, state=RunState.PARKED, why="by request"))
    finally:
        await engine.close()


def test_a_button_stays_itself_while_the_page_is_drawn_anew(
    browser: Browser, tmp_path: Path
) -> None:
    """A press counts also in the moment in which something changes around the button."""
    with ServiceThread(tmp_path) as service:
        service.do(
            lambda running: running.desk.open_lane(LaneId("anthropic", "claude-opus-4-8", "00"))
        )
        service.wait(_leave_parked(service.folder / "flows.db"))
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            expect(page.locator(".run")).to_contain_text("by request")
            pressed = page.evaluate_handle("() => [...document.querySelectorAll('button.order')]")
            names = pressed.evaluate("all => all.map((each) => each.ariaLabel)")
            assert "cancel run parked" in names
            assert "pause anthropic/claude-opus-4-8" in names
            service.wait(_say_why(service.folder / "flows.db", ""))
            lane = service.service.carrier.controller.lanes[
                LaneId("anthropic", "claude-opus-4-8", "00")
            ]
            now = service.service.desk.now()
            service.do(lambda _running: lane.park(None, now + 3600, now))
            expect(page.locator(".run")).not_to_contain_text("by request")
            expect(page.locator(".card")).to_contain_text("to reset")
            assert pressed.evaluate("all => all.every((each) => each.isConnected)")


async def _say_why(store: Path, why: str) -> None:
    engine = open_run_store(run_store_url(store.parent))
    try:
        claim = await engine.claim("parked", owner="y", lease=60)
        record = await engine.run("parked")
        assert claim is not None
        assert record is not None
        await engine.let_go(claim, replace(record, state=RunState.PARKED, why=why))
    finally:
        await engine.close()


def test_calls_for_a_model_are_sent_elsewhere_and_back(browser: Browser, tmp_path: Path) -> None:
    with (
        SimulatedProvider() as one,
        SimulatedProvider() as two,
        ServiceThread(tmp_path, one.url, two.url) as service,
    ):
        service.do(
            lambda running: running.desk.open_lane(LaneId("anthropic", "claude-opus-4-8", "00"))
        )
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            card = page.locator(".card[data-lane='anthropic/claude-opus-4-8']")
            card.get_by_role("button", name="use another upstream").click()
            expect(page.locator("dialog select")).to_have_value("other0")
            page.get_by_role("button", name="Use it").click()
            expect(page.locator("#top")).to_contain_text("claude-opus-4-8 to other0")
            (order,) = service.service.desk.chooser.orders
            assert (order.upstream, order.model) == ("other0", "claude-opus-4-8")
            page.get_by_role("button", name="Undo").click()
            expect(page.locator("#top")).not_to_contain_text("other0")
            assert service.service.desk.chooser.orders == ()
            # And back by its own order, when there is no more undo.
            card.get_by_role("button", name="use another upstream").click()
            page.get_by_role("button", name="Use it").click()
            card.get_by_role("button", name="end the order").click()
            expect(page.locator("dialog")).to_contain_text("the written order of upstreams again")
            page.get_by_role("button", name="Go back").click()
            expect(page.locator("#top")).not_to_contain_text("other0")
            assert service.service.desk.chooser.orders == ()


def test_what_is_left_over_is_released_by_order(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "renting.py").write_text(
        "from jackline import ctx, flow\n\n"
        "@flow\n"
        "async def rent() -> str:\n"
        f"    await ctx.resource('vm-7', release='test -e {tmp_path}/may-go')\n"
        "    return 'rented'\n"
    )
    with ServiceThread(tmp_path) as service:
        ran = jackline(tmp_path, "run", "renting.py")
        assert ran.returncode != 2, ran.stderr
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            held = page.locator(".flows", has_text="vm-7")
            expect(held).to_contain_text("its release failed")
            page.get_by_role("button", name="release vm-7").click()
            (tmp_path / "may-go").touch()
            page.locator("dialog .do").click()
            # The service tries again by itself, too, and may have been first.
            gone = re.compile("vm-7|nothing is held")
            expect(page.locator("#toast.shown")).to_contain_text(gone)
            expect(page.locator(".flows")).not_to_contain_text("vm-7")
