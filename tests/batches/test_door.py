"""Laws of `jackline.batch` for any Python program."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.batches.api import Item, batch
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall
from jackline.errors import UsageError


def add(first: int, second: int = 1) -> int:
    return first + second


async def wait_for(value: str) -> str:
    await asyncio.sleep(0)
    return value


def test_commands_functions_awaitables_and_calls_run_in_one_batch(tmp_path: Path) -> None:
    async def main() -> None:
        report = await batch(
            [
                "echo hi",
                (add, (1, 2)),
                (add, {"first": 5}),
                wait_for("awaited"),
                asyncio.ensure_future(wait_for("a task")),
                lambda: "no arguments",
                (wait_for, ("async function",)),
                BatchCall("mine", ShellTool(), {"command": "exit 3"}),
            ],
            cwd=tmp_path,
        )
        assert [result.id for result in report] == ["1", "2", "3", "4", "5", "6", "7", "mine"]
        assert report["1"].text == "hi\n"
        assert [report[str(n)].value for n in range(2, 8)] == [
            3,
            6,
            "awaited",
            "a task",
            "no arguments",
            "async function",
        ]
        assert report.headline == "1 of 8 failed: exit (exit 3)"

    event_loop.run(main())


def test_names_and_needs_order_a_batch_and_what_never_ran_is_closed(tmp_path: Path) -> None:
    items: dict[str, Item] = {
        "test": "cat built",
        "build": "sleep 0.1; echo ok > built",
        "bad": "exit 1",
        "never": wait_for("x"),
    }
    needs = {"test": ["build"], "never": ["bad"]}
    report = event_loop.run(batch(items, needs=needs, cwd=tmp_path))
    assert report.summary == "2 of 4 ok, 1 failed: bad (exit 1), 1 skipped: never"
    assert report["test"].text == "ok\n"
    assert report["never"].skipped_because == "skipped: it needs 'bad', which failed (exit 1)"


def test_a_timeout_is_each_calls_own(tmp_path: Path) -> None:
    report = event_loop.run(batch(["sleep 600", "echo quick"], timeout=5, cwd=tmp_path))
    assert [result.ended_by for result in report] == ["timed out", ""]


def test_what_cannot_be_run_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="item 2 of the batch is a int"):
            await batch(["touch ran", 5], cwd=tmp_path)  # type: ignore[list-item]
        with pytest.raises(UsageError, match="`needs` speaks of x"):
            await batch(["touch ran", wait_for("y")], needs={"x": ["1"]}, cwd=tmp_path)

    event_loop.run(main())
    assert not (tmp_path / "ran").exists()


def test_an_empty_batch_is_ok() -> None:
    assert event_loop.run(batch([])).headline == "all 0 ok"
