"""Estimate what the next call will use, from what calls of its kind have used.

Rules: (1) pure; (2) learned per (label, model), where labels that differ only in their numbers are
one ("reader 7"); before that by model, before that from the counted input and a share of
`max_tokens`; (3) an estimate is the mean and one mean deviation, never more than `max_tokens`: too
little reserved is a budget passed, too much only a call that waits.
What is reserved for strict budgets is no estimate: the caller knows the upper bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_SHARE_OF_MAX_TOKENS = 1 / 8
"""Answers are rarely longer; until one was seen, it is better to expect too much."""

_UNKNOWN_CALL = 20_000
"""Tokens of a call of which nothing is known: about what the first of Claude Code's takes."""

_WEIGHT = 0.2
"""Of the newest call in the mean; the first one counts in full."""

_MOST_KINDS = 10_000
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call is expected to use."""

    input_tokens: float
    output_tokens: float
    dollars: float | None = None
    """None where no such call has been paid for: then the price list says it."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return round(self.input_tokens + self.output_tokens)


class _Mean:
    """A mean that forgets slowly, with the mean distance from it."""

    __slots__ = ("deviation", "value")

    def __init__(self, first: float) -> None:
        self.value = first
        self.deviation = 0.0

    def add(self, value: float) -> None:
        self.deviation += _WEIGHT * (abs(value - self.value) - self.deviation)
        self.value += _WEIGHT * (value - self.value)

    @property
    def careful(self) -> float:
        return self.value + self.deviation


@dataclass(slots=True)
class _Kind:
    """What calls of one kind have used."""

    input_ratio: _Mean
    output: _Mean
    dollars_per_token: _Mean | None = None


class Estimator:
    """What calls have used, by label and model."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def expect(
        self, label: str, model: str, *, counted_input: int, max_tokens: int | None
    ) -> Estimate:
        """What a call will use; without `max_tokens` nothing is known of it beforehand."""
        kind = self._kinds.get((_family(label), model)) or self._kinds.get(("", model))
        if kind is None:
            if max_tokens is None:
                return Estimate(_UNKNOWN_CALL, 0)
            return Estimate(counted_input, max_tokens * _SHARE_OF_MAX_TOKENS)
        output = kind.output.careful
        if max_tokens is not None:
            output = min(output, max_tokens)
        given = kind.input_ratio.careful * max(1, counted_input)
        rate = kind.dollars_per_token
        return Estimate(given, output, None if rate is None else rate.careful * (given + output))

    def learn(
        self,
        label: str,
        model: str,
        *,
        counted_input: int,
        input_tokens: int,
        output_tokens: int,
        dollars: float | None = None,
    ) -> None:
        """A call that was counted so beforehand used that much."""
        ratio, total = input_tokens / max(1, counted_input), input_tokens + output_tokens
        rate = None if dollars is None or not total else dollars / total
        for name in ((_family(label), model), ("", model)):
            kind = self._kinds.get(name)
            if kind is None:
                if len(self._kinds) >= _MOST_KINDS:
                    continue
                kind = self._kinds[name] = _Kind(_Mean(ratio), _Mean(output_tokens))
            else:
                kind.input_ratio.add(ratio)
                kind.output.add(output_tokens)
            if rate is not None and kind.dollars_per_token is None:
                kind.dollars_per_token = _Mean(rate)
            elif rate is not None and kind.dollars_per_token is not None:
                kind.dollars_per_token.add(rate)


@lru_cache(maxsize=4096)
def _family(label: str) -> str:
    return _NUMBERS.sub("#", label) or "#"
