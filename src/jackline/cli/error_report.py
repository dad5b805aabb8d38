"""Report how a command failed: sentences on stderr, or with --json one document on stdout.

Rules: (1) every failure is reported in one form, also click's own; (2) with --json stdout has a
JSON document whether the command succeeds or fails; an error is one line, as streams need it; (3)
what code of users said is shown only on a terminal, to who has started it, and is in no document;
(4) no word is cut at the terminal's edge.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from jackline.cli.terminal import wrapped
from jackline.errors import BadArgumentError, ExitCode, InternalError, JacklineError
from jackline.outside_names import printable

SCHEMA = "jackline.error/1"
# All that follows these verbs is another program's.
_OF_OTHERS = ("claude", "exec")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether this command line asks for JSON, however wrong it is otherwise."""
    if not arguments or arguments[0] in _OF_OTHERS:
        return False
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return not {"--json", "--jsonl"}.isdisjoint(own)


def report(error: Exception, *, as_json: bool) -> int:
    """Print the error; returns the exit code."""
    if isinstance(error, click.exceptions.Abort):
        if as_json:
            _print_document({"code": "interrupted", "message": "interrupted"}, ExitCode.INTERRUPTED)
        else:
            click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    found = _known(error)
    if as_json:
        _print_document(found.to_json(), found.exit_code)
        return found.exit_code
    # A message may quote a name that a foreign program has put into a store.
    _print("error: ", found.message)
    if found.private and sys.stderr.isatty():
        _print("said:  ", found.private)
    if found.hint:
        _print("hint:  ", found.hint)
    return found.exit_code


def _known(error: Exception) -> JacklineError:
    """The error as one of ours."""
    if isinstance(error, JacklineError):
        return error
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        verb = "jackline" if context is None else context.command_path
        return BadArgumentError(error.format_message(), hint=f"{verb} --help")
    return InternalError(
        f"a bug in Jackline: {type(error).__name__}",
        hint="run it again with JACKLINE_DEBUG=1 and report the traceback",
    )


def _print(head: str, text: str) -> None:
    said = printable(f"{head}{text}", keep="\n\t")
    click.echo(wrapped(said, sys.stderr, indent=len(head)), err=True)


def _print_document(error: dict[str, object], code: int) -> None:
    document = {"schema": SCHEMA, **error, "exit_code": int(code)}
    click.echo(json.dumps(document, ensure_ascii=False))
