"""Cut a transcript into lines, and decode the fields of Claude Code's lines that matter.

Rules: (1) the lines are the same however the bytes arrive, and never more than a bounded piece is
in memory; (2) a line over the limit is counted and skipped, and the lines after it are not lost;
(3) only fields that some rule reads are decoded; (4) a field of an unexpected type costs its line,
never the whole file; (5) broken characters are replaced.
Not here: what the fields mean for an agent (transcripts/conversation.py), other clients
(transcripts/codex.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Protocol, TypeVar

import msgspec

# Small enough to stay in the processor's cache, and for the allocator to hand out again and again.
PIECE = 120_000
LONGEST_LINE = 8 << 20


class Readable(Protocol):
    """The one thing needed of an open file."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; none at the end."""
        ...


class LineReader:
    """The non-empty lines of one open file, without their ends, as views into what was read.

    While a line is handed out, `unfinished` tells whether its end is missing, as it is while a
    client is still writing. `oversized` counts the lines that were passed over for their length.
    """

    def __init__(self, file: Readable, *, piece: int = PIECE, longest: int = LONGEST_LINE) -> None:
        self._file = file
        self._piece = piece
        self._longest = longest
        self.bytes_read = 0
        self.oversized = 0
        self.unfinished = False

    def __iter__(self) -> Iterator[memoryview]:
        rest = b""
        passing_over = False
        # A line longer than a piece doubles what is read, or joining it up would cost its square.
        while piece := self._file.read(max(self._piece, len(rest))):
            self.bytes_read += len(piece)
            start, end = 0, piece.find(b"\n")
            if end >= 0 and (rest or passing_over):
                # Only the line that lies across the border is joined up, not the whole piece.
                line = rest + piece[:end]
                rest = b""
                if len(line) > self._longest and not passing_over:
                    self.oversized += 1
                elif not passing_over:
                    yield memoryview(line)
                passing_over = False
                start, end = end + 1, piece.find(b"\n", end + 1)
            view = memoryview(piece)
            while end >= 0:
                if end - start > self._longest:
                    self.oversized += 1
                elif end > start:
                    yield view[start:end]
                start, end = end + 1, piece.find(b"\n", end + 1)
            if not passing_over:
                rest += piece[start:]
            if len(rest) > self._longest:
                self.oversized += 1
                passing_over = True
                rest = b""
        if rest:
            self.unfinished = True
            yield memoryview(rest)


# A line longer than this is looked at before it is decoded: most bytes of a transcript are tool
# output, which tells nothing here, and whose lines begin in a fixed way.
LONG = 2_000
_LOOK = 500

_FLAT = rb'\{\s*(?:"\w+"\s*:\s*(?:"[^"\\]*"|null|true|false|-?\d+)\s*,\s*)*?'
# As the client writes it. Quotes inside a JSON string are escaped, so these bytes are always keys.
_TOOL_OUTPUT_AS_WRITTEN = b'"type":"user","message":{"role":"user","content":[{"tool_use_id":"'
_TOOL_OUTPUT = re.compile(
    _FLAT + rb'"type"\s*:\s*"user"\s*,\s*"message"\s*:\s*\{\s*"role"\s*:\s*"user"\s*,'
    rb'\s*"content"\s*:\s*\[\s*\{\s*"tool_use_id"\s*:\s*"([^"\\]*)"\s*,\s*"type"\s*:\s*"tool_result"'
)
_TELLS_NOTHING = re.compile(
    _FLAT + rb'(?:"attachment"\s*:\s*\{|"type"\s*:\s*"(?:api-request-(?:blob|shape)'
    rb'|attachment|file-history-snapshot|progress|summary|queue-operation)")'
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

# Everything that decoding raises for bytes that make no sense.
NO_SENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")
T = TypeVar("T")


class MessageUsage(msgspec.Struct, gc=False):
    """What one answer says that it cost."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    # What was written to the cache, by how long it is kept; of any shape, as others wrote it.
    cache_creation: object = None

    @property
    def cache_creation_1h(self) -> int:
        """The part of what was written to the cache that is kept for an hour."""
        split = self.cache_creation
        told = split.get("ephemeral_1h_input_tokens") if isinstance(split, dict) else None
        return told if isinstance(told, int) else 0

    @property
    def total(self) -> int:
        """All four counts, as Claude Code adds them up for its own `totalTokens`."""
        return (
            (self.input_tokens or 0)
            + (self.output_tokens or 0)
            + (self.cache_creation_input_tokens or 0)
            + (self.cache_read_input_tokens or 0)
        )


class TranscriptMessage(msgspec.Struct):
    """One message, or one block of an answer: Claude Code writes a line for each block."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    content: msgspec.Raw = _NOTHING
    usage: MessageUsage | None = None


class TranscriptBlock(msgspec.Struct):
    """One piece of a message's content."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: msgspec.Raw = _NOTHING


class TranscriptLine(msgspec.Struct, rename="camel"):
    """One line of a transcript."""

    type: str = ""
    subtype: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    is_sidechain: bool | None = None
    is_compact_summary: bool | None = None
    is_meta: bool | None = None
    version: str | None = None
    cwd: str | None = None
    message: TranscriptMessage | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    request_id: str | None = None
    request_digest: str | None = None
    error: msgspec.Raw = _NOTHING
    quota_limits: msgspec.Raw = _NOTHING
    attachment: msgspec.Raw = _NOTHING
    origin: msgspec.Raw = _NOTHING
    tool_use_result: msgspec.Raw = _NOTHING
    tool_ends_turn: bool | None = None


class EverydayBlock(msgspec.Struct, gc=False):
    """As much of a block as everyday lines need."""

    type: str = ""
    name: str | None = None
    text: str | None = None


class EverydayMessage(msgspec.Struct, gc=False):
    """As much of a message as everyday lines need."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    content: list[EverydayBlock] | str | None = None
    usage: MessageUsage | None = None


class EverydayLine(msgspec.Struct, rename="camel", gc=False):
    """As much of a line as nearly all lines need: half the work of a whole `Line`."""

    type: str = ""
    timestamp: str | None = None
    is_api_error_message: bool | None = None
    tool_ends_turn: bool | None = None
    message: EverydayMessage | None = None


class PrintedLine(msgspec.Struct):
    """One line that `claude -p --output-format stream-json` printed."""

    type: str = ""
    subtype: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    parent_tool_use_id: str | None = None
    message: TranscriptMessage | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    request_id: str | None = None
    error: msgspec.Raw = _NOTHING
    tool_use_result: msgspec.Raw = _NOTHING
    is_error: bool | None = None
    result: msgspec.Raw = _NOTHING
    errors: msgspec.Raw = _NOTHING
    model: str | None = None
    cwd: str | None = None
    claude_code_version: str | None = None
    tools: msgspec.Raw = _NOTHING
    structured_output: msgspec.Raw = _NOTHING
    attempt: int | None = None
    error_status: int | None = None
    task_id: str | None = None
    tool_use_id: str | None = None
    task_type: str | None = None
    subagent_type: str | None = None
    description: str | None = None
    status: str | None = None
    summary: str | None = None
    subagent_retry: msgspec.Raw = _NOTHING
    workflow_progress: msgspec.Raw = _NOTHING


class QuotaLimits(msgspec.Struct, rename="camel"):
    """The subscription window that refused, as newer clients write it down."""

    status: str | None = None
    resets_at: int | None = None
    rate_limit_type: str | None = None
    overage_status: str | None = None

    def as_headers(self) -> dict[str, str]:
        """The same facts under the names that the server gave them."""
        told = {
            "status": self.status,
            "reset": None if self.resets_at is None else str(self.resets_at),
            "representative-claim": self.rate_limit_type,
            "overage-status": self.overage_status,
        }
        return {
            f"anthropic-ratelimit-unified-{name}": value
            for name, value in told.items()
            if value is not None
        }


_BLOCKS = msgspec.json.Decoder(list[TranscriptBlock])
_TEXT = msgspec.json.Decoder(str)


def is_tool_output(line: memoryview, *, but_not_of: Collection[str]) -> bool:
    """Whether a long line's beginning says that it answers a tool call, and none of these calls."""
    head = line[:_LOOK].tobytes()
    start = head.find(_TOOL_OUTPUT_AS_WRITTEN)
    if start < 0:
        found = _TOOL_OUTPUT.match(head)
        return found is not None and found[1].decode("ascii", "replace") not in but_not_of
    if not but_not_of:
        return True
    start += len(_TOOL_OUTPUT_AS_WRITTEN)
    call = head[start : head.find(b'"', start)]
    return call.decode("ascii", "replace") not in but_not_of


def is_bookkeeping(line: memoryview) -> bool:
    """Whether a long line's beginning says that it is bookkeeping of the client."""
    return _TELLS_NOTHING.match(line, 0, _LOOK) is not None


def decode(decoder: msgspec.json.Decoder[T], data: memoryview | bytes | msgspec.Raw) -> T | None:
    """The decoded value, from mended bytes if need be, or None when there is no sense in them."""
    try:
        return decoder.decode(data)
    except NO_SENSE:
        mended = _mended(bytes(data))
    if mended is None:
        return None
    try:
        return decoder.decode(mended)
    except NO_SENSE:
        return None


def _mended(data: bytes) -> bytes | None:
    """The line with broken characters replaced, or None when characters are not its problem.

    Tools cut their output anywhere, so half a surrogate pair or half a UTF-8 sequence is common.
    """
    mended = _SURROGATE.sub(rb"\\ufffd", data)
    mended = mended.decode("utf-8", "replace").encode()
    return None if mended == data else mended


def blocks_of(content: msgspec.Raw) -> list[TranscriptBlock]:
    """The blocks of a message's content; a bare string is one text block."""
    blocks = decode(_BLOCKS, content)
    if blocks is not None:
        return blocks
    text = decode(_TEXT, content)
    return [] if text is None else [TranscriptBlock("text", text=text)]


def text_of(content: msgspec.Raw) -> str:
    """All text in a message's content, one block a line."""
    return "\n".join(b.text for b in blocks_of(content) if b.text)
