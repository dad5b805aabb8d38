"""Read the few facts of a request on which the routing of a call depends, in any dialect.

Rules: (1) the body is never changed and never rebuilt; (2) the short way gives what the long way
would give for every valid body; (3) a body that cannot be read gives no facts and no exception:
the vendor says what is wrong with it; (4) a request whose last message brings tool results
continues a turn; a body that cannot be read begins a new one; (5) only the end of the
conversation is read for that: the work does not grow with the number of messages.
Not here: headers, adding to a request (calls/), translation (openai_chat/, openai_responses/).
"""

from __future__ import annotations

import re
from itertools import chain, islice

import msgspec

from jackline.dialects.json_bounds import last_items
from jackline.dialects.tokens_used import bounded_count

_LETTERS_PER_TOKEN = 4
_WINDOW = 1024
# Up to here decoding everything costs less than the searches of the short way.
_SOON_DECODED = 4096
# Where Claude Code writes what is looked for: a search through all of the window costs more than
# all the rest.
_NEAR_END = 160
_ACCOUNT_WINDOW = 4096
# Claude Code writes its metadata behind the conversation; to search all of that costs more than
# the little that is lost when another client names an account in the middle.
_ACCOUNT_NEAR_END = 32 * 1024

# Why the short way is exact for valid JSON. A first key is a key of the top-level object, because
# nothing has been opened before it; its value is taken only when no backslash is in it. The last
# brace of the body closes that same object, so the member in front of it is a top-level one too;
# and the quote before `stream` opens a key, because a comma, not a backslash, stands before it.
# (A key that is written twice has no agreed meaning: this takes the first model, the last stream.)
_FIRST_IS_MODEL = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\]*)"')
_LAST_IS_STREAM = re.compile(rb',\s*"stream"\s*:\s*(true|false)\s*\}\s*\Z')
# A quote inside of a string is escaped, so this is a key; whether it is a top-level one is likely,
# not certain. The number only guesses how long an answer may take.
_MAX_TOKENS = re.compile(rb'"max_tokens"\s*:\s*(\d{1,9})\s*[,}]')
_USER_ID = re.compile(rb'"metadata"\s*:\s*\{\s*"user_id"\s*:\s*("(?:[^"\\]|\\.)*")')


class RequestFacts(msgspec.Struct, frozen=True):
    """What a request asks for; `model` is None when the body cannot be read."""

    model: str | None
    stream: bool
    max_tokens: int
    input_tokens: int


class _Asked(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None


class _Messages(msgspec.Struct):
    messages: msgspec.Raw


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _WithMetadata(msgspec.Struct):
    metadata: _Metadata | None = None


class _User(msgspec.Struct):
    account_uuid: str | None = None


_asked = msgspec.json.Decoder(_Asked)
_messages = msgspec.json.Decoder(_Messages)
_with_metadata = msgspec.json.Decoder(_WithMetadata)
_user = msgspec.json.Decoder(_User)
_string = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def read_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes, without decoding where the order of the keys allows it."""
    size = len(body) // _LETTERS_PER_TOKEN
    if len(body) <= _SOON_DECODED:
        facts = _read_wholly(body, size) or _read_shortly(body, size)
    else:
        facts = _read_shortly(body, size) or _read_wholly(body, size)
    return facts or RequestFacts(None, False, 0, size)


def _read_shortly(body: bytes | bytearray, size: int) -> RequestFacts | None:
    model = _FIRST_IS_MODEL.match(body)
    if model is None:
        return None
    tail = bytes(body[-_WINDOW:])
    near = len(tail) - _NEAR_END
    stream = _LAST_IS_STREAM.search(tail, near) or _LAST_IS_STREAM.search(tail)
    if stream is None:
        return None
    # The last one counts, and it is the last of any part of the body that it is found in.
    limits = (
        _MAX_TOKENS.findall(tail, near)
        or _MAX_TOKENS.findall(tail)
        or _MAX_TOKENS.findall(bytes(body[:_WINDOW]))
    )
    if not limits:
        return None
    try:
        name = model[1].decode()
    except UnicodeDecodeError:
        return None
    return RequestFacts(name, stream[1] == b"true", int(limits[-1]), size)


def _read_wholly(body: bytes | bytearray, size: int) -> RequestFacts | None:
    try:
        asked = _asked.decode(body)
    except _UNREADABLE:
        return None
    return RequestFacts(asked.model, bool(asked.stream), bounded_count(asked.max_tokens or 0), size)


def request_messages(body: bytes | bytearray) -> bytes | None:
    """The conversation as it is written: the same turn, asked in another way, has the same."""
    try:
        return bytes(_messages.decode(body).messages)
    except _UNREADABLE:
        return None


def account_of(body: bytes | bytearray) -> str | None:
    """The account that Claude Code names in `metadata.user_id`, which is JSON inside of JSON."""
    found = _USER_ID.findall(bytes(body[-_ACCOUNT_WINDOW:]))
    try:
        if found:
            user_id: str | None = _string.decode(found[-1])
        elif (
            body.find(b"account_uuid", -_ACCOUNT_NEAR_END) >= 0
            or body.find(b"account_uuid", 0, _ACCOUNT_WINDOW) >= 0
        ):
            metadata = _with_metadata.decode(body).metadata
            user_id = metadata.user_id if metadata else None
        else:
            return None
        return (user_id and _user.decode(user_id).account_uuid) or None
    except _UNREADABLE:
        return None


_NO_CONTENT = msgspec.Raw(b"null")
# Far more than the tools that a model calls at once, and the reminders behind their results.
_MOST_BLOCKS = 10_000
_MOST_LAST_MESSAGES = 1_000


class _Block(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: msgspec.Raw = _NO_CONTENT


class _WithMessages(msgspec.Struct):
    messages: msgspec.Raw


_with_messages = msgspec.json.Decoder(_WithMessages)
_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)


def continues_turn(body: bytes | bytearray) -> bool:
    """Whether the model waits for what its tools have found."""
    try:
        said = bytes(_with_messages.decode(body).messages)
        for raw in islice(last_items(said), _MOST_LAST_MESSAGES):
            message = _message.decode(raw)
            # Reminders of the client may stand behind the results.
            if message.role == "system":
                continue
            blocks = islice(last_items(bytes(message.content)), _MOST_BLOCKS)
            return any(_block.decode(block).type == "tool_result" for block in blocks)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return False


_OPENAI_LETTERS_PER_TOKEN = 4
_UNREADABLE_OPENAI = (msgspec.DecodeError, ValueError, RecursionError)
# Whatever the client's user or its rules say behind results belongs to the same turn.
_REMINDERS = ("developer", "system")


_NO_ENTRIES = msgspec.Raw(b"null")
_MOST_LAST_ENTRIES = 1_000


class _OpenAIRequest(msgspec.Struct):
    """The fields of both dialects; each has its own name for the longest answer."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


class _Said(msgspec.Struct):
    messages: msgspec.Raw = _NO_ENTRIES
    input: msgspec.Raw = _NO_ENTRIES


class _Entry(msgspec.Struct):
    role: str | None = None
    type: str | None = None


_openai_request = msgspec.json.Decoder(_OpenAIRequest)
_said = msgspec.json.Decoder(_Said)
_entry = msgspec.json.Decoder(_Entry)


def read_openai_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes."""
    size = len(body) // _OPENAI_LETTERS_PER_TOKEN
    try:
        asked = _openai_request.decode(body)
    except _UNREADABLE_OPENAI:
        return RequestFacts(None, False, 0, size)
    limit = asked.max_output_tokens or asked.max_completion_tokens or asked.max_tokens or 0
    return RequestFacts(asked.model, bool(asked.stream), bounded_count(limit), size)


def continues_openai_turn(body: bytes | bytearray) -> bool:
    """Whether the model waits for what its tools have found."""
    try:
        said = _said.decode(body)
        entries = chain.from_iterable(
            last_items(bytes(given)) for given in (said.messages, said.input)
        )
        for raw in islice(entries, _MOST_LAST_ENTRIES):
            entry = _entry.decode(raw)
            if entry.role in _REMINDERS:
                continue
            return entry.role == "tool" or (entry.type or "").endswith("_call_output")
    except _UNREADABLE_OPENAI:
        return False
    return False
