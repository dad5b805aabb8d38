"""The table of what tests cost counts waiting and work apart."""

from __future__ import annotations

from tests.costs import Cost, table


def test_the_dearest_folders_come_first_and_every_test_counts() -> None:
    lines = table(
        {
            "tests/a/test_x.py::test_one": Cost(wall=5.0, processor=1.0),
            "tests/a/test_y.py::test_two": Cost(wall=1.0, processor=1.0),
            "tests/b/test_z.py::test_three[case]": Cost(wall=2.0, processor=2.0),
        }
    )
    text = "\n".join(lines)
    assert "all tests: 8.0 s, processor 4.0 s" in text
    assert text.index("tests/a") < text.index("tests/b")
    assert text.index("test_one") < text.index("test_three[case]") < text.index("test_two")


def test_one_test_costs_what_its_phases_cost() -> None:
    assert Cost(1.0, 0.5) + Cost(2.0, 0.25) == Cost(3.0, 0.75)
