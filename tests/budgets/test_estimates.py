"""What is expected of a call: what its like have used, and before that a careful guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.budgets.ledger import Estimate, Estimator


def expected(estimator: Estimator, label: str, model: str = "m", given: int = 1_000) -> Estimate:
    return estimator.expect(label, model, counted_input=given, max_tokens=8_000)


def test_before_anything_was_seen_it_is_the_counted_input_and_a_share_of_max_tokens() -> None:
    assert expected(Estimator(), "a") == Estimate(1_000, 1_000)
    unknown = Estimator().expect("a", "m", counted_input=0, max_tokens=None)
    assert unknown.tokens > 10_000, "a program's call, of which nobody knows anything"


def test_labels_that_differ_only_in_numbers_are_one_and_others_learn_by_model() -> None:
    estimator = Estimator()
    learn = estimator.learn
    learn("reader 1", "m", counted_input=100, input_tokens=200, output_tokens=50, dollars=0.5)
    assert expected(estimator, "reader 77") == Estimate(2_000, 50, 0.5 / 250 * 2_050)
    assert expected(estimator, "writer").tokens == 2_050
    assert expected(estimator, "reader 1", "another").tokens == 2_000
    learn("writer", "m", counted_input=100, input_tokens=100, output_tokens=900)
    assert expected(estimator, "writer").tokens == 1_900
    assert expected(estimator, "reader 77").tokens == 2_050, "its own kind goes before the model's"


def test_no_answer_is_expected_to_be_longer_than_it_may_be() -> None:
    estimator = Estimator()
    estimator.learn("a", "m", counted_input=1, input_tokens=1, output_tokens=9_000)
    assert expected(estimator, "a").output_tokens == 8_000


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=50))
def test_an_estimate_lies_between_the_least_and_somewhat_more_than_the_most(
    answers: list[int],
) -> None:
    estimator = Estimator()
    for answer in answers:
        estimator.learn("a", "m", counted_input=10, input_tokens=10, output_tokens=answer)
    careful = estimator.expect("a", "m", counted_input=10, max_tokens=None).output_tokens
    assert min(answers) <= careful + 1e-6
    assert careful <= 2 * max(answers) + 1e-6


def test_an_estimate_follows_what_changes() -> None:
    estimator = Estimator()
    for answer in [100] * 20 + [2_000] * 40:
        estimator.learn("a", "m", counted_input=10, input_tokens=10, output_tokens=answer)
    output = estimator.expect("a", "m", counted_input=10, max_tokens=None).output_tokens
    assert output == pytest.approx(2_000, rel=0.05)
