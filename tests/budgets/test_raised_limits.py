"""New limits replace the old ones of the same unit, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.budgets.budget import Budget, Unit, with_limits

AMOUNTS = st.none() | st.integers(1, 1000)


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [
        ((), Budget(dollars=10), (Budget(dollars=10),)),
        ((Budget(dollars=5),), Budget(dollars=10), (Budget(dollars=10),)),
        (
            (Budget(dollars=5, agents=3),),
            Budget(dollars=10),
            (Budget(agents=3), Budget(dollars=10)),
        ),
        ((Budget(dollars=5, strict=True),), Budget(dollars=10), (Budget(dollars=10, strict=True),)),
        (
            (Budget(dollars=5, tokens=9, strict=True),),
            Budget(agents=4),
            (Budget(dollars=5, tokens=9, strict=True), Budget(agents=4)),
        ),
        (
            (Budget(dollars=20, window="5h"), Budget(dollars=5)),
            Budget(dollars=10),
            (Budget(dollars=20, window="5h"), Budget(dollars=10)),
        ),
    ],
)
def test_a_limit_takes_the_place_of_those_of_its_unit(
    before: tuple[Budget, ...], new: Budget, after: tuple[Budget, ...]
) -> None:
    assert with_limits(before, new) == after


@given(st.lists(st.builds(Budget, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)), st.data())
def test_of_each_unit_the_new_limit_or_the_old_one_holds(
    before: list[Budget], data: st.DataObject
) -> None:
    new = data.draw(st.builds(Budget, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS))
    after = with_limits(tuple(before), new)
    for unit in Unit:
        limits = [
            limit
            for budget in after
            for each, limit in budget.limits(rolling=False)
            if each == unit
        ]
        old = [
            limit
            for budget in before
            for each, limit in budget.limits(rolling=False)
            if each == unit
        ]
        wanted = getattr(new, unit)
        assert limits == (old if wanted is None else [wanted])
