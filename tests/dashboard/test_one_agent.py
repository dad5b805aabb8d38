"""One agent on its own page and row: what its client reports, and orders to it alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, expect

from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.telemetry.client_telemetry import API_REQUEST, TOOL_RESULT, ClientEvent
from tests.dashboard.browser import opened
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_accessibility import faults

RUN = "r1"
ENDS = {"reader": CallState.RUNNING, "writer": CallState.FAILED, "critic": CallState.DONE}


async def a_parked_run(store: Path) -> None:
    """A run of three agents: one under way, one that failed, one that is done."""
    engine = open_run_store(run_store_url(store.parent))
    try:
        run = RunRecord(RUN, "survey", "survey.py", b"{}")
        claim = await engine.create(run, owner="x", lease=60)
        for number, (label, state) in enumerate(ENDS.items()):
            task = f"task-{number}"
            call = CallRecord(RUN, label, 0, CallKind.AGENT, label, "", task, CallState.RUNNING)
            await engine.begin_call(claim, call)
            if state is not CallState.RUNNING:
                await engine.end_call(claim, replace(call, state=state, terminated_by="error"))
        record = await engine.run(RUN)
        assert record is not None
        await engine.let_go(claim, replace(record, state=RunState.PARKED, why="by request"))
    finally:
        await engine.close()


def test_each_agent_of_a_run_has_the_orders_that_make_sense_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    with ServiceThread(tmp_path) as service:
        service.wait(a_parked_run(service.folder / "flows.db"))
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            page.locator(".run summary").click()
            leaves = page.locator(".tree li")
            expect(leaves).to_have_count(3)
            orders = leaves.evaluate_all(
                "all => all.map((each) => each.querySelector('.orders').innerText.split(/\\s+/))"
            )
            assert orders == [["cancel"], ["resume", "retry"], [""]]
            for verb, command, words in (
                ("resume", f"jackline resume {RUN}", "in the same conversation"),
                ("retry", f"jackline resume {RUN} --failed", "nothing else that failed"),
            ):
                page.get_by_role("button", name=f"{verb} writer").click()
                expect(page.locator("dialog h2")).to_have_text(f"{verb.capitalize()} writer")
                expect(page.locator("dialog")).to_contain_text(words)
                expect(page.locator("dialog code")).to_have_text(f"{command} --only task-1")
                page.get_by_role("button", name="Leave it").click()


def test_one_agent_is_cancelled_from_its_own_page_and_its_siblings_are_not(
    browser: Browser, tmp_path: Path
) -> None:
    with ServiceThread(tmp_path) as service:
        service.wait(a_parked_run(service.folder / "flows.db"))
        address = f"{service.url}/#token={service.token}"
        with opened(browser, address) as page:
            page.evaluate("location.hash = '#/agent/s1/task-0'")
            detail = page.locator(".detail")
            expect(detail).to_contain_text("this agent:")
            expect(detail).to_contain_text("its run:")
            assert faults(page) == []
            page.get_by_role("button", name="cancel reader").click()
            asks = page.locator("dialog")
            expect(asks).to_contain_text("Its siblings go on")
            expect(asks).to_contain_text("Its resume undoes it")
            page.get_by_role("button", name="Cancel it").click()
            expect(detail).to_contain_text("To go on: jackline resume r1 --only task-0")
            expect(page.get_by_role("button", name="resume reader")).to_be_visible()
            expect(page.get_by_role("button", name="cancel run r1")).to_be_visible()


def test_the_way_back_that_the_service_names_is_offered_and_taken(
    browser: Browser, tmp_path: Path
) -> None:
    """The answer is made here, so that the time a process takes to start does not matter."""
    undo = {"order": "resume", "run": RUN, "only": "task-0"}
    with ServiceThread(tmp_path) as service:
        service.wait(a_parked_run(service.folder / "flows.db"))
        with opened(browser, f"{service.url}/#token={service.token}") as page:
            page.route("**/run/cancel", lambda asked: asked.fulfill(json={"undo": undo}))
            page.route("**/run/resume", lambda asked: asked.fulfill(json={}))
            page.locator(".run summary").click()
            page.get_by_role("button", name="cancel reader").click()
            page.get_by_role("button", name="Cancel it").click()
            expect(page.locator("#toast")).to_contain_text("Cancel reader: done.")
            with page.expect_request("**/run/resume") as ordered:
                page.get_by_role("button", name="Undo").click()
            shown = ordered.value.post_data_json
            assert shown is not None
            assert (shown["run"], shown["only"]) == (RUN, "task-0")
            expect(page.locator("#toast")).to_contain_text("It is as it was before.")


def test_what_a_client_reports_of_its_agent_is_shown_beside_what_was_seen(
    browser: Browser, tmp_path: Path
) -> None:
    used: dict[str, str | float | bool]
    used = {"input_tokens": 2000, "output_tokens": 300, "cost_usd": 0.25, "agent.name": "Explore"}
    tools: tuple[dict[str, str | float | bool], ...] = (
        {"tool_name": "Bash", "duration_ms": 4200, "success": "true"},
        {"tool_name": "Bash", "duration_ms": 1800, "success": "false"},
    )
    with ServiceThread(tmp_path) as service:
        book = service.service._client_reports
        shown = [(API_REQUEST, used), *((TOOL_RESULT, each) for each in tools)]
        for what, about in shown:
            event = ClientEvent(time.time(), what, "s1", "a1", about, traced=False)
            service.do(lambda _running, event=event: book.add(event))  # type: ignore[misc]
        with opened(browser, f"{service.url}/#/agent/s1/a1") as page:
            detail = page.locator(".detail")
            expect(detail).to_contain_text("0 calls in the last day")
            expect(detail).to_contain_text(
                "Its client reports: Explore, 1 call, 0 failed · 2,300 tokens · $0.25"
            )
            table = page.get_by_role("region", name="tools, as its client reports them")
            expect(table.locator("tbody tr")).to_have_text(["Bash216 s"])
            page.goto(f"{service.url}/#/agent/s1/a2")
            expect(detail).to_contain_text("0 calls in the last day")
            expect(detail).not_to_contain_text("Its client reports")
