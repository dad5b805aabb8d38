"""Every error says who must act, and every face knows how to show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jackline import errors
from jackline.errors import JacklineError

DOCS = (Path(__file__).parent.parent / "docs" / "errors.md").read_text("utf-8")
LEAVES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, JacklineError)
]


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_each_error_has_its_code_statuses_and_a_place_in_the_docs(
    kind: type[JacklineError],
) -> None:
    error = kind("told", hint="do this")
    assert re.fullmatch(r"[a-z_]+", kind.code)
    assert 400 <= kind.http_status <= 599
    assert kind.exit_code in (1, 2, 3, 5, 75)
    heading = error.docs_anchor.partition("#")[2]
    assert f"### {heading}\n" in DOCS
    section = DOCS.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    assert f"HTTP {kind.http_status}" in section
    assert f"exit {kind.exit_code}" in section
    assert error.to_json()["hint"] == "do this"


def test_each_leaf_of_the_tree_is_raised() -> None:
    sources = Path(errors.__file__).parent.rglob("*.py")
    code = "\n".join(file.read_text("utf-8") for file in sources if file.name != "errors.py")
    leaves = {kind.__name__ for kind in LEAVES if not kind.__subclasses__()}
    assert {name for name in leaves if not re.search(rf"\b{name}\(", code)} == set()


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in LEAVES]
    assert len(codes) == len(set(codes))


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    for kind in LEAVES:
        assert kind.__name__ in errors.__doc__
