"""A drill is tried again only when the machine was seen to stand still, and not for ever."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.hiccups import Standstill, steadily, tried_again_after_a_hiccup

# For the one no standstill is worth mentioning, for the other that of a moment is.
UNMOVED, TOUCHY = math.inf, 0.0


def stand_still() -> None:
    """One call that leaves no other thread its turn, however many there are."""
    sum(range(20_000_000))


def test_on_a_steady_machine_a_failure_is_one() -> None:
    tries: list[int] = []

    @tried_again_after_a_hiccup(UNMOVED)
    def fails() -> None:
        tries.append(1)
        stand_still()
        raise AssertionError

    with pytest.raises(AssertionError):
        fails()
    assert len(tries) == 1


def test_after_a_standstill_it_is_tried_again_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folders: list[Path] = []

    @tried_again_after_a_hiccup(TOUCHY)
    def fails_once(folder: Path) -> None:
        folders.append(folder)
        stand_still()
        (folder / "drill").mkdir()
        assert len(folders) == 2

    fails_once(folder=tmp_path)
    assert [folder.parent for folder in folders] == [tmp_path] * 2
    assert len(set(folders)) == 2


def test_what_fails_each_time_has_failed() -> None:
    tries: list[int] = []

    @tried_again_after_a_hiccup(TOUCHY)
    def fails() -> None:
        tries.append(1)
        stand_still()
        raise AssertionError

    with pytest.raises(AssertionError):
        fails()
    assert len(tries) == 4


def test_a_standstill_is_seen() -> None:
    with Standstill() as seen:
        stand_still()
    assert seen.longest > 0.05


def test_a_scene_is_played_again_while_the_machine_stands_still() -> None:
    played: list[int] = []

    def play() -> int:
        played.append(1)
        if len(played) == 1:
            stand_still()
        return len(played)

    assert steadily(play, 0.05) == len(played) > 1
    played.clear()
    assert steadily(play, math.inf) == 1
