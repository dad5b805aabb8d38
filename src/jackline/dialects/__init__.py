"""Read and write wire formats: pure functions and readers over bytes.

Rules: (1) no I/O, no clock; (2) bytes that are passed on are never parsed and rebuilt; (3) nothing
that a peer sends makes a reader raise, except where it says so.
Not here: deciding what reaches a client (calls/), sockets (upstream/, gateway/).
"""

from jackline.dialects.answer_facts import (
    HOLD_ID,
    PING,
    AnswerFacts,
    block_stop,
    closing_events,
    error_event,
    placeholder_start,
    read_answer,
)
from jackline.dialects.anthropic_stream import AnthropicStreamReader, StreamBlock
from jackline.dialects.request_facts import (
    RequestFacts,
    account_of,
    read_request,
    request_messages,
)
from jackline.dialects.sse import EventSplitter, data_of, event_of, name_and_data
from jackline.dialects.token_usage import TokenUsage

__all__ = [
    "HOLD_ID",
    "PING",
    "AnswerFacts",
    "AnthropicStreamReader",
    "EventSplitter",
    "RequestFacts",
    "StreamBlock",
    "TokenUsage",
    "account_of",
    "block_stop",
    "closing_events",
    "data_of",
    "error_event",
    "event_of",
    "name_and_data",
    "placeholder_start",
    "read_answer",
    "read_request",
    "request_messages",
]
