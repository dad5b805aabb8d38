"""Cut a transcript into lines, and decode the fields of Claude Code's lines that matter.

Rules: (1) the lines are the same however the bytes arrive, and never more than a bounded piece is
in memory; (2) a line over the limit is counted and skipped, and the lines after it are not lost;
(3) only fields that some rule reads are decoded; (4) a field of an unexpected type costs its line,
never the whole file; (5) broken characters are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from jackline.dialects.token_usage import TokenUsage
from jackline.transcripts.story import ReadProblem

if TYPE_CHECKING:
    from _typeshed import SupportsRead

# Small enough to stay in the processor's cache, and for the allocator to reuse.
_PIECE = 120_000
_LONGEST_LINE = 8 << 20

# A longer line is checked before it is decoded: most bytes of a transcript are tool output, which
# says nothing here, and whose lines begin in a fixed way.
LONG = 2_000
_START = 500

_FLAT = rb'\{\s*(?:"\w+"\s*:\s*(?:"[^"\\]*"|null|true|false|-?\d+)\s*,\s*)*?'
# As the client writes it. Quotes inside a JSON string are escaped, so these bytes are always keys.
_TOOL_OUTPUT_AS_WRITTEN = b'"type":"user","message":{"role":"user","content":[{"tool_use_id":"'
_TOOL_OUTPUT = re.compile(
    _FLAT + rb'"type"\s*:\s*"user"\s*,\s*"message"\s*:\s*\{\s*"role"\s*:\s*"user"\s*,'
    rb'\s*"content"\s*:\s*\[\s*\{\s*"tool_use_id"\s*:\s*"([^"\\]*)"\s*,\s*"type"\s*:\s*"tool_result"'
)
_BOOKKEEPING = re.compile(
    _FLAT + rb'(?:"attachment"\s*:\s*\{|"type"\s*:\s*"(?:api-request-(?:blob|shape)'
    rb'|attachment|file-history-snapshot|progress|summary|queue-operation)")'
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

# Everything that decoding raises for invalid bytes.
INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")
T = TypeVar("T")


class LineReader:
    """The non-empty lines of one open file, without their ends, as views into what was read.

    It pulls pieces, so that gigabytes are not copied; `LineCutter` of agents/ is pushed to.

    While a line is handed out, `unfinished` says whether its end is missing, as it is while a
    client is still writing.
    """

    def __init__(
        self, file: SupportsRead[bytes | None], *, piece: int = _PIECE, longest: int = _LONGEST_LINE
    ) -> None:
        self._file = file
        self._piece = piece
        self._longest = longest
        self._lines = self._cut()
        self._peeked: list[memoryview] = []
        self._invalid = 0
        self._half_written = 0
        self.bytes_read = 0
        self.oversized = 0
        self.unfinished = False

    def __iter__(self) -> Iterator[memoryview]:
        return chain(self._peeked, self._lines)

    def peek(self) -> Iterator[memoryview]:
        """The first lines; iterating over the reader afterwards starts with them again."""
        for line in self._lines:
            self._peeked.append(line)
            yield line

    def count_invalid(self) -> None:
        """Count the current line as one that cannot be decoded."""
        if self.unfinished:
            self._half_written += 1
        else:
            self._invalid += 1

    def problems(self, path: Path) -> list[ReadProblem]:
        """What could not be read of the file."""
        counts = (
            (self._invalid, "lines that are not JSON, or not of a known shape"),
            (self._half_written, "half-written last line"),
            (self.oversized, f"lines over {_LONGEST_LINE >> 20} MB, skipped"),
        )
        return [ReadProblem(path, what, count) for count, what in counts if count]

    def _cut(self) -> Iterator[memoryview]:
        rest = b""
        skipping = False
        # A line longer than a piece doubles what is read; otherwise joining it has quadratic cost.
        while piece := self._file.read(max(self._piece, len(rest))):
            self.bytes_read += len(piece)
            start, end = 0, piece.find(b"\n")
            if end >= 0 and (rest or skipping):
                # Only the line across the border is joined, not the whole piece.
                line = rest + piece[:end]
                rest = b""
                if len(line) > self._longest and not skipping:
                    self.oversized += 1
                elif not skipping:
                    yield memoryview(line)
                skipping = False
                start, end = end + 1, piece.find(b"\n", end + 1)
            view = memoryview(piece)
            while end >= 0:
                if end - start > self._longest:
                    self.oversized += 1
                elif end > start:
                    yield view[start:end]
                start, end = end + 1, piece.find(b"\n", end + 1)
            if not skipping:
                rest += piece[start:]
            if len(rest) > self._longest:
                self.oversized += 1
                skipping = True
                rest = b""
        if rest:
            self.unfinished = True
            yield memoryview(rest)


class MessageUsage(msgspec.Struct, gc=False):
    """The token counts of one answer."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    # What was written to the cache, by its lifetime; of any shape, as others wrote it.
    cache_creation: object = None

    @property
    def tokens(self) -> TokenUsage:
        """The counts, with the part of what was written to the cache that lives for an hour."""
        split = self.cache_creation
        one_hour = split.get("ephemeral_1h_input_tokens") if isinstance(split, dict) else None
        return TokenUsage(
            self.input_tokens or 0,
            self.output_tokens or 0,
            self.cache_read_input_tokens or 0,
            self.cache_creation_input_tokens or 0,
            one_hour if isinstance(one_hour, int) else 0,
        )

    @property
    def total(self) -> int:
        """All four counts, as Claude Code adds them up for its own `totalTokens`."""
        return (
            (self.input_tokens or 0)
            + (self.output_tokens or 0)
            + (self.cache_creation_input_tokens or 0)
            + (self.cache_read_input_tokens or 0)
        )


class ModelUsage(msgspec.Struct, rename="camel"):
    """What one model used, over all agents of a session, as Claude Code adds it up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    @property
    def tokens(self) -> TokenUsage:
        """The counts."""
        return TokenUsage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
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
    input: msgspec.Raw = _NOTHING
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
    total_cost: msgspec.Raw = msgspec.field(default=_NOTHING, name="totalCostUSD")
    model_usage: msgspec.Raw = _NOTHING


class CommonBlock(msgspec.Struct, gc=False):
    """The fields of a block that most lines need."""

    type: str = ""
    name: str | None = None
    text: str | None = None


class CommonMessage(msgspec.Struct, gc=False):
    """The fields of a message that most lines need."""

    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    content: list[CommonBlock] | str | None = None
    usage: MessageUsage | None = None


class CommonLine(msgspec.Struct, rename="camel", gc=False):
    """The fields that most lines need: half the work of a whole `TranscriptLine`."""

    type: str = ""
    timestamp: str | None = None
    is_api_error_message: bool | None = None
    tool_ends_turn: bool | None = None
    message: CommonMessage | None = None


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
    stop_reason: str | msgspec.UnsetType | None = msgspec.UNSET
    total_cost_usd: float | None = None
    model_usage: msgspec.Raw = msgspec.field(default=_NOTHING, name="modelUsage")
    rate_limit_info: msgspec.Raw = _NOTHING


class QuotaLimits(msgspec.Struct, rename="camel"):
    """The subscription window that refused, as newer clients write it."""

    status: str | None = None
    resets_at: int | None = None
    rate_limit_type: str | None = None
    overage_status: str | None = None

    def as_headers(self) -> dict[str, str]:
        """The same facts as the server's headers."""
        facts = {
            "status": self.status,
            "reset": None if self.resets_at is None else str(self.resets_at),
            "representative-claim": self.rate_limit_type,
            "overage-status": self.overage_status,
        }
        return {
            f"anthropic-ratelimit-unified-{name}": value
            for name, value in facts.items()
            if value is not None
        }


LINES = msgspec.json.Decoder(TranscriptLine)
PRINTED_LINES = msgspec.json.Decoder(PrintedLine)
QUOTAS = msgspec.json.Decoder(QuotaLimits)
TEXT = msgspec.json.Decoder(str)
TEXTS = msgspec.json.Decoder(list[str])
_BLOCKS = msgspec.json.Decoder(list[TranscriptBlock])


def is_tool_output(line: memoryview, *, but_not_of: Collection[str]) -> bool:
    """Whether a long line's start says that it answers a tool call, and none of these calls."""
    head = line[:_START].tobytes()
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
    """Whether a long line's start says that it is bookkeeping of the client."""
    return _BOOKKEEPING.match(line, 0, _START) is not None


def decode(decoder: msgspec.json.Decoder[T], data: memoryview | bytes | msgspec.Raw) -> T | None:
    """The decoded value, with broken characters replaced, or None for invalid bytes.

    Tools cut their output anywhere, so half a surrogate pair or half a UTF-8 sequence is common.
    """
    try:
        return decoder.decode(data)
    except INVALID:
        original = bytes(data)
    repaired = _SURROGATE.sub(rb"\\ufffd", original).decode("utf-8", "replace").encode()
    if repaired == original:
        return None
    try:
        return decoder.decode(repaired)
    except INVALID:
        return None


def blocks_of(content: msgspec.Raw) -> list[TranscriptBlock]:
    """The blocks of a message's content; a bare string is one text block."""
    blocks = decode(_BLOCKS, content)
    if blocks is not None:
        return blocks
    text = decode(TEXT, content)
    return [] if text is None else [TranscriptBlock("text", text=text)]


def text_of(content: msgspec.Raw) -> str:
    """All text in a message's content, one block a line."""
    return "\n".join(b.text for b in blocks_of(content) if b.text)
