"""A model does not get around its user's limit in dollars by a name that has no price."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.prices import Price
from jackline.budgets.budget import Budget
from tests.mcp_server.agents_world import AgentsWorld

CENTS = Budget(dollars=0.5)
HOUR = Budget(dollars=0.5, window="1h")


def answered(world: AgentsWorld, **arguments: object) -> str:
    """What the tool `agent` says."""

    async def main() -> str:
        async with asyncio.timeout(120), world.open() as client:
            result = await client.call_tool("agent", {"prompt": "work", **arguments})
            return " ".join(getattr(block, "text", "") for block in result.content)

    return event_loop.run(main())


@pytest.mark.parametrize("budget", [CENTS, HOUR], ids=["a run", "an hour"])
@pytest.mark.parametrize("model", ["foo-unpriced", "claude-opus-latest", "sonnet"])
def test_a_model_whose_price_is_not_known_is_refused(
    tmp_path: Path, model: str, budget: Budget
) -> None:
    world = AgentsWorld(tmp_path, budgets=(budget,))
    words = answered(world, model=model)
    assert f"The price of {model} is not known, and a limit in dollars holds here" in words
    assert world.received == [], "nothing was sent"


def test_so_is_one_that_a_definition_of_the_project_names(tmp_path: Path) -> None:
    definitions = tmp_path / "project" / ".claude" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "cheap.md").write_text("---\nname: cheap\nmodel: foo-unpriced\n---\nWork.\n")
    world = AgentsWorld(tmp_path, budgets=(CENTS,))
    assert "The price of foo-unpriced is not known" in answered(world, subagent_type="cheap")
    assert world.received == []


@pytest.mark.parametrize(
    ("model", "budgets", "prices"),
    [
        ("claude-opus-4-8", (CENTS,), {}),
        ("foo-unpriced", (), {}),
        ("foo-unpriced", (Budget(tokens=100_000),), {}),
        ("foo-unpriced", (CENTS,), {"foo-*": Price(1.0, 2.0, 0.1, 1.0, 1.0)}),
    ],
    ids=["listed", "no limit", "a limit in tokens", "priced by the user"],
)
def test_all_others_are_taken(
    tmp_path: Path, model: str, budgets: tuple[Budget, ...], prices: dict[str, Price]
) -> None:
    world = AgentsWorld(tmp_path, budgets=budgets, prices=prices)
    assert "done: work" in answered(world, model=model)
