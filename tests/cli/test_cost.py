"""`jackline cost`: the same sums as everywhere, by day, model, session and agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.prices import dollars
from jackline.cli.main import run
from jackline.control.observatory import Burn
from jackline.events import CallEnded
from jackline.journal import Journal
from jackline.testing import SimulatedProvider
from tests.cli.gateways import Place, until
from tests.cli.gateways import call as client_call
from tests.journal.made import NOON, PATIENCE
from tests.journal.made import call as made_call

NOW = datetime.fromtimestamp(NOON + 60, UTC).isoformat()
DAY = 86_400.0
OPUS, OWN = "claude-opus-4-8", "in-house-1"
CALLS = [
    made_call(1)._replace(model=OPUS, session="s1", agent="a1"),
    made_call(2)._replace(model=OPUS, session="s1", agent="a1"),
    made_call(3)._replace(model=OWN, session="s1", agent=None),
    made_call(4, at=NOON - DAY)._replace(model=OPUS, session="s2"),
    # Counted nowhere: it was never answered, or its answer used nothing.
    made_call(5)._replace(lane=None),
    made_call(6)._replace(
        input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0
    ),
    # Before the time that is asked for.
    made_call(7, at=NOON - 30 * DAY)._replace(model=OPUS),
]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("JACKLINE_STATE", str(folder))
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    return folder


def journalled(state: Path, calls: Sequence[CallEnded]) -> None:
    with Journal(state / "journal.db", wall=lambda: NOON) as journal:
        for each in calls:
            journal.announce(each)
        assert journal.flush(PATIENCE)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["cost", "--json", "--now", NOW, *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema"] == "jackline.cost/1"
    return document


@pytest.mark.parametrize("by", ["day", "model", "session", "agent"])
def test_every_division_has_the_total_that_the_other_faces_count(
    by: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journalled(state, CALLS)
    burn = Burn(dollars)
    burn.calls_ended(CALLS[:-1])
    document = shown(capsys, "--by", by)
    total, rows = document["total"], document["rows"]
    assert (total["calls"], total["tokens"]) == (burn.total.calls, burn.total.tokens)
    assert total["cost"] == pytest.approx(burn.total.dollars, abs=1e-6)
    assert total["unpriced_tokens"] == burn.total.unpriced > 0
    for name in ("calls", "tokens", "unpriced_tokens"):
        assert sum(row[name] for row in rows) == total[name]
    assert sum(row["cost"] or 0 for row in rows) == pytest.approx(total["cost"], abs=1e-5)


def test_the_lines_are_named_and_the_dearest_come_first(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journalled(state, CALLS)
    assert [row["model"] for row in shown(capsys, "--by", "model")["rows"]] == [OPUS, OWN]
    agents = shown(capsys, "--by", "agent")["rows"]
    assert [(row["session"], row["agent"]) for row in agents] == [
        ("s1", "a1"),
        ("s2", ""),
        ("s1", ""),
    ]
    assert len(shown(capsys, "--by", "day")["rows"]) == 2
    one_day = shown(capsys, "--since", "12h")
    assert one_day["total"]["calls"] == 3
    assert shown(capsys, "--since", "52w")["total"]["calls"] == 5


def test_what_has_no_known_price_is_unknown_and_never_nothing(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journalled(state, CALLS[2:3])
    document = shown(capsys)
    assert (document["total"]["cost"], document["total"]["unpriced_tokens"]) == (None, 100)
    assert run(["cost", "--now", NOW]) == 0
    assert capsys.readouterr().out.startswith("cost unknown, 1 call, 100 tokens (100 tokens have")
    (state.parent / "own.toml").write_text(
        f'[prices."{OWN}"]\ninput = 1\noutput = 2\ncache_read = 1\ncache_write = 1\n'
    )
    priced = shown(capsys, "--config", str(state.parent / "own.toml"))["total"]
    # 10 in, 20 out, 30 from the cache, 40 into it, 15 of them for an hour at twice the input.
    assert (priced["unpriced_tokens"], priced["cost"]) == (0, pytest.approx(135e-6, abs=1e-6))


def test_without_calls_or_journal_it_says_so(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost"]) == 1
    assert "There is no journal" in capsys.readouterr().err
    assert run(["cost", "--since", "soon"]) == 2
    capsys.readouterr()
    journalled(state, [])
    assert run(["cost", "--now", NOW]) == 0
    assert capsys.readouterr().out.startswith("$0.00, 0 calls, 0 tokens since ")


def test_a_real_gateway_shows_the_same_everywhere(tmp_path: Path) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up():
            for _ in range(3):
                assert client_call(place.url).status == 200

            def spend() -> dict[str, Any]:
                watched = json.loads(place.jackline("status", "--watch", "--json").out)
                return dict(watched["spend"])

            until(lambda: spend()["tokens_today"] > 0, "the sums")
        total = json.loads(place.jackline("cost", "--json").out)["total"]
        used = sum(each.input_tokens + each.output_tokens for each in provider.ledger)
    assert (total["calls"], total["tokens"]) == (3, used)
    assert total["cost"] > 0
