"""A batch that is required without a number is required whole; what makes none is told."""

from __future__ import annotations

import pytest

from jackline import flow, parallel
from jackline.agents.outcome import Ending, Outcome
from jackline.errors import BadArgumentError, StepFailedError
from jackline.flows.authoring.calls import Batch
from tests.flows.world import played, world

OK: Outcome[int] = Outcome(Ending.COMPLETION, 1)
BAD: Outcome[int] = Outcome(Ending.QUOTA)


def test_require_without_a_number_means_all() -> None:
    whole = Batch((OK, OK))
    assert whole.require() is whole
    with pytest.raises(StepFailedError, match="2 were needed: 1 of 2 ok, 1 failed: 1 quota"):
        Batch((OK, BAD)).require()


@pytest.mark.parametrize(("least", "enough"), [(0, True), (1, True), (2, False)])
def test_require_with_a_number_means_at_least_so_many(least: int, enough: bool) -> None:
    batch = Batch((OK, BAD))
    if enough:
        assert batch.require(least) is batch
    else:
        with pytest.raises(StepFailedError):
            batch.require(least)


@pytest.mark.parametrize(
    ("given", "limit", "words"),
    [
        (5, None, "cannot go through a int"),
        (None, None, "cannot go through a NoneType"),
        ([], "2", "limit='2'"),
        ([], 0, "limit=0"),
    ],
)
def test_what_cannot_be_gone_through_is_told(given: object, limit: object, words: str) -> None:
    @flow
    async def wrong() -> str:
        with pytest.raises(BadArgumentError) as told:
            await parallel(given, limit=limit)  # type: ignore[arg-type]
        return told.value.message

    async def test() -> None:
        assert words in ((await world().run(wrong)).value or "")

    played(test)
