"""Every face counts a run alike, killed, resumed or forked; the provider's ledger is the truth."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from tests.cli.flow_world import World, flow_world, wait_for

FLOW = """
from jackline import agent, flow, parallel, step

@flow
async def many(count: int) -> int:
    await step(len, "abc")
    parts = await parallel(agent(f"part {i}", label=f"part {i}") for i in range(count))
    return len(parts.values)
"""
ANSWERS = Rule(lambda request: Say(request.prompt.split()[-1]))


def ledger_tokens(w: World) -> int:
    completed = (each for each in w.provider.ledger if each.outcome is RequestOutcome.COMPLETED)
    return sum(each.input_tokens + each.output_tokens for each in completed)


def on_page(w: World, run: str, tokens: int) -> dict[str, Any]:
    """The run as page and terminal show it; it reads the store every two seconds."""
    rows: dict[str, Any] = {}
    for _ in range(60):
        rows = {row["run"]: row for row in w.json("status", "--watch")["runs"]}
        if run in rows and rows[run]["tokens"] == tokens:
            return dict(rows[run])
        time.sleep(0.5)
    raise AssertionError(rows.get(run))


def every_face(w: World, run: str) -> tuple[Any, ...]:
    """Agents ok, steps done, tokens, and the words: the same everywhere, or this fails."""
    listed = next(row for row in w.json("ls")["runs"] if row["run"] == run)
    shown = w.json("show", run)
    page = on_page(w, run, listed["tokens"])
    agents, steps = listed["agents"], listed["steps"]
    assert (agents, steps, listed["tokens"], listed["cost"]) == (
        shown["agents"],
        shown["steps"],
        shown["tokens"],
        shown["cost"],
    )
    assert agents == {"ok": page["done"], "failed": page["failed"], "unfinished": page["running"]}
    assert (steps["done"], page["cost"]) == (page["steps_done"], round(listed["cost"], 4))
    words = f"{page['counts']}; {listed['tokens']:,} tokens, ${listed['cost']:,.2f}"
    lines = w.jackline("ls")[1].splitlines()
    assert words in next(line for line in lines if line.startswith(run))
    assert words in w.jackline("show", run)[1].splitlines()[0]
    return agents["ok"], agents["unfinished"], steps["done"], listed["tokens"], words


def test_a_run_that_was_killed_resumed_and_forked_has_one_count_on_every_face(
    tmp_path: Path,
) -> None:
    with flow_world(tmp_path) as w:
        (tmp_path / "flow.py").write_text(FLOW)
        w.provider.says(Rule(lambda _: Say("late", delay=600), prompt="part 3"), ANSWERS)
        with w.start("run", "flow.py", "--count", "4") as process:
            for _ in range(3):
                wait_for(process, " ok (")
            process.kill()
        (run,) = (row["run"] for row in w.json("ls")["runs"])
        paid = ledger_tokens(w)
        assert every_face(w, run)[:4] == (3, 1, 1, paid)
        assert paid > 0

        w.provider.says(ANSWERS)
        code, out, err = w.jackline("resume", run)
        assert (code, out) == (0, "4\n"), err
        assert "3 agents kept" in err
        *counts, words = every_face(w, run)
        paid = ledger_tokens(w)
        assert counts == [4, 0, 1, paid]
        assert words in err  # the summary of the command

        assert w.jackline("fork", run, "--from", "part 2")[0] == 0
        fork = next(row["run"] for row in w.json("ls")["runs"] if row["run"] != run)
        assert every_face(w, run) == (*counts, words)
        # What it got from the other run it has not paid.
        ok, left, _, tokens, words = every_face(w, fork)
        assert (ok, left, tokens) == (4, 0, ledger_tokens(w) - paid)
        assert re.match(r"4 of 4 agents ok \(\d kept from before\)", words)
