"""Orders to single agents over the control API: possible orders and their undo are listed."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jackline.flows.store import open_run_store, run_store_url
from jackline.simulator.reply_script import Say
from jackline.testing import Rule, SimulatedProvider
from tests import warm_processes
from tests.dashboard.service_thread import PATIENCE, ServiceThread

FLOW = """
from jackline import agent, flow, parallel

@flow
async def pair() -> str:
    given = (agent(f"{each} words", label=each) for each in ("quick", "slow"))
    return (await parallel(given)).summary
"""
ANSWERS = Rule(Say("done"))


def asked(service: ServiceThread, path: str, order: object = None) -> tuple[int, Any]:
    """The status and the document; an order is sent with the control token."""
    place = urlsplit(service.url)
    line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
    try:
        if order is None:
            line.request("GET", f"/_jackline/{path}")
        else:
            headers = {"x-jackline-control": service.token, "content-type": "application/json"}
            line.request("POST", f"/_jackline/{path}", json.dumps(order), headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


def started(folder: Path) -> subprocess.Popen[str]:
    return warm_processes.Popen(
        [sys.executable, "-m", "jackline", "run", "pair.py", "--state", str(folder / "state")],
        env={**os.environ, "ANTHROPIC_API_KEY": "none", "HOME": str(folder)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def calls(service: ServiceThread, run: str) -> dict[str, Any]:
    return {call["label"]: call for call in asked(service, f"run?id={run}")[1]["calls"]}


def under_way(service: ServiceThread, process: subprocess.Popen[str]) -> str:
    """The run, once its quick agent has ended and the other works."""
    store = service.folder / "flows.db"
    while process.poll() is None:
        for run in service.wait(_runs(store)) if store.exists() else ():
            found = calls(service, run)
            states = {label: call["state"] for label, call in found.items()}
            if states == {"quick": "done", "slow": "running"}:
                return run
    raise AssertionError(process.communicate())


async def _runs(store: Path) -> list[str]:
    engine = open_run_store(run_store_url(store.parent))
    try:
        return [run.run_id for run in await engine.runs()]
    finally:
        await engine.close()


def test_one_agent_is_cancelled_and_gone_on_with_and_its_sibling_is_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "pair.py").write_text(FLOW)
    with SimulatedProvider() as provider, ServiceThread(tmp_path, provider.url) as service:
        provider.says(Rule(Say("too late", delay=3600), prompt="slow words"), ANSWERS)
        with started(tmp_path) as process:
            run = under_way(service, process)
            found = calls(service, run)
            assert (found["quick"]["can"], found["slow"]["can"]) == ([], ["cancel"])
            given = {"run": run, "only": found["slow"]["task"]}
            status, shown = asked(service, "run/cancel", given)
            assert status == 200
            assert shown["undo"] == {"order": "resume", **given}
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "1 of 2 ok, 1 failed: 1 cancelled" in out) == (3, True), err
        slow = calls(service, run)["slow"]
        assert (slow["ending"], slow["by_hand"]) == ("cancelled", True)
        assert slow["can"] == ["resume", "retry"]
        assert "A person cancelled it" in slow["says"]
        provider.says(ANSWERS)
        status, shown = asked(service, "run/resume", given)
        assert status == 200
        while calls(service, run)["slow"]["state"] != "done":
            assert asked(service, f"run?id={run}")[1]["state"] in ("running", "finished")
        assert sum(each.outcome.value == "completed" for each in provider.ledger) == 2
