"""Count what a call used from what was sent and received, where an upstream says too little.

Rules: (1) pure; (2) what is possible is charged exactly as it was reported: input of all kinds,
cached or not, is compared with what was sent, and output with what came; (3) no model counts less
than a token for ten characters, where repeated signs count as a few; pictures, old thoughts and
tools are left out of that bound, because vendors count them in ways of their own; (4) what is less
is replaced by our own count of about four characters to a token, fresh input, and never by less
than was reported; output is no more than the call allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import astuple, replace

from jackline.agents.runner import JsonObject
from jackline.dialects import TokenUsage

_USUAL_CHARACTERS = 4
# English has four to five characters to a token, other languages and code have fewer.
_MOST_CHARACTERS = 10
# Long runs of one sign, blanks or "-=-=", can be one token.
_REPEATED = re.compile(r"(.)\1\1\1+|([^a-zA-Z0-9]{2,4}?)\2{3,}", re.DOTALL)
# Characters: 1,500 tokens are usual for a screenshot; the largest have three times as many.
_PICTURE = 6_000
# Tokens that a model reads around a call or result, besides what is in it.
_LEAST_OF_TOOL = 5
# Vendors neither show a model what it thought in earlier turns, nor marks and ids.
_THOUGHTS = ("thinking", "redacted_thinking")
_UNREAD = ("type", "role", "id", "tool_use_id", "signature", "cache_control", "is_error")


def own_count(
    usage: TokenUsage, body: JsonObject, content: Sequence[JsonObject], max_tokens: int
) -> TokenUsage | None:
    """What to charge for an answer in place of its `usage`; None where that is possible.

    `body` is what was sent, `content` the blocks that came.
    """
    found = TokenUsage(*(max(0, count) for count in astuple(usage)))
    sent = list(_texts([body.get("system"), body.get("messages")]))
    received = [text for block in content for text in _texts(_without_mark(block))]
    cached = found.cache_read_tokens + found.cache_write_tokens
    fresh, output = found.input_tokens, found.output_tokens
    if not is_possible(fresh + cached - _LEAST_OF_TOOL * _tool_blocks(body), sent):
        whole = [body.get("system"), body.get("tools"), body.get("messages")]
        fresh = max(fresh, -(-_characters(whole) // _USUAL_CHARACTERS) - cached)
    if output < max_tokens and not is_possible(output, received):
        output = max(output, min(count_of(received), max_tokens))
    own = replace(found, input_tokens=fresh, output_tokens=output)
    return None if own == usage else own


class ProgramCount:
    """Our own count of what a program's process uses, from what is known of its conversation.

    Programs send more than they print, and shorten what they send: only what a call must have sent
    once is evidence, and what is missing is counted as if each call sent all of it.
    """

    def __init__(self) -> None:
        self._unsent: list[str] = []
        self._has_result = False
        self._sent = self._sent_folded = self._received_folded = 0
        self._input = self._output = 0

    def add_input(self, text: str) -> None:
        """The next call sends this: a prompt, a result."""
        self._unsent.append(text)
        self._has_result = True

    def add_answer(self, text: str, *, begins: bool, of_agent: bool) -> None:
        """A piece of an answer came, the first of a call if it `begins`; `of_agent` itself.

        Whatever its id, what comes after a result is of a further call.
        """
        if (begins or self._has_result) and of_agent:
            self._has_result = False
            self._sent += sum(map(len, self._unsent))
            self._sent_folded += sum(map(_folded_length, self._unsent))
            self._unsent.clear()
            self._input += -(-self._sent // _USUAL_CHARACTERS)
        self._received_folded += _folded_length(text)
        self._output += count_of([text])
        if of_agent:
            self._unsent.append(text)

    def missing(self, reported: TokenUsage, *, with_output: bool) -> TokenUsage:
        """What all calls so far have used beyond what is reported; nothing where that can be."""
        fresh = output = 0
        tokens = reported.total - reported.output_tokens
        if tokens * _MOST_CHARACTERS < self._sent_folded:
            fresh = max(0, self._input - tokens)
        if with_output and reported.output_tokens * _MOST_CHARACTERS < self._received_folded:
            output = max(0, self._output - reported.output_tokens)
        return TokenUsage(fresh, output)


def usage_notice(where: str) -> str:
    """What the user is warned of: an upstream or model whose usage is counted by us."""
    return (
        f"{where} does not say what its answers use, or says less than is possible: such usage is"
        " an estimate of our own, in budgets too."
    )


def is_possible(reported: int, texts: Sequence[str]) -> bool:
    """Whether so few tokens can hold these texts."""
    most = reported * _MOST_CHARACTERS
    if reported <= 0:
        return reported == 0 and not any(texts)
    if most >= sum(map(len, texts)):
        return True
    # Folding takes time, and is hardly ever needed.
    return most >= sum(map(_folded_length, texts))


def count_of(texts: Sequence[str]) -> int:
    """About how many tokens these texts have."""
    return -(-sum(map(len, texts)) // _USUAL_CHARACTERS)


def _folded_length(text: str) -> int:
    return len(_REPEATED.sub(r"\1\1\2\2", text))


def _without_mark(block: JsonObject) -> JsonObject:
    """A block that came: here thoughts count, they are output."""
    if block.get("type") == "thinking":
        return {"text": block.get("thinking")}
    return block if block.get("type") in ("text", "tool_use") else {}


def _texts(value: object, *, with_keys: bool = False) -> Iterator[str]:
    """All that a model reads of this, as texts."""
    if isinstance(value, dict):
        if value.get("type") in (*_THOUGHTS, "base64") and not with_keys:
            return
        for key, each in value.items():
            if with_keys:
                yield str(key)
            elif key in _UNREAD:
                continue
            yield from _texts(each, with_keys=with_keys or key == "input")
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, with_keys=with_keys)
    elif value is not None:
        yield value if isinstance(value, str) else str(value)


def _tool_blocks(body: JsonObject) -> int:
    """How many calls of tools and results of them are sent."""
    messages = body.get("messages")
    found = 0
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            found += block.get("type") in ("tool_use", "tool_result")
    return found


def _characters(value: object) -> int:
    """About how many characters a model has to read for this, marks and names included."""
    if isinstance(value, dict):
        if value.get("type") in _THOUGHTS:
            return 0
        if value.get("type") == "base64":
            return _PICTURE
        return sum(len(str(key)) + _characters(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(map(_characters, value))
    return 0 if value is None else len(str(value))
