"""What somebody sees who does not know the verbs yet."""

from __future__ import annotations

import pytest

from jackline.cli.main import _GROUPS, _MACHINE_VERBS, _SUCCESSORS, _VERBS
from tests.cli.commands import jackline


def test_verbs_are_listed_by_task_each_once_and_those_of_machines_not_at_all() -> None:
    grouped = [verb for verbs in _GROUPS.values() for verb in verbs]
    assert sorted([*grouped, *_MACHINE_VERBS]) == sorted(_VERBS)
    shown = jackline("--help").out
    places = [shown.index(f"\n{name}:\n") for name in _GROUPS]
    assert places == sorted(places)
    lines = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2:3]]
    assert [verb for verb in lines if verb in _VERBS] == grouped


@pytest.mark.parametrize(
    ("word", "offer"),
    [("statuss", "did you mean status?"), ("conect", "did you mean connect?"), ("qqqqqq", "")],
)
def test_a_word_that_is_no_verb_leads_to_the_nearest_one(word: str, offer: str) -> None:
    answer = jackline(word)
    assert (answer.code, answer.out) == (2, "")
    first, hint = answer.err.splitlines()
    assert first.startswith(f"error: there is no verb {word!r}")
    assert first.endswith(offer or f"{word!r}")
    assert hint == "hint:  jackline --help lists them"


@pytest.mark.parametrize("word", sorted(_SUCCESSORS))
def test_a_verb_of_older_versions_leads_to_its_successor(word: str) -> None:
    successor = _SUCCESSORS[word]
    answer = jackline(word, "anything")
    assert (answer.code, answer.out) == (2, "")
    assert f"use: {successor}" in answer.err
    assert word not in _VERBS
    # The successor is a command of today, with that flag if it names one.
    _, verb, *words = successor.split()
    shown = jackline(verb, "--help")
    assert shown.code == 0
    assert all(word in shown.out for word in words)
