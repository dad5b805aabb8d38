"""Each key's line is found, or the line of what holds it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.config.keys import KeyLines

TEXT = '''\
# port = 0
stream = "live"
note = """
port = 1
[hold]
"""

[listen]   # here
  port = 9000
"odd key" = 1

[[upstream]]
url = "a"
limits = { parallel = 3 }
model_limits."claude-opus-*" = { parallel = 2 }
[upstream.limits2]
x = 1

[[upstream]]
url = "b"
[upstream.limits2]
x = 2
[caps . tags]
night = 2
'''


def test_lines_are_found_through_tables_lists_and_quotes() -> None:
    lines = KeyLines(TEXT)
    found = {
        ("stream",): 2,
        ("listen",): 8,
        ("listen", "port"): 9,
        ("listen", "odd key"): 10,
        ("upstream", 0): 12,
        ("upstream", 0, "url"): 13,
        ("upstream", 0, "limits", "parallel"): 14,
        ("upstream", 0, "model_limits", "claude-opus-*", "parallel"): 15,
        ("upstream", 0, "limits2", "x"): 17,
        ("upstream", 1, "url"): 20,
        ("upstream", 1, "limits2", "x"): 22,
        ("caps", "tags", "night"): 24,
    }
    assert {place: lines.line_of(place) for place in found} == found


def test_a_key_that_is_not_there_has_the_line_of_its_table_or_none() -> None:
    lines = KeyLines(TEXT)
    assert lines.line_of(("listen", "nothing", "deep")) == 8
    assert lines.line_of(("hold", "quota")) is None
    assert lines.line_of(("port",)) is None


@given(st.text(alphabet="[]ab.=\"'# \n", max_size=80))
def test_any_text_is_read_without_a_crash(text: str) -> None:
    line = KeyLines(text).line_of(("a",))
    assert line is None or 1 <= line <= len(text.splitlines())
