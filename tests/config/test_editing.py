"""An upstream is added or taken out, and every other line of the file stays as it was."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.config.toml_writer import with_upstream, without_upstream
from jackline.errors import UsageError

FILE = """# mine
stream = "live"  # because

# the vendor
[[upstream]]
name = "a"  # kept

[upstream.limits]
parallel = 3
# not yet: requests_per_minute

# the second
[[upstream]]
name = "b"
# held shortly
[hold]
quota = 1  # s
"""
ADDED = '[[upstream]]\nname = "c"\nmodels = { "claude-*" = "gpt-5.5" }\n'
VALUES = {"name": "c", "models": {"claude-*": "gpt-5.5"}}


def test_one_is_added_behind_the_last_before_the_next_tables_comment() -> None:
    before, after = FILE.split("# held shortly")
    assert with_upstream(FILE, VALUES) == f"{before}\n{ADDED}# held shortly{after}"


def test_one_is_added_first_above_the_firsts_comment() -> None:
    before, after = FILE.split("# the vendor")
    assert with_upstream(FILE, VALUES, first=True) == f"{before}{ADDED}\n# the vendor{after}"


def test_one_is_taken_out_with_its_own_comment_and_tables_alone() -> None:
    before, rest = FILE.split("# the vendor")
    assert without_upstream(FILE, 0) == f"{before}# the second{rest.split('# the second')[1]}"
    before, rest = FILE.split("# the second")
    assert without_upstream(FILE, 1) == f"{before}# held shortly{rest.split('# held shortly')[1]}"


@pytest.mark.parametrize("text", ["", "stream = 'live'\n", "[hold]\nquota = 1", "# only this\n"])
def test_the_first_one_of_all_goes_to_the_end(text: str) -> None:
    grown = with_upstream(text, VALUES)
    assert grown.endswith(ADDED)
    assert grown.startswith(text)
    assert without_upstream(grown, 0).rstrip() == text.rstrip()


def test_a_table_of_pyproject_is_edited_in_its_place() -> None:
    text = "[project]\nname = 'x'\n\n[tool.jackline]\nstream = 'live'\n\n[tool.ruff]\nx = 1\n"
    grown = with_upstream(text, VALUES, under=("tool", "jackline"))
    assert tomllib.loads(grown)["tool"]["jackline"]["upstream"] == [VALUES]
    assert "[[tool.jackline.upstream]]" in grown
    grown = with_upstream(grown, {"name": "d"}, under=("tool", "jackline"))
    assert [one["name"] for one in tomllib.loads(grown)["tool"]["jackline"]["upstream"]] == [
        "c",
        "d",
    ]


def test_long_maps_are_written_line_by_line() -> None:
    models = {f"claude-{number}-*": "a-model-with-a-long-name" for number in range(3)}
    grown = with_upstream("", {"name": "c", "models": models})
    assert max(map(len, grown.splitlines())) <= 100
    assert tomllib.loads(grown)["upstream"] == [{"name": "c", "models": models}]


def test_line_endings_of_windows_stay() -> None:
    text = FILE.replace("\n", "\r\n")
    assert with_upstream(text, VALUES).count("\n") == with_upstream(text, VALUES).count("\r\n")
    assert without_upstream(text, 1).replace("\r\n", "\n") == without_upstream(FILE, 1)


@pytest.mark.parametrize(
    "text",
    [
        'upstream = [{ name = "a" }]\n',
        # Belongs to the last upstream, though another table stands between.
        '[[upstream]]\nname = "a"\n[hold]\nquota = 1\n[upstream.limits]\nparallel = 1\n',
    ],
)
def test_what_cannot_be_edited_safely_is_left_alone(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be edited"):
        without_upstream(text, 0)
    if "= [" in text:
        with pytest.raises(UsageError, match="cannot be edited"):
            with_upstream(text, VALUES)


LINES = st.sampled_from(
    ["", "# a", "stream = 'live'", "[hold]", "quota = 1", "[[upstream]]", "name = 'n'"]
) | st.sampled_from(
    ["[upstream.limits]", "parallel = 1", "x = '''", "[[upstream]] '''", "y = [", "['a'],", "]"]
)


@given(st.lists(LINES, max_size=12), st.booleans())
def test_any_file_keeps_its_lines_and_means_what_it_meant(lines: list[str], first: bool) -> None:
    text = "\n".join(lines) + "\n"
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    try:
        grown = with_upstream(text, VALUES, first=first)
    except UsageError:
        return
    after = tomllib.loads(grown)
    listed = after.pop("upstream")
    assert listed.pop(0 if first else -1) == VALUES
    assert listed == before.pop("upstream", [])
    assert after == before
    assert [line for line in grown.splitlines() if line.strip()] != []
    place = 0 if first else len(listed)
    shrunk = without_upstream(grown, place)
    assert [line for line in shrunk.splitlines() if line.strip()] == [
        line for line in lines if line.strip()
    ]
