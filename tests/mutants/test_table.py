"""The table of promises stands on the code as it is now, so that each of them can be broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, TABLE, Mutant, main, mutants

ALL = list(mutants(TABLE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.promise)
def test_each_promise_is_kept_by_lines_that_stand_once_in_its_file(mutant: Mutant) -> None:
    path = ROOT / "src" / "jackline" / mutant.file
    whole = path.read_text(encoding="utf-8")
    assert whole.count(mutant.kept_by) == 1, "the code has changed: put its new lines in the table"
    # Broken, it is still Python: no test could tell a promise from a misprint.
    broken = whole.replace(mutant.kept_by, mutant.broken_by)
    assert broken != whole
    compile(broken, str(path), "exec")


def test_each_promise_is_told_once_and_has_tests_that_exist() -> None:
    assert len({mutant.promise for mutant in ALL}) == len(ALL)
    for mutant in ALL:
        assert mutant.tests
        for test in mutant.tests:
            file, _, name = test.partition("::")
            text = (ROOT / "tests" / Path(file)).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in text, test


def test_words_that_no_promise_has_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["no such promise"])
    assert left.value.code == 2
    assert "--list" in capsys.readouterr().err


def test_promises_can_be_listed_without_breaking_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list", "parked"]) == 0
    listed = capsys.readouterr().out
    assert "# nothing new starts while the run is parked" not in listed
    assert "nothing new starts while the run is parked" in listed
    assert "NOT CAUGHT" not in listed
