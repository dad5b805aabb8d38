"""What is said of others names its source and its date; what is claimed of us names its proof."""

from __future__ import annotations

import ast
import re
import shlex
from datetime import date

import pytest

from tests.docs.pages import ROOT, text_of
from tests.docs.test_pages import fault_of

PAGE = text_of("alternatives.md")
OTHERS, _, OURS = PAGE.partition("## What we found in none of them")
ROW = re.compile(r"^\| (?!---|claim|\|)(.+) \|$", re.MULTILINE)
DEFINED = dict(re.findall(r"^\[(\d+)\]: (https://\S+)$", PAGE, re.MULTILINE))
# Of what is neither documented nor measured, but what everybody can see.
_PLAIN = ("Scripts that watch", "Temporal")


def rows(text: str) -> list[list[str]]:
    """The rows of the tables, without their heads."""
    return [row.split(" | ") for row in ROW.findall(text) if not row.startswith("better")]


def test_it_says_when_it_was_checked() -> None:
    checked = re.search(r"^Checked on (\d{4}-\d\d-\d\d)", PAGE, re.MULTILINE)
    assert checked is not None
    assert date.fromisoformat(checked[1]).year >= 2026


@pytest.mark.parametrize("row", rows(OTHERS), ids=lambda row: row[0][:30])
def test_every_row_about_others_names_its_sources(row: list[str]) -> None:
    name, _better, _lacks, sources = row
    if sources == "-":
        assert any(plain in name for plain in _PLAIN)
    elif sources == "ours":
        assert "(measured by us" in " ".join(row) or "why.md" in " ".join(row)
    else:
        numbers = re.findall(r"\[(\d+)\]", sources)
        assert numbers
        assert set(numbers) <= set(DEFINED)


def test_every_source_is_used_and_dated_or_called_undated() -> None:
    used = {number for row in rows(OTHERS) for number in re.findall(r"\[(\d+)\]", row[3])}
    assert used == set(DEFINED)
    dates = next(part for part in PAGE.split("\n\n") if part.startswith("Dates of the sources"))
    assert "the others are undated pages" in dates
    for number, address in DEFINED.items():
        # A thread of GitHub always has a date.
        assert "github.com" not in address or f"[{number}]" in dates


@pytest.mark.parametrize("row", rows(OURS), ids=lambda row: row[0][:40])
def test_every_claim_about_us_names_a_proof_that_exists(row: list[str]) -> None:
    _claim, proof = row
    named = re.findall(r"`([^`]+)`", proof)
    assert any(name.startswith(("tests/", "bench/")) for name in named), "a proof can be run"
    for name in named:
        assert_exists(name)


def assert_exists(name: str) -> None:
    """A file, a test in a file, or a command of ours."""
    if name.startswith("jackline "):
        assert fault_of(shlex.split(name)[1:]) is None, name
        return
    path, _, test = name.partition("::")
    assert (ROOT / path).is_file(), name
    if test:
        defined = ast.parse((ROOT / path).read_text("utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert test in {one.name for one in defined.body if isinstance(one, functions)}, name
