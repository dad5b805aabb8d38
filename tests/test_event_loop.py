"""One place chooses the loop, and both choices behave alike."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from jackline import event_loop


async def answer() -> str:
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_runs_where_it_exists() -> None:
    expected = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
    assert event_loop.run(answer()).startswith(expected)


def test_asyncio_runs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "find_spec", lambda _: None)
    assert event_loop.run(answer()).startswith("asyncio")
