"""Every rule of the tables has an example, and none breaks the rules of the package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jackline.failures.evidence import FailureSignals
from jackline.failures.failure import Kind
from jackline.failures.rules import agents, limits, outages, refusals
from jackline.failures.rules.rule import KIND_DEFAULTS, FailureRule
from tests.failures.examples import load

FAMILIES = (agents, limits, outages, refusals)


def tables() -> Iterator[tuple[str, tuple[FailureRule, ...]]]:
    for family in FAMILIES:
        for name, value in vars(family).items():
            if isinstance(value, tuple) and value and isinstance(value[0], FailureRule):
                yield f"{family.__name__.rsplit('.', 1)[-1]}.{name}", value


SIGNALS = [
    FailureSignals.of(row.observation)
    for name in ("corpus.jsonl", "gathered.jsonl", "examples.jsonl")
    for row in load(name)
]
RULES = [(f"{name}[{n}]", rule) for name, table in tables() for n, rule in enumerate(table)]


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_every_rule_has_a_real_example(name: str, rule: FailureRule) -> None:
    assert any(rule.evidence(reading) for reading in SIGNALS), f"{name} is dead: {rule}"


def test_every_kind_has_its_defaults() -> None:
    assert set(KIND_DEFAULTS) == set(Kind)


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_no_rule_makes_quota_or_billing_retryable(name: str, rule: FailureRule) -> None:
    if rule.verdict.kind in (Kind.ACCOUNT_QUOTA, Kind.BILLING):
        assert rule.verdict.retry_same is not True, name
