"""Judge what a run of Codex came to.

Laws: (1) a turn that did not complete is no answer; (2) a completed turn without a last message is
a truncation, not an empty answer; (3) words are judged by `failures` alone.
Not here: collecting what is judged (printed.py), validating the answer (process/attempt.py).
"""

from __future__ import annotations

import json
from datetime import datetime

from jackline.agents.codex.printed import Printed
from jackline.agents.process.program import Ended
from jackline.agents.process.verdict import Broken, Done, Failed, Verdict
from jackline.agents.process.words import exit_in_words, failure_in_words
from jackline.failures import Kind, Observation, Where, classify

_PROVIDER = "openai"


def asks_again(fault: str | None) -> str:
    """What to say to an agent that owes its structured answer, or gave one with a fault."""
    wrong = "is not one JSON document" if fault is None else f"is not as asked for: {fault}"
    return (
        f"Your last message {wrong}. Give the answer of the task again: nothing but the JSON "
        "document that the schema asks for, without a fence around it. Do none of the work again."
    )


def judge(printed: Printed, ended: Ended, *, schema: bool, now: datetime) -> Verdict:
    """What the run came to."""
    words = printed.failed
    if words is None and not printed.completed and ended.exit_code not in (0, None):
        words = printed.last_error
    if words is not None:
        return _failed(Observation(Where.TRANSCRIPT, _PROVIDER, text=words), printed, ended, now)
    if not printed.completed:
        return Broken(_exit(ended, "before its turn had ended"))
    if ended.exit_code != 0:
        return Broken(_exit(ended, "after its turn had ended"))
    if not printed.last_words:
        return _failed(Observation.of_stream(b"", provider=_PROVIDER), printed, ended, now)
    return Done(printed.last_words, _document(printed.last_words) if schema else None)


def _failed(seen: Observation, printed: Printed, ended: Ended, now: datetime) -> Verdict:
    failure = classify(seen, now=now)
    if failure.kind is Kind.NOT_A_FAILURE:
        return Broken(_exit(ended, "with an error that it did not explain"))
    return Failed(failure, failure_in_words(failure, seen.text), attempts=max(1, printed.errors))


def _document(text: str) -> object:
    """The JSON document that a message is; None when it is none."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0]
    try:
        document: object = json.loads(bare)
    except ValueError:
        return None
    return document


def _exit(ended: Ended, when: str) -> str:
    return exit_in_words("Codex", ended, when)
