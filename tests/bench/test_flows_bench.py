"""The bench of flows measures what it says: same work for all, counted by the work itself.

Rules: (1) small fans and no peers, so that all of this takes seconds; (2) no figure is pinned here,
since that is what the bench itself is for.
Not here: flows' own rules (tests/flows/).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flows
from flows_bench.engines import ENGINES, Engine, MissingError
from flows_bench.runs import Killed, Took, cost, kill_in_the_middle, replay
from flows_bench.table import BASE, Figures, as_json, markdown
from flows_bench.work import Order, Stopwatch, order_of

OURS = ("jackline, steps", "jackline, agents")
SMALL = Order(Path(), 40, 10, 0.0)
SLOW = Order(Path(), 40, 5, 0.05)


def test_an_order_survives_the_way_to_a_program() -> None:
    assert order_of(SLOW.words()) == SLOW


@pytest.mark.parametrize("name", [BASE, *OURS])
def test_every_call_is_made_once_and_timed(name: str) -> None:
    took = cost(ENGINES[name], SMALL)
    assert took.calls == 40
    assert took.wall > 0
    assert took.cpu > 0


@pytest.mark.parametrize("name", OURS)
def test_a_replay_runs_no_finished_call_again(name: str) -> None:
    assert replay(ENGINES[name], SMALL).calls == 40


def test_a_kill_costs_plain_asyncio_all_and_a_flow_at_most_what_was_in_hand() -> None:
    bare = kill_in_the_middle(ENGINES[BASE], SLOW)
    assert bare.again == bare.done_before >= 20
    ours = kill_in_the_middle(ENGINES["jackline, agents"], SLOW)
    assert ours.again <= SLOW.at_once


def test_a_program_that_fails_is_told_and_not_counted() -> None:
    with pytest.raises(MissingError, match="it failed"):
        cost(Engine("broken", ("flows_bench.no_such_program",)), SMALL)


def test_swapped_results_end_the_program() -> None:
    with pytest.raises(SystemExit, match="swapped"):
        Stopwatch().report([0, 2, 1])


def test_the_table_has_a_row_for_each_and_says_why_a_figure_is_missing() -> None:
    base = Figures([Took(10, 0.01, 0.001)], [], [Killed(10, 5, 5)])
    ours = Figures([Took(10, 0.02, 0.01)], [Took(10, 0.5, 0.1)], [Killed(10, 5, 0)])
    lost = Figures(missing={"replay": "it did not end in 600 s"})
    shown = markdown({BASE: base, "ours": ours, "lost": lost}, 10, 100)
    assert "| ours | 2 | 1 | 10 × | 0.5 | 0 of 5 (0 %) | - |" in shown
    assert "5 of 5 (100 %)" in shown
    assert shown.endswith("lost, replay: it did not end in 600 s")
    assert json.loads(json.dumps(as_json({"ours": ours})))["ours"]["killed"][0]["again"] == 0


def test_what_is_not_installed_is_left_out_by_a_quick_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    absent = Engine("absent", ("flows_bench.absent",), ("no-such-package-of-ours==1",))
    ENGINES["absent"] = absent
    try:
        assert flows._there(["absent"], quick=True) == []
    finally:
        del ENGINES["absent"]
    assert "left out: absent" in capsys.readouterr().err
