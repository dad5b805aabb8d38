"""A result over 64 KB lies in the blob store, and once however many calls gave it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from jackline import agent, flow, parallel, step
from jackline.flows.store import open_run_store, run_store_url
from tests.flows.world import played, world

KB = 1024


def page(_number: int, size: int) -> str:
    # As JSON it has two quotes around it.
    return "x" * (size - 2)


@flow
async def pages() -> list[int]:
    short = await parallel(step(page, number, 64 * KB) for number in range(3))
    long = await parallel(step(page, number, 64 * KB + 1) for number in range(3))
    return [len(text) for text in (*short.values, *long.values)]


def test_a_result_over_64_kb_is_a_blob_and_equal_ones_are_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        w = world()
        w.engine = open_run_store(run_store_url(tmp_path), wall=w.clock.wall)
        try:
            outcome = await w.run(pages)
            again = await w.resume(pages)
        finally:
            await w.engine.close()
        assert outcome.value == again.value == [64 * KB - 2] * 3 + [64 * KB - 1] * 3

    played(test)
    with closing(sqlite3.connect(tmp_path / "flows.db")) as file:
        assert file.execute("SELECT length(data) FROM blobs").fetchall() == [(64 * KB + 1,)]
        named = file.execute("SELECT count(*) FROM calls WHERE value_blob IS NOT NULL").fetchone()
        assert named == (3,)


@flow
async def long_answer() -> str:
    return str(await agent("word " * 20_000))


def test_a_long_answer_in_words_is_kept_once_and_is_the_outcomes_text_again(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        w = world()
        w.engine = open_run_store(run_store_url(tmp_path), wall=w.clock.wall)
        try:
            await w.run(long_answer)
            (run,) = await w.engine.runs()
            calls = await w.engine.calls(run.run_id)
        finally:
            await w.engine.close()
        (call,) = calls
        assert call.decoded_outcome().text == "answer to " + "word " * 20_000

    played(test)
    with closing(sqlite3.connect(tmp_path / "flows.db")) as file:
        kept = file.execute("SELECT outcome FROM calls WHERE outcome_blob IS NULL").fetchall()
        assert len(kept) == 1
        assert len(kept[0][0]) < 4 * KB
