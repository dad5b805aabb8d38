"""A hook runs at least once per ending, and each time is given the same idempotency key."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jackline import agent, ctx, flow
from jackline.agents.outcome import Ending, Outcome
from jackline.errors import UsageError
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_retry
from jackline.testing.scripted_agents import Play
from tests.flows import dying_hooks
from tests.flows.world import played, world

KEYS: list[str] = []


async def keeping(_outcome: Outcome[Any]) -> None:
    KEYS.append(ctx.idempotency_key)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_hook_that_ran_and_was_not_recorded_runs_again_with_the_same_key(tmp_path: Path) -> None:
    """Every process is killed between a hook and its record, until all hooks have run twice."""
    ledger = tmp_path / "ledger"
    codes: list[int] = []
    while not codes or codes[-1]:
        assert len(codes) < 10, codes
        process = subprocess.run(
            [sys.executable, "-m", dying_hooks.__name__, str(tmp_path / "flows.db")],
            env={**os.environ, dying_hooks.LEDGER: str(ledger)},
            cwd=Path(__file__).parents[2],
            timeout=300,
            check=False,
        )
        codes.append(process.returncode)
    hooks = Counter(tuple(line.split()) for line in ledger.read_text().splitlines())
    assert [(what, whose) for what, whose, _key in hooks] == [
        ("function", "one"),
        ("command", "one"),
        ("function", "two"),
        ("function", "run"),
    ]
    assert codes == [-signal.SIGKILL] * 4 + [0]
    assert set(hooks.values()) == {2}, "the same key both times"
    assert len({key for _what, _whose, key in hooks}) == 4, "and another for everything else"


def test_the_next_ending_of_the_same_agent_has_another_key() -> None:
    @flow
    async def one() -> str:
        return (await agent("a", label="a", on_end=keeping).outcome()).terminated_by.value

    async def test() -> None:
        KEYS.clear()
        w = world(lambda _task: Play(ending=Ending.REFUSED))
        assert (await w.run(one)).value == "refused"
        again = await begin_retry(w.host, "r1", flow=one)
        assert isinstance(again, FlowRun)
        await w.through(again.run())
        assert len(KEYS) == 2
        assert KEYS[0] != KEYS[1]

    played(test)


def test_outside_of_a_hook_there_is_no_key() -> None:
    @flow
    async def asking() -> str:
        return ctx.idempotency_key

    async def test() -> None:
        with pytest.raises(UsageError, match="only in an on_end hook"):
            _ = ctx.idempotency_key
        outcome = await world().run(asking)
        assert "only in an on_end hook" in outcome.evidence.says

    played(test)


PROMISE = "A hook runs at least once per ending, each time with the same idempotency key."
ROOT = Path(__file__).parents[2]


def test_the_promise_is_one_sentence_wherever_hooks_are_described() -> None:
    places = (
        "docs/flows.md",
        "docs/cleanup.md",
        "src/jackline/flows/cleanup/__init__.py",
        "src/jackline/flows/cleanup/ledger.py",
        "src/jackline/flows/authoring/calls.py",
        "src/jackline/flows/authoring/flow_definition.py",
        "src/jackline/flows/authoring/context.py",
        "src/jackline/flows/records.py",
    )
    for place in places:
        assert PROMISE in " ".join((ROOT / place).read_text().split()), place
    tools = (ROOT / "src/jackline/mcp_server/agent_tools.py").read_text()
    assert PROMISE in "".join(re.findall(r'"([^"]*)"', tools))
