"""Hold what was seen of a failure, exactly as it was seen.

Laws: (1) building an observation never raises and interprets nothing; (2) anything may be missing.
Not here: reading the payload (reading.py), deciding (classify.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


class Where(StrEnum):
    """Through which window the failure was seen."""

    HTTP = "http"
    SSE = "sse"
    EXCEPTION = "exception"
    TRANSCRIPT = "transcript"
    CLI_TEXT = "cli_text"
    STATUSPAGE = "statuspage"


@dataclass(frozen=True, slots=True)
class Observation:
    """One sighting: an answer, an event in a stream, an exception, a transcript line or a text.

    `body` is raw bytes, text or decoded JSON, whichever the observer had. `exception` is an
    exception object of ours; exceptions of other programs arrive as `text`.
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
        """An HTTP answer, whole; an event stream by its content type is read as one."""
        content_type = next((v for k, v in headers.items() if k.lower() == "content-type"), "")
        where = Where.SSE if content_type.startswith("text/event-stream") else Where.HTTP
        return cls(where, provider, status, headers, body)

    @classmethod
    def of_stream(cls, body: bytes, *, provider: str | None = None) -> Observation:
        """The bytes of an event stream up to where it ended."""
        return cls(Where.SSE, provider, 200, {}, body)

    @classmethod
    def of_exception(cls, exception: BaseException, *, provider: str | None = None) -> Observation:
        """An exception raised in this process."""
        return cls(Where.EXCEPTION, provider, exception=exception)

    @classmethod
    def of_text(cls, text: str) -> Observation:
        """What a program printed, or what a person pasted."""
        return cls(Where.CLI_TEXT, text=text)
