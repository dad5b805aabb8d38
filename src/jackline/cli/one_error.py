"""Explain one error for `jackline why --text`: what it means, whose fault it is, and what helps.

Rules: (1) any text gets an answer; (2) lines of JSON are answered one by one, in order, and a bad
one does not stop the rest; (3) of a bare 429 no side is blamed: it does not say whose limit it is.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from jackline.errors import BadArgumentError, ExitCode, JacklineError
from jackline.failures import Failure, Kind, classify
from jackline.failures.observation import Observation
from jackline.failures.sentences import explain as explain_in_words

SCHEMA = "jackline.why-text/1"
_BARE = frozenset(("status 429", 'text "too many requests"'))
_SILENT_SECONDS = 2.0
_FORM = 'jackline why --text "API Error: …"'
# What only a text can have: an id has none of these, and a path is read as one before.
_OF_TEXT = frozenset(" \t\r\n{}\"'")
_OF_FILES = (".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".output")
_OF_PATH = ("/", "./", "../", "~", ".\\", "..\\", "\\\\")


@dataclass(slots=True)
class OneError:
    """What the command line says of one error: its text, and what was seen beside it."""

    text: str | None
    status: int | None
    header: tuple[str, ...]
    jsonl: bool
    as_json: bool

    def is_asked_for(self, words: Sequence[str], *, about_agents: bool) -> bool:
        """Whether an error is to be explained; BadArgumentError if that and agents are.

        Text that is piped in is read for it. One word that names nothing is looked at later.
        """
        beside = self.status is not None or bool(self.header)
        asked = self.jsonl or self.text is not None or beside
        if asked and about_agents:
            raise BadArgumentError(
                "--text, --status, --header and --jsonl are about errors, and the other options"
                " about agents",
                hint="jackline why --help",
            )
        if self.jsonl and (words or self.text is not None or beside or self.as_json):
            raise BadArgumentError(
                "--jsonl reads its observations from stdin and accepts no other option than --now",
                hint="jackline why --jsonl < observations.jsonl",
            )
        if not asked and not words and not about_agents and _is_piped():
            self.text = _piped_text().strip() or None
        return asked or self.text is not None or tuple(words) == ("-",)

    def explain(self, words: Sequence[str], now: datetime) -> int:
        """Print what it means; returns the exit code. `words` belong to the text."""
        if self.jsonl:
            return _explain_lines(now)
        # Words behind the first need no quotes.
        given = (*([] if self.text is None else [self.text]), *words) or ("-",)
        headers = _read_headers(self.header)
        seen = Observation.from_paste(_text_of(given), status=self.status, headers=headers)
        failure = classify(seen, now=now)
        what, *helps = explain_in_words(failure, now)
        guessed = failure.kind is Kind.SERVER_THROTTLE and failure.sub is None
        if guessed and _BARE.issuperset(failure.evidence):
            what = (
                "This is a 429 that does not say whose limit it is: your own traffic may be above"
                " what the account may send, or the provider may be short of capacity. The rest of"
                " the response, its headers and body, may show it."
            )
        explanation = " ".join((what, *helps))
        if self.as_json:
            document = {
                "schema": SCHEMA,
                **failure.to_json(),
                "evidence": list(failure.evidence),
                "explanation": explanation,
            }
            click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            click.echo(explanation)
        return ExitCode.FAILED if _is_unknown(failure) else ExitCode.DONE


def is_text_of_error(words: str, now: datetime) -> bool:
    """Whether these words, which name no file and no id, are the text of an error.

    One word may also be a mistyped id: it counts as an error only if it is known as one.
    """
    if not words or words.startswith(_OF_PATH):
        return False
    is_known = not _is_unknown(classify(Observation.from_paste(words), now=now))
    if not _OF_TEXT.isdisjoint(words):
        return is_known or not words.endswith(_OF_FILES)
    return is_known and "/" not in words


def _text_of(words: Sequence[str]) -> str:
    """The text in these arguments, or of stdin for `-`; BadArgumentError where there is none."""
    if list(words) != ["-"]:
        # Arguments may hold bytes that are no text; they must not break the answer.
        text = " ".join(words).encode("utf-8", "replace").decode()
    elif sys.stdin.isatty():
        raise BadArgumentError("stdin is a terminal: there is no text to read", hint=_FORM)
    else:
        text = _piped_text()
    if not text.strip():
        raise BadArgumentError("there is no text of an error: it is empty", hint=_FORM)
    return text


def _read_headers(lines: Sequence[str]) -> dict[str, str]:
    """The response headers in these `NAME: VALUE` lines."""
    headers = {}
    for line in lines:
        name, mark, value = line.partition(":")
        if not mark:
            raise BadArgumentError(
                f"--header {line!r} has no colon", hint="write it like -H 'retry-after: 30'"
            )
        headers[name.strip().lower()] = value.strip()
    return headers


def _explain_lines(now: datetime) -> int:
    """Answer each observation of stdin in a line of its own; returns the exit code."""
    bad = 0
    for data in sys.stdin.buffer:
        try:
            answer = classify(Observation.from_line(data), now=now).to_json()
        except JacklineError as error:
            bad += 1
            answer = {"error": error.message}
        click.echo(json.dumps(answer, ensure_ascii=False))
    return ExitCode.PARTLY if bad else ExitCode.DONE


def _is_unknown(failure: Failure) -> bool:
    return failure.kind is Kind.NOT_A_FAILURE and failure.sub == "unrecognised"


def _is_piped() -> bool:
    """Whether stdin is a pipe or a file; a terminal, a socket and the null device bring no text."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False  # it is closed
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _piped_text() -> str:
    """What stdin has, whatever its bytes are."""
    if os.name != "nt" and not select.select([sys.stdin], [], [], _SILENT_SECONDS)[0]:
        # A script's pipe may stay open for ever: whoever waits learns why.
        click.echo(
            "reading the text of an error from stdin; the newest session instead:"
            " jackline why < /dev/null",
            err=True,
        )
    return sys.stdin.buffer.read().decode("utf-8", "replace")
