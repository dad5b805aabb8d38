"""Read the few facts of a request on which the routing of a call depends, in any dialect.

Rules: (1) the body is never changed and never rebuilt; (2) scanning gives what decoding would give
for every valid body; (3) a body that cannot be read gives no facts and no exception: the vendor
says what is wrong with it; (4) a request whose last message brings tool results continues a turn;
a body that cannot be read begins a new one; (5) only the end of the conversation is read for that:
the work does not grow with the number of messages.
"""

from __future__ import annotations

import re
from itertools import chain, islice

import msgspec

from jackline.dialects.json_bounds import UNREADABLE, last_items
from jackline.dialects.token_usage import bounded_count

_BYTES_PER_TOKEN = 4
_WINDOW = 1024
# Up to this size decoding the whole body costs less than scanning.
_SMALL_BODY = 4096
# Where Claude Code writes these fields: a search through the whole window costs more than all the
# rest.
_NEAR_END = 160
_ACCOUNT_WINDOW = 4096
# Claude Code writes its metadata after the conversation. Searching the whole conversation would
# cost more than the little that is lost when another client names an account in the middle.
_ACCOUNT_NEAR_END = 32 * 1024
# Far more than the tools that a model calls at once, and the reminders after their results.
_MOST_BLOCKS = 10_000
_MOST_LAST_MESSAGES = 1_000
# Messages that a client adds after results belong to the same turn.
_REMINDER_ROLES = ("developer", "system")

# Why scanning is exact for valid JSON. A first key is a key of the top-level object, because
# nothing has been opened before it; its value is used only when no backslash is in it. The last
# brace of the body closes that same object, so the member before it is a top-level one too; and
# the quote before `stream` opens a key, because a comma, not a backslash, is before it.
# (A key that is written twice has no agreed meaning: this uses the first model, the last stream.)
_FIRST_IS_MODEL = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\]*)"')
_LAST_IS_STREAM = re.compile(rb',\s*"stream"\s*:\s*(true|false)\s*\}\s*\Z')
# A quote inside of a string is escaped, so this is a key; whether it is a top-level one is likely,
# not certain. The number is only used to guess how long an answer may take.
_MAX_TOKENS = re.compile(rb'"max_tokens"\s*:\s*(\d{1,9})\s*[,}]')
_USER_ID = re.compile(rb'"metadata"\s*:\s*\{\s*"user_id"\s*:\s*("(?:[^"\\]|\\.)*")')


class RequestFacts(msgspec.Struct, frozen=True):
    """What a request asks for; `model` is None when the body cannot be read."""

    model: str | None
    stream: bool
    max_tokens: int
    input_tokens: int


class _Request(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None


class _OpenAIRequest(_Request):
    # Each of the two dialects has its own name for the longest answer.
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


class _Conversation(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


class _Entry(msgspec.Struct):
    """A message, a content block or an input item."""

    role: str | None = None
    type: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


class _UserNames(msgspec.Struct):
    user_id: str | None = None
    account_uuid: str | None = None


class _WithMetadata(msgspec.Struct):
    metadata: _UserNames | None = None


_request = msgspec.json.Decoder(_Request)
_openai_request = msgspec.json.Decoder(_OpenAIRequest)
_conversation = msgspec.json.Decoder(_Conversation)
_entry = msgspec.json.Decoder(_Entry)
_with_metadata = msgspec.json.Decoder(_WithMetadata)
_user_names = msgspec.json.Decoder(_UserNames)
_string = msgspec.json.Decoder(str)


def read_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes, without decoding where the order of the keys allows it."""
    size = len(body) // _BYTES_PER_TOKEN
    is_small = len(body) <= _SMALL_BODY
    facts = None if is_small else _scan_request(body, size)
    if facts is not None:
        return facts
    try:
        request = _request.decode(body)
    except UNREADABLE:
        facts = _scan_request(body, size) if is_small else None
        return facts or RequestFacts(None, False, 0, size)
    limit = bounded_count(request.max_tokens or 0)
    return RequestFacts(request.model, bool(request.stream), limit, size)


def _scan_request(body: bytes | bytearray, size: int) -> RequestFacts | None:
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


def read_openai_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes of a chat or Responses request."""
    size = len(body) // _BYTES_PER_TOKEN
    try:
        request = _openai_request.decode(body)
    except UNREADABLE:
        return RequestFacts(None, False, 0, size)
    limit = request.max_output_tokens or request.max_completion_tokens or request.max_tokens or 0
    return RequestFacts(request.model, bool(request.stream), bounded_count(limit), size)


def request_messages(body: bytes | bytearray) -> bytes | None:
    """The messages as written: a turn that is requested again in another way has the same."""
    try:
        messages = bytes(_conversation.decode(body).messages)
    except UNREADABLE:
        return None
    return None if messages == b"null" else messages


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
        return (user_id and _user_names.decode(user_id).account_uuid) or None
    except UNREADABLE:
        return None


def continues_turn(body: bytes | bytearray) -> bool:
    """Whether the last message brings the model the results of its tools."""
    try:
        messages = bytes(_conversation.decode(body).messages)
        for raw in islice(last_items(messages), _MOST_LAST_MESSAGES):
            message = _entry.decode(raw)
            # Reminders of the client may follow the results.
            if message.role == "system":
                continue
            blocks = islice(last_items(bytes(message.content)), _MOST_BLOCKS)
            return any(_entry.decode(block).type == "tool_result" for block in blocks)
    except UNREADABLE:
        return False
    return False


def continues_openai_turn(body: bytes | bytearray) -> bool:
    """The same for a chat or Responses request."""
    try:
        conversation = _conversation.decode(body)
        lists = (conversation.messages, conversation.input)
        entries = chain.from_iterable(last_items(bytes(entries)) for entries in lists)
        for raw in islice(entries, _MOST_LAST_MESSAGES):
            entry = _entry.decode(raw)
            if entry.role in _REMINDER_ROLES:
                continue
            return entry.role == "tool" or (entry.type or "").endswith("_call_output")
    except UNREADABLE:
        return False
    return False
