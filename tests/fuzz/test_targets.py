"""No bytes from outside break a reader: seeds, what was found once, mutations, guided fuzzing."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import coverage_guided, engine, planted

EVERY = pytest.mark.parametrize("name", engine.NAMES)
# Long enough to fail where something obvious broke; `make fuzz` looks for the rest.
SECONDS = float(os.environ.get("FUZZ_SECONDS_IN_TESTS", "8"))


@EVERY
def test_seeds_and_what_was_found_once_are_read(name: str) -> None:
    target = engine.target(name)
    for data in engine.inputs(name):
        target.check(data)


@EVERY
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_mutated_inputs_are_read(name: str, data: st.DataObject) -> None:
    engine.target(name).check(data.draw(engine.mutated(name)))


@pytest.mark.soak
@EVERY
def test_guided_fuzzing_finds_nothing(name: str) -> None:
    _need_atheris()
    done = coverage_guided.fuzz(name, SECONDS)
    assert done.code == 0, done.told


@pytest.mark.soak
def test_guided_fuzzing_finds_what_was_planted() -> None:
    _need_atheris()
    done = coverage_guided.fuzz(planted.__name__, 60.0)
    assert done.code != 0
    assert "it has read the planted word" in done.told


def _need_atheris() -> None:
    """Some machines have no wheel of it; CI's has, and may not leave these tests out."""
    if coverage_guided.atheris_folder() is None:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("atheris cannot be installed on this machine")
