"""Who costs most, who really answers, what an order destroys, why a run waits, how one begins."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from jackline.events import CallEnded
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.journal import JournalReader
from jackline.lane_id import LaneId
from jackline.testing.simulated_provider import SimulatedProvider
from tests.cli.commands import jackline
from tests.cli.gateways import Place
from tests.dashboard.browser import opened
from tests.dashboard.service_thread import ServiceThread
from tests.dashboard.test_page import WALL, ask, held, until

DEAR = LaneId("anthropic", "claude-opus-4-8", "11aa")
CHEAP = LaneId("backup", "claude-haiku-4-5", "22bb")
STRANGE = "<img src=x onerror=alert(1)>"


def call(lane: LaneId, session: str, agent: str, tokens: int, *, ago: float = 30.0) -> CallEnded:
    who = (session, agent, None, None, True, 200, 1)
    name = f"{session} {agent} {ago}"
    at = time.time() - ago
    return CallEnded(at, name, "answered", lane, lane.model, *who, 0.0, 2.0, None, tokens, 0, 0, 0)


CALLS = (
    (DEAR, "s-small", "dear", 1000),
    (CHEAP, "s-large", "busy", 3000),
    (CHEAP, "s-large", STRANGE, 500),
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    """Three agents: the one with the fewest tokens costs most; and two runs, one of which waits."""
    folder = tmp_path_factory.mktemp("costs")
    with ServiceThread(folder, "http://127.0.0.1:9", "http://127.0.0.1:9") as service:
        for each in CALLS:
            event = call(*each)
            service.do(lambda running, event=event: running.observatory.announce(event))  # type: ignore[misc]
            service.do(lambda running, event=event: running._journal.announce(event))  # type: ignore[misc]
        service.do(
            lambda running: running._journal.announce(call(DEAR, "s-old", "", 9000, ago=3 * 86400))
        )
        assert service.do(lambda running: running._journal.flush())
        service.wait(_runs(service.folder / "flows.db"))
        yield service


async def _runs(store: Path) -> None:
    engine = open_run_store(run_store_url(store.parent))
    try:
        for name, state in (
            ("old", RunState.FINISHED),
            ("new", RunState.RUNNING),
            ("asleep", RunState.PARKED),
        ):
            claim = await engine.create(
                RunRecord(name, f"flow_{name}", "f.py", b"{}"), owner="x", lease=600
            )
            agent = CallRecord(
                name, "k", 0, CallKind.AGENT, "worker", "", f"t-{name}", CallState.RUNNING
            )
            await engine.begin_call(claim, agent)
            record = await engine.run(name)
            assert record is not None
            if state is RunState.FINISHED:
                await engine.end_call(claim, replace(agent, state=CallState.DONE, tokens=7))
            if state is not RunState.RUNNING:
                why = "the quota is gone" if state is RunState.PARKED else ""
                wakes = time.time() + 900 if state is RunState.PARKED else None
                await engine.let_go(claim, replace(record, state=state, why=why, wake_at=wakes))
    finally:
        await engine.close()


def test_who_costs_most_is_first_and_every_column_sorts(
    browser: Browser, service: ServiceThread
) -> None:
    with opened(browser, service.url) as page:
        rows = page.locator(".costs tbody tr")
        names = ".costs tbody tr:not(.sum) th"
        expect(rows).to_have_count(4)
        assert page.locator(names).all_text_contents() == [
            "dear s-small",
            "busy s-large",
            f"{STRANGE} s-large",
        ]
        assert page.locator("img").count() == 0
        with JournalReader(service.folder / "journal.db") as reader:
            used = reader.totals(time.time() - 3600)
        # $5 and $1 for a million: 1,000 of the one, 3,500 of the other.
        expect(rows.last).to_contain_text(f"{used.input_tokens:,}")
        expect(rows.last).to_contain_text("$0.0085")
        expect(page.locator(".burn .money")).to_contain_text("$0.0085 today")
        page.locator(".costs th button", has_text="tokens").click()
        expect(page.locator(".costs th[aria-sort=descending]")).to_contain_text("tokens")
        assert page.locator(names).first.inner_text().startswith("busy")
        page.locator(".costs th button", has_text="tokens").click()
        expect(page.locator(".costs th[aria-sort=ascending]")).to_contain_text("tokens")
        assert "sort=-tokens" in page.url
        page.get_by_role("button", name="by model").click()
        expect(page.locator(names).first).to_have_text(DEAR.model)
        page.get_by_role("button", name="by session").click()
        expect(page.locator(names)).to_have_text(["s-small", "s-large"])
        page.get_by_role("button", name="by day").click()
        page.locator(".costs select").select_option("7")
        expect(page.locator(names)).to_have_count(2)
        days = page.locator(names).all_inner_texts()
        assert days == sorted(days, reverse=True)
        expect(rows.last).to_contain_text(f"{used.input_tokens + 9000:,}")


def test_the_page_and_the_command_count_alike(service: ServiceThread) -> None:
    words = ("cost", "--by", "agent", "--since", "7d", "--json", "--state", service.folder)
    counted = json.loads(jackline(*words).out)
    with urllib.request.urlopen(f"{service.url}/_jackline/costs?days=7") as answer:  # noqa: S310 -- a loopback address
        shown = json.load(answer)
    for total in (counted["total"], *counted["rows"]):
        total["dollars"] = round(total.pop("cost"), 4)
        total["unpriced"] = total.pop("unpriced_tokens")
    rows = {(row.pop("session"), row.pop("agent")): row for row in counted["rows"]}
    assert shown["total"] == counted["total"]
    assert {tuple(row.pop("key")): row for row in shown["by"]["agent"]["rows"]} == rows


def test_who_really_answers_is_told_by_answers(browser: Browser, service: ServiceThread) -> None:
    with opened(browser, service.url) as page:
        row = page.locator(".who tbody tr", has_text="backup/claude-haiku-4-5")
        expect(row).to_contain_text("2")
        expect(row).to_contain_text("100 %")


def test_runs_at_work_come_first_and_say_why_they_wait(
    browser: Browser, service: ServiceThread
) -> None:
    with opened(browser, service.url) as page:
        cards = page.locator(".run")
        expect(cards).to_have_count(2)
        expect(cards.nth(0)).to_contain_text("flow_new")
        expect(cards.nth(1)).to_contain_text("the quota is gone")
        expect(cards.nth(1).locator(".state")).to_contain_text("parked until")
        ended = page.locator(".ended summary").first
        expect(ended).to_have_text("1 ended: 1 finished")
        ended.click()
        expect(cards).to_have_count(3)
        expect(cards.nth(2)).to_contain_text("flow_old")


def test_what_a_running_run_waits_for_is_on_the_run(browser: Browser, tmp_path: Path) -> None:
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        port = int(service.url.rpartition(":")[2])
        service.wait(_runs(service.folder / "flows.db"))
        assert ask(port, "session-1", "agent-0", "new") == 200
        provider.quota_wall(WALL)
        with held(port, 3, "new"), opened(browser, service.url) as page:
            card = page.locator(".run").first
            expect(card.locator(".state")).to_have_text("■ 3 parked")
            reset = page.locator(".card").inner_text().split("to reset, ")[1].split()[0]
            expect(card.locator(".why").first).to_contain_text(f"3 agents parked until {reset}: ")


def test_a_button_that_destroys_looks_so_and_says_what_is_lost(
    browser: Browser, service: ServiceThread
) -> None:
    with opened(browser, f"{service.url}/#token={service.token}") as page:
        cancel = page.get_by_role("button", name="cancel run new")
        resume = page.get_by_role("button", name="resume run asleep")
        colour = "e => getComputedStyle(e).borderColor"
        assert cancel.evaluate(colour) != resume.evaluate(colour)
        cancel.click()
        expect(page.locator("dialog .loses")).to_contain_text("unfinished work of 1 agent")
        expect(page.locator("dialog .loses")).to_contain_text("it cannot be resumed")
        # Who presses Enter without reading destroys nothing.
        assert page.evaluate("document.activeElement.innerText") == "Leave it"
        page.keyboard.press("Enter")
        expect(page.locator("dialog[open]")).to_have_count(0)
        resume.click()
        expect(page.locator("dialog .loses")).to_have_count(0)
        assert page.evaluate("document.activeElement.innerText") == "Resume it"
        page.keyboard.press("Escape")


def test_an_empty_page_says_how_to_begin_and_offers_a_drill(
    browser: Browser, tmp_path: Path
) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up(), opened(browser, place.url) as page:
            begin = page.locator(".panel", has_text="No client has called yet")
            for words in (
                "jackline claude",
                "jackline exec -- ",
                "jackline drill throttle-storm --watch",
            ):
                expect(begin).to_contain_text(words)
            expect(begin).to_contain_text(f"ANTHROPIC_BASE_URL={place.url}")
            assert page.locator(".columns").count() == 0
            assert ask(place.port, "session-1") == 200
            page.locator(".names a").wait_for()
            until(lambda: begin.count() == 0, page)
