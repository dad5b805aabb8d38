"""Print sentences so that a terminal cuts no word at its edge.

Rules: (1) lines are wrapped at word ends, and only on a terminal: what a pipe or a file gets has
one line per fact; (2) a word that is wider than the terminal stays whole: it may be an address to
copy; (3) spaces inside of a line stay as they are; (4) JSON and other programs' text never come
here.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TextIO

import click

_NARROWEST = 20


def wrapped(text: str, stream: TextIO, *, indent: int = 0) -> str:
    """The text with its long lines wrapped for this stream.

    Further lines of a line are indented like it, and `indent` columns more.
    """
    if not stream.isatty():
        return text
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    return "\n".join(_wrapped_line(line, width, indent) for line in text.split("\n"))


def say(text: str, *, err: bool = False, indent: int = 2) -> None:
    """Print sentences on stdout or stderr."""
    click.echo(wrapped(text, sys.stderr if err else sys.stdout, indent=indent), err=err)


def _wrapped_line(line: str, width: int, indent: int) -> str:
    if len(line) <= width:
        return line
    own = len(line) - len(line.lstrip(" "))
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * min(own + indent, width // 2),
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
