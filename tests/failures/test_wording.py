"""Keys are taken out of a text before it is shown, at the cost of what is shown."""

from __future__ import annotations

import re

import pytest

from jackline.failures import wording
from jackline.failures.wording import REDACTED, redact

KEY = "sk-ant-api03-" + "a" * 80


def test_a_key_is_replaced_wherever_it_is_in_what_is_shown() -> None:
    assert redact(f"bad key {KEY}!", 200) == f"bad key {REDACTED}!"
    assert redact(f"Authorization: Bearer {KEY}", 200) == f"Authorization: {REDACTED}"


@pytest.mark.parametrize("glue", ["xyzzy", "key", "X", "_", "9", "é", "code="])
@pytest.mark.parametrize(
    "key",
    [KEY, "sk-proj-" + "aB3" * 20, "ghp_" + "a1B2" * 9, "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1"],
)
def test_a_key_that_is_glued_to_a_word_is_replaced(glue: str, key: str) -> None:
    assert key[4:] not in redact(f"{glue}{key} is not valid", 200)


@pytest.mark.parametrize(
    "words",
    [
        "the task-management-service and its disk-utilization-report",
        "ask-permission-first, risk-assessment-of-2026, desk-research",
        "the benchmark-of-the-network, a fork-and-join-executor",
        "it rapidly asserts that ghosts hover over highfidelity",
    ],
)
def test_plain_words_that_hold_the_beginning_of_a_key_remain(words: str) -> None:
    assert redact(words, 200) == words


@pytest.mark.parametrize("before", range(60, 101))
def test_no_part_of_a_key_across_the_end_is_shown(before: int) -> None:
    shown = redact("x" * (before - 1) + " " + KEY, 100)
    assert len(shown) <= 100
    assert "sk-a" not in shown


def test_the_longest_key_across_the_end_is_recognised() -> None:
    token = "eyJ" + "a" * 400 + "." + "b" * 400
    assert "eyJ" not in redact(" " * 90 + token, 100)


class Counted:
    """A pattern that counts how much it has searched."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.searched = 0

    def sub(self, new: str, text: str) -> str:
        self.searched += len(text)
        return self._pattern.sub(new, text)


def test_no_more_is_searched_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(wording._SECRET)
    monkeypatch.setattr(wording, "_SECRET", counted)
    assert len(redact("sk " * 1_000_000, 300)) == 300
    assert counted.searched < 1_000
