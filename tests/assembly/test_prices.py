"""The user's own prices reach whoever counts dollars."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from jackline.agents.prices import Price
from jackline.assembly.agent_host import host_through
from jackline.assembly.saved_runs import open_state_store
from jackline.clock import SystemClock
from jackline.config import load
from jackline.control.observatory import Observatory
from tests.journal.made import call


def test_the_burn_counts_with_them_also_after_they_changed() -> None:
    prices: dict[str, Price] = {}
    seen = Observatory(SystemClock(), lambda: prices)
    told = call()._replace(
        model="own-model",
        input_tokens=1_000_000,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cache_write_1h_tokens=0,
    )
    seen.announce(told)
    assert seen.burn.total.dollars == 0.0
    prices["own-*"] = Price(7.0, 9.0, 7.0, 7.0, 14.0)
    seen.announce(told)
    assert seen.burn.total.dollars == 7.0
    written = told._replace(input_tokens=0, cache_write_tokens=1_000_000)
    seen.announce(written)
    seen.announce(written._replace(cache_write_1h_tokens=1_000_000))
    assert seen.burn.total.dollars == 7.0 + 7.0 + 14.0


def test_a_host_of_flows_counts_with_them(tmp_path: Path) -> None:
    file = tmp_path / "jackline.toml"
    file.write_text('[prices."own-*"]\ninput = 7\noutput = 9\n')

    async def opened() -> None:
        environ = {"JACKLINE_STATE": str(tmp_path / "state")}
        config = load(flags={"config": file}, environ=environ, cwd=tmp_path)
        async with AsyncExitStack() as stack:
            engine = open_state_store(config)
            stack.push_async_callback(engine.close)
            clock = SystemClock()
            host = await host_through("http://127.0.0.1:1", config, engine, clock, stack)
            assert host.prices == {"own-*": Price(7.0, 9.0, 7.0, 7.0, 14.0)}

    asyncio.run(opened())
