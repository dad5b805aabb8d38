"""Know what OpenAI's models and other servers of its dialects take, by their names and hosts.

Laws: (1) what is not known is taken for the most careful case: a field that is left out costs a
little, one that is refused costs the call; (2) what the user wrote wins.
Not here: writing requests (dialects/), the user's own map of models (settings.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jackline.dialects.neutral.ids import digest
from jackline.dialects.neutral.options import Target
from jackline.upstream.port import Headers

_SESSION, _AGENT = b"x-claude-code-session-id", b"x-claude-code-agent-id"


class _Known(NamedTuple):
    """What the models of a pattern take: levels of effort, and the longest answer."""

    names: re.Pattern[str]
    efforts: tuple[str, ...] = ()
    longest: int | None = None

    @property
    def reasons(self) -> bool:
        """Models that reason refuse temperature and top_p."""
        return bool(self.efforts)


_LEVELS = ("low", "medium", "high")
# In this order: the first that fits counts.
_MODELS: Sequence[_Known] = (
    _Known(re.compile(r"gpt-5(?:\.\d)?-chat"), longest=16_384),
    _Known(re.compile(r"gpt-5\.[2-9]"), ("none", *_LEVELS, "xhigh")),
    _Known(re.compile(r"gpt-5\.1"), ("none", *_LEVELS)),
    _Known(re.compile(r"gpt-5"), ("minimal", *_LEVELS)),
    _Known(re.compile(r"o\d"), _LEVELS),
    _Known(re.compile(r"(?:chat)?gpt-4o"), longest=16_384),
    _Known(re.compile(r"gpt-4\.1"), longest=32_768),
)
_UNKNOWN = _Known(re.compile(""))


def is_openai(host: str) -> bool:
    """Whether OpenAI's own API answers there."""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_vendor(host: str) -> bool:
    """Whether OpenAI's models are served there as OpenAI serves them."""
    return is_openai(host) or host.endswith(".openai.azure.com")


def reasons(model: str) -> bool:
    """Whether this is one of OpenAI's models that reason."""
    return _known(model).reasons


def target_of(model: str, host: str, headers: Headers, longest: int | None = None) -> Target:
    """What a model takes there; `longest` is the longest answer that the user allows."""
    if not is_vendor(host):
        # Other servers know the older name of the limit, their templates often want all system
        # messages in front, and some refuse a level of effort for models that do not reason.
        efforts = _LEVELS if host == "openrouter.ai" else ()
        return Target(
            max_tokens_field="max_tokens",
            mid_system="user",
            longest_answer=longest,
            efforts=efforts,
        )
    known = _known(model)
    limits = [limit for limit in (longest, known.longest) if limit is not None]
    return Target(
        sampling=not known.reasons,
        efforts=known.efforts,
        longest_answer=min(limits, default=None),
        prompt_cache_key=_conversation(headers) if is_openai(host) else None,
    )


def _known(model: str) -> _Known:
    name = model.rpartition("/")[2]
    return next((each for each in _MODELS if each.names.match(name)), _UNKNOWN)


def _conversation(headers: Headers) -> str | None:
    """A name for the conversation that says nothing about it: the vendor caches by it."""
    found = {name.lower(): value for name, value in headers if name.lower() in (_SESSION, _AGENT)}
    if _SESSION not in found:
        return None
    return digest(*(value.decode("latin-1") for value in found.values()))
