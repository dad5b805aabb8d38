"""Limits and prices that the user writes while the service runs hold for agents of models."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.prices import Price
from jackline.assembly import Service
from jackline.budgets.budget import Budget
from jackline.config import Config
from tests.mcp_server.agents_world import AgentsWorld, call

NOTHING = Budget(agents=0)
CENTS = Budget(dollars=0.5)


def change(service: Service, **runs: object) -> None:
    """What the reload of a changed file does."""
    config: Config = service.config
    service.config = replace(config, runs=replace(config.runs, **runs))  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [NOTHING, Budget(dollars=0.0)])
def test_a_new_limit_holds_for_the_next_agent(tmp_path: Path, budget: Budget) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            await stack.enter_async_context(world.provider())
            service = await stack.enter_async_context(world.service())
            client = await stack.enter_async_context(world.client(service))
            await call(client, "agent", prompt="before")
            sent = len(world.received)
            assert sent
            change(service, budgets=(budget,))
            orders = [{"prompt": f"after {number}"} for number in range(5)]
            result = await client.call_tool("agents", {"orders": orders})
            words = " ".join(getattr(block, "text", "") for block in result.content)
            assert "5 budget" in words
            assert len(world.received) == sent, "nothing was sent for them"

    event_loop.run(main())


def test_a_run_that_is_resumed_obeys_the_limits_of_now(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, budgets=(Budget(turns=0),))

    async def main() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            await stack.enter_async_context(world.provider())
            service = await stack.enter_async_context(world.service())
            client = await stack.enter_async_context(world.client(service))
            failed = await client.call_tool("agent", {"prompt": "work"})
            assert world.received == []
            run = failed.structured_content["run_id"]
            change(service, budgets=(Budget(agents=0),))
            again = await client.call_tool("agent", {"resume": run})
            assert again.is_error
            assert world.received == []

    event_loop.run(main())


def test_new_prices_count_for_the_next_agent(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, budgets=(CENTS,))

    async def main() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            await stack.enter_async_context(world.provider())
            service = await stack.enter_async_context(world.service())
            client = await stack.enter_async_context(world.client(service))
            order = {"prompt": "work", "model": "foo-unpriced"}
            refused = await client.call_tool("agent", order)
            assert refused.is_error
            prices = {"foo-*": Price(1.0, 2.0, 0.1, 1.0, 1.0)}
            service.config = replace(service.config, prices=prices)
            done = await client.call_tool("agent", order)
            assert not done.is_error

    event_loop.run(main())
