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
