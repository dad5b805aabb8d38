"""Write the request that asks a model to go on where a broken answer stopped.

Laws: (1) only models and requests that are known to take an assistant's words as a beginning are
asked to; (2) all other members of the body stay as they are written.
Not here: joining the two halves (renumbering.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from jackline.dialects.json_bounds import last_items

# Opus 4.6, Sonnet 4.6 and everything after them refuse a prefill; so may models not yet known.
_TAKES_PREFILL = re.compile(r"claude-(?:3[-.].+|[a-z]+-4(?:-[015])?(?:-\d{8}|-latest)?)")


class _Kind(msgspec.Struct):
    type: str = ""


class _OutputConfig(msgspec.Struct):
    format: msgspec.Raw | None = None


class _Message(msgspec.Struct):
    role: str


class _Asked(msgspec.Struct):
    model: str
    messages: msgspec.Raw
    thinking: _Kind | None = None
    tool_choice: _Kind | None = None
    output_format: msgspec.Raw | None = None
    output_config: _OutputConfig | None = None


_asked = msgspec.json.Decoder(_Asked)
_message = msgspec.json.Decoder(_Message)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@lru_cache(maxsize=256)
def takes_prefill(model: str) -> bool:
    """Whether a model is known to go on from words put into its mouth."""
    return _TAKES_PREFILL.fullmatch(model) is not None


def prefilled(body: bytes | bytearray, text: str) -> bytes | None:
    """The request with `text` as the beginning of the answer; None when that is not allowed.

    The vendor takes no beginning that ends in white space, so that it is cut off; whoever joins the
    halves has to know: the words that were sent are `prefill_of(text)`.
    """
    words = prefill_of(text)
    try:
        asked = _asked.decode(body)
        if not words or not _allowed(asked):
            return None
        said = bytes(asked.messages).rstrip()
        last = next(last_items(said), None)
        if last is None or _message.decode(last).role != "user":
            return None
        fields = _fields.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    answer = msgspec.json.encode({"role": "assistant", "content": words})
    fields["messages"] = msgspec.Raw(b"%b,%b]" % (said[:-1], answer))
    return msgspec.json.encode(fields)


def prefill_of(text: str) -> str:
    """The words that `prefilled` sends for a text."""
    return text.rstrip()


def _allowed(asked: _Asked) -> bool:
    return (
        takes_prefill(asked.model)
        and (asked.thinking is None or asked.thinking.type == "disabled")
        and (asked.tool_choice is None or asked.tool_choice.type in ("auto", "none"))
        and _absent(asked.output_format)
        and (asked.output_config is None or _absent(asked.output_config.format))
    )


def _absent(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) == b"null"
