"""Estimate what the next call will use, from what calls of its kind have used.

Rules: (1) pure; (2) learned per (label, model), where labels that differ only in their numbers are
one ("reader 7"); before that by model, before that from the counted input and a share of
`max_tokens`; (3) an estimate is the mean plus one mean deviation, at most `max_tokens`: reserving
too little exceeds a budget, reserving too much only makes a call wait.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Answers are rarely longer; before the first one it is better to expect too much.
_SHARE_OF_MAX_TOKENS = 1 / 8
# Tokens of a call of which nothing is known: about as many as Claude Code's first call has.
_UNKNOWN_CALL = 20_000
# Of the newest call in the mean; the first one counts in full.
_WEIGHT = 0.2
_MOST_KINDS = 10_000
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call is expected to use; `dollars` is None until such a call had a price."""

    input_tokens: float
    output_tokens: float
    dollars: float | None = None

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return round(self.input_tokens + self.output_tokens)


class _Mean:
    """A moving mean, with the mean distance from it."""

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
        """What a call will use; without `max_tokens` nothing is known in advance."""
        kind = self._kinds.get((_NUMBERS.sub("#", label) or "#", model)) or self._kinds.get(
            ("", model)
        )
        if kind is None:
            if max_tokens is None:
                return Estimate(_UNKNOWN_CALL, 0)
            return Estimate(counted_input, max_tokens * _SHARE_OF_MAX_TOKENS)
        output = kind.output.careful
        if max_tokens is not None:
            output = min(output, max_tokens)
        sent = kind.input_ratio.careful * max(1, counted_input)
        rate = kind.dollars_per_token
        return Estimate(sent, output, None if rate is None else rate.careful * (sent + output))

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
        """Learn what a call used whose input was counted before it was sent."""
        ratio, total = input_tokens / max(1, counted_input), input_tokens + output_tokens
        if total <= 0:
            return  # nobody has said what it used, and no call uses nothing
        rate = None if dollars is None or not total else dollars / total
        for name in ((_NUMBERS.sub("#", label) or "#", model), ("", model)):
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
