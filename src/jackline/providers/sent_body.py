"""Change the few members of an Anthropic request that another upstream wants otherwise.

Laws: (1) all other members stay as they are written; (2) what cannot be read is not changed: what
is wrong with it is for the vendor to say.
Not here: other dialects (dialects/), headers (sent_headers.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from jackline.dialects import read_request
from jackline.dialects.cache_marks import with_hour_marks
from jackline.providers.provider import CannotCarryError
from jackline.providers.sent_headers import without
from jackline.upstream.port import Message

# As dialects/anthropic_request.py argues: nothing has been opened before a first key, so that it is
# one of the top-level object; its value is taken only when no backslash is in it.
PACKED = frozenset({b"content-encoding"})
_PLAIN_CODINGS = frozenset((b"", b"identity"))
_FIRST_IS_MODEL = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\]*)"')


class _Stops(msgspec.Struct):
    stop_sequences: list[str] | None = None


_stops = msgspec.json.Decoder(_Stops)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def with_model(body: bytes | bytearray, model: str) -> bytes | bytearray:
    """The body that asks for this model; the same object when it does so already.

    No name stands for calls that are not for a model, such as a count of tokens: they stay.
    """
    if not model:
        return body
    name = msgspec.json.encode(model)
    first = _FIRST_IS_MODEL.match(body)
    if first is not None:
        start, end = first.span(1)
        if first[1] == name[1:-1]:
            return body
        return b"".join((body[:start], name[1:-1], body[end:]))
    members = members_of(body)
    if members is None or not _asks_for_another(members, model):
        return body
    return msgspec.json.encode({**members, "model": msgspec.Raw(name)})


def members_of(body: bytes | bytearray) -> dict[str, msgspec.Raw] | None:
    """The members of the request as they are written; None when it is no JSON object."""
    try:
        return _fields.decode(body)
    except _UNREADABLE:
        return None


def written(members: Mapping[str, msgspec.Raw]) -> bytes:
    """The request of these members."""
    return msgspec.json.encode(members)


def raw(value: object) -> msgspec.Raw:
    """A value as it is written."""
    return msgspec.Raw(msgspec.json.encode(value))


def is_true(value: msgspec.Raw | None) -> bool:
    """Whether a member is there and true."""
    return value is not None and bytes(value) == b"true"


def asked_model(body: bytes | bytearray) -> str | None:
    """The model that the body asks for."""
    return read_request(body).model


def stop_sequences_of(body: bytes | bytearray) -> tuple[str, ...]:
    """The words at which the answer shall stop."""
    try:
        return tuple(_stops.decode(body).stop_sequences or ())
    except _UNREADABLE:
        return ()


def unpacked(message: Message) -> bytes | bytearray | None:
    """The body without its compression; None when that was not undone."""
    # Unpacking here would hold everybody up, once for each attempt: whoever took the call in did.
    coding = next((v for n, v in message.headers if n.lower() == b"content-encoding"), b"")
    is_plain = coding.strip().lower() in _PLAIN_CODINGS
    return message.body if is_plain else message.plain


def plain(message: Message) -> bytes | bytearray:
    """The body without its compression; CannotCarryError when it cannot be undone."""
    body = unpacked(message)
    if body is None:
        raise CannotCarryError("The request is packed in a way that cannot be undone here.")
    return body


def with_hours(message: Message) -> Message:
    """The message whose cache marks ask for an hour; the same one where nothing changes.

    One that came compressed is sent plain; what nobody could unpack stays as it is.
    """
    body = unpacked(message)
    asked = body if body is None else with_hour_marks(body)
    if asked is None or asked is body:
        return message
    if body is message.body:
        return message._replace(body=asked)
    return message._replace(
        headers=without(message.headers, PACKED), body=asked, lines=None, plain=None
    )


def _asks_for_another(members: Mapping[str, msgspec.Raw], model: str) -> bool:
    """Whether these members ask for a model that is not this one."""
    try:
        return _text.decode(members.get("model", b"")) != model
    except _UNREADABLE:
        return False
