"""Say what a call is, in a line: for counts of failures, and before every result.

Laws: (1) a tool's own words go before ours, the caller's before both; (2) one line, of bounded
length; (3) it never fails, whatever the arguments are.
Not here: how a call went (results.py).
"""

from __future__ import annotations

import json
from dataclasses import replace

from jackline.batches.results import BatchCall
from jackline.batches.tool import CallWords, JsonObject, SpeaksOfCalls

_LONGEST = 100


def words_for(call: BatchCall) -> CallWords:
    """The words for a call."""
    if isinstance(call.tool, SpeaksOfCalls):
        words = call.tool.words(call.arguments)
    else:
        words = CallWords(
            call.tool.name, f"{call.tool.name}: {_shown(call.arguments)}".rstrip(": ")
        )
    return replace(words, what=_cut(call.what or words.what))


def _shown(arguments: JsonObject) -> str:
    if len(arguments) == 1 and isinstance(only := next(iter(arguments.values())), str):
        return only
    return json.dumps(arguments, ensure_ascii=False, default=repr) if arguments else ""


def _cut(what: str) -> str:
    line = " ".join(what.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
