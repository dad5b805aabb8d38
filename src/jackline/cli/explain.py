"""`jackline explain`: what one error means, whose fault it is, and what helps.

Rules: (1) any text gets an answer; (2) `--jsonl` answers line by line, in order, and never stops at
a bad line; (3) of a bare 429 no side is blamed: it does not say whose limit it is.
"""

from __future__ import annotations

import json
import sys

import click

from jackline.cli.arguments import parse_now_option
from jackline.clock import SystemClock
from jackline.errors import BadArgumentError, JacklineError
from jackline.failures import Kind, classify
from jackline.failures.observation import Observation
from jackline.failures.sentences import explain as explain_in_words

_BARE = frozenset(("status 429", 'text "too many requests"'))


@click.command()
@click.argument("text", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the failure as one JSON document.")
@click.option(
    "--jsonl", is_flag=True, help="One observation per line of stdin, one answer per line."
)
@click.option(
    "--status", type=click.IntRange(100, 599), help="The HTTP status seen beside the text."
)
@click.option("--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="A response header.")
@click.option("--now", metavar="ISO", help="Use this as the current time; for tests and old logs.")
def explain(
    text: tuple[str, ...],
    as_json: bool,
    jsonl: bool,
    status: int | None,
    header: tuple[str, ...],
    now: str | None,
) -> int:
    """Say what an error means, whose fault it is, what helps, and until when.

    TEXT is the error as you saw it: a message, a JSON error, `curl -i` output. Without TEXT it is
    read from stdin.

    \b
    Examples:
      jackline explain "You've hit your session limit · resets 10:10pm (Europe/Kiev)"
      curl -si https://… | jackline explain
      jackline explain --jsonl < observations.jsonl

    With --jsonl each line is an object with the fields where (http, sse, exception, transcript,
    cli_text, statuspage), provider, status, headers, body, text; each answer has kind, sub, scope,
    retry_same, failover_helps, retry_after_s, resets_at. A bad line is answered by an object with
    the key error, and the exit code is 3.

    Exit codes: 0 explained, 1 not recognised, 2 usage, 3 bad lines in --jsonl.
    """
    moment = parse_now_option(now, SystemClock())
    if jsonl:
        if text or as_json or status is not None or header:
            raise BadArgumentError(
                "--jsonl reads its observations from stdin and accepts no other option than --now",
                hint="jackline explain --jsonl < observations.jsonl",
            )
        bad = 0
        for data in sys.stdin.buffer:
            try:
                answer = classify(Observation.from_line(data), now=moment).to_json()
            except JacklineError as error:
                bad += 1
                answer = {"error": error.message}
            click.echo(json.dumps(answer, ensure_ascii=False))
        return 3 if bad else 0
    headers = {}
    for line in header:
        name, mark, value = line.partition(":")
        if not mark:
            raise BadArgumentError(
                f"--header {line!r} has no colon", hint="write it like -H 'retry-after: 30'"
            )
        headers[name.strip().lower()] = value.strip()
    seen = Observation.from_paste(_error_text(text), status=status, headers=headers)
    failure = classify(seen, now=moment)
    what, *helps = explain_in_words(failure, moment)
    guessed = failure.kind is Kind.SERVER_THROTTLE and failure.sub is None
    if guessed and _BARE.issuperset(failure.evidence):
        what = (
            "This is a 429 that does not say whose limit it is: your own traffic may be above what"
            " the account may send, or the provider may be short of capacity. The rest of the"
            " response, its headers and body, may show it."
        )
    explanation = " ".join((what, *helps))
    if as_json:
        document = {
            "schema": "jackline.explain/1",
            **failure.to_json(),
            "evidence": list(failure.evidence),
            "explanation": explanation,
        }
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        click.echo(explanation)
    unrecognised = failure.kind is Kind.NOT_A_FAILURE and failure.sub == "unrecognised"
    return 1 if unrecognised else 0


def _error_text(words: tuple[str, ...]) -> str:
    if words and words != ("-",):
        # Arguments may hold bytes that are no text; they must not break the answer.
        return " ".join(words).encode("utf-8", "replace").decode()
    if sys.stdin.isatty():
        raise BadArgumentError(
            "there is nothing to explain",
            hint='jackline explain "API Error: …", or pipe the text in',
        )
    pasted = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not pasted.strip():
        raise BadArgumentError(
            "there is nothing to explain: stdin is empty", hint='jackline explain "API Error: …"'
        )
    return pasted
