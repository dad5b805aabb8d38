"""What was seen of a failure, unchanged; also from a pasted text or a line of JSON.

Rules: (1) building an observation never raises and interprets nothing; anything may be missing;
(2) a pasted text is never refused; (3) a JSON object that is not an observation is refused with
the reason, so that a script can find the wrong line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import msgspec

from jackline.errors import BadArgumentError

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


class Where(StrEnum):
    """Where the failure was seen."""

    HTTP = "http"
    SSE = "sse"
    EXCEPTION = "exception"
    TRANSCRIPT = "transcript"
    CLI_TEXT = "cli_text"
    STATUSPAGE = "statuspage"


@dataclass(frozen=True, slots=True)
class Observation:
    """An answer, an event in a stream, an exception, a transcript line or a text.

    `body` is raw bytes, text or decoded JSON. `exception` is an exception of this process; those of
    other programs are in `text`.
    """

    where: Where
    provider: str | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Json = None
    text: str | None = None
    exception: BaseException | None = None

    @classmethod
    def of_response(
        cls,
        status: int,
        headers: Mapping[str, str],
        body: bytes | Json,
        *,
        provider: str | None = None,
    ) -> Observation:
        """A whole HTTP answer, or an event stream by its content type."""
        content_type = next((v for k, v in headers.items() if k.lower() == "content-type"), "")
        where = Where.SSE if content_type.startswith("text/event-stream") else Where.HTTP
        return cls(where, provider, status, headers, body)

    @classmethod
    def of_stream(cls, body: bytes, *, provider: str | None = None) -> Observation:
        """The bytes of an event stream up to where it ended."""
        return cls(Where.SSE, provider, 200, {}, body)

    @classmethod
    def of_exception(cls, exception: BaseException) -> Observation:
        """An exception raised in this process."""
        return cls(Where.EXCEPTION, exception=exception)

    @classmethod
    def of_text(cls, text: str) -> Observation:
        """What a program printed, or what a person pasted."""
        return cls(Where.CLI_TEXT, text=text)

    @classmethod
    def from_paste(
        cls, text: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Observation:
        """From anything pasted: a sentence, a JSON error, `curl -i` output, a stream."""
        response = _RESPONSE_HEAD.match(text)
        if response is not None:
            head, _, body = text[response.end() :].replace("\r\n", "\n").partition("\n\n")
            pairs = (line.partition(":") for line in head.splitlines())
            found = {name.strip().lower(): value.strip() for name, mark, value in pairs if mark}
            return cls.of_response(int(response[1]), found, body)
        if text.lstrip().startswith(("event:", "data:")):
            return cls(Where.SSE, None, status or 200, headers or {}, text)
        try:
            document: Json = msgspec.json.decode(text.strip())
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            document = None
        if (
            isinstance(document, dict)
            and "where" in document
            and document.keys() & {"body", "text"}
        ):
            return cls.from_json(document)
        if isinstance(document, dict) and document.keys() & _TRANSCRIPT_KEYS:
            return cls(Where.TRANSCRIPT, None, status, headers or {}, document)
        if isinstance(document, dict | list):
            return cls(Where.HTTP, None, status, headers or {}, document)
        return cls(Where.CLI_TEXT, None, status, headers or {}, text=text)

    @classmethod
    def from_json(cls, document: Json) -> Observation:
        """An observation from an object with the documented fields; others are ignored."""
        if not isinstance(document, dict):
            raise _bad("an observation is a JSON object")
        fields = {key: document.get(key) for key in _FIELDS}
        where = fields["where"]
        if not isinstance(where, str) or where not in list(Where):
            raise _bad(f"`where` has to be one of {', '.join(Where)}")
        provider, text = fields["provider"], fields["text"]
        if not isinstance(provider, str | None) or not isinstance(text, str | None):
            raise _bad("`provider` and `text` have to be strings or null")
        status, headers = fields["status"], fields["headers"]
        if isinstance(status, bool) or not isinstance(status, int | str | None):
            raise _bad("`status` has to be a whole number or null")
        if isinstance(status, str) and not (status.isdecimal() and len(status) <= _MOST_DIGITS):
            raise _bad("`status` has to be a whole number or null")
        if not isinstance(headers, dict | None):
            raise _bad("`headers` has to be an object or null")
        joined = {
            name: ", ".join(map(str, each)) if isinstance(each, list) else str(each)
            for name, each in (headers or {}).items()
        }
        number = None if status is None else int(status)
        return cls(Where(where), provider, number, joined, fields["body"], text)

    @classmethod
    def from_line(cls, line: bytes) -> Observation:
        """An observation from one line of JSON."""
        try:
            document: Json = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise _bad(f"not JSON: {error}") from error
        return cls.from_json(document)


# int() raises for thousands of digits.
_MOST_DIGITS = 9
_FIELDS = frozenset({"where", "provider", "status", "headers", "body", "text"})
_TRANSCRIPT_KEYS = frozenset(
    {"isApiErrorMessage", "is_error", "sessionId", "session_id", "subtype"}
)
_RESPONSE_HEAD = re.compile(r"\s*HTTP/[\d.]{1,3} (\d{3})[^\n]{0,100}\n")


def _bad(message: str) -> BadArgumentError:
    return BadArgumentError(
        message, hint="see `jackline why --help` for the fields of an observation"
    )
