"""What Bedrock and Vertex share: Claude's model names, the form of requests, fetching credentials.

Rules: (1) a name that is not one of Claude's own stays as it is: whoever put it in a map knows
better; unknown names are derived by the pattern of the newest ones; (2) model and version are where
the cloud wants them; (3) betas that a cloud does not know are left out: it would refuse the whole
request; (4) all else in a request stays as it is, except cache scopes, which exist only at
Anthropic; (5) a vendor's blocking library runs in a thread, one fetch at a time for all who wait; a
waiter that leaves does not stop it for the others, and nobody waits longer than the time limit.
Not here: addresses and credentials (bedrock.py, vertex.py), the user's own map (settings.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from jackline.errors import UsageError
from jackline.providers.provider import UnsupportedRequestError
from jackline.providers.sent_request import is_true, members_of, plain, raw, written
from jackline.upstream.interface import UpstreamRequest

_DATED = re.compile(r"(claude-.+?)-(\d{8})")
# Names without a date mean the one version there is; up to 4.5 the clouds want it with its date.
_DATES: Mapping[str, str] = {
    "claude-3-haiku": "20240307",
    "claude-3-opus": "20240229",
    "claude-3-5-haiku": "20241022",
    "claude-3-5-sonnet": "20241022",
    "claude-3-7-sonnet": "20250219",
    "claude-opus-4": "20250514",
    "claude-sonnet-4": "20250514",
    "claude-opus-4-1": "20250805",
    "claude-opus-4-5": "20251101",
    "claude-sonnet-4-5": "20250929",
    "claude-haiku-4-5": "20251001",
}
_SECOND_SONNET_3_5 = "claude-3-5-sonnet-20241022"
_BEDROCK_ODD: Mapping[str, str] = {"claude-opus-4-6": "claude-opus-4-6-v1"}
_AREAS = ("global", "us", "eu", "apac", "jp", "au", "us-gov")
# The models that Bedrock serves by a profile for all of Asia and the Pacific; later ones are served
# there by a profile for Japan or Australia, or else only by the one for the whole world.
_IN_APAC = re.compile(r"claude-3-.+|claude-sonnet-4-20250514")
_IN_JAPAN = re.compile(r"claude-(?:sonnet|haiku)-4-5-\d{8}|claude-(?:opus|sonnet)-4-6")
_IN_AUSTRALIA = re.compile(r"claude-(?:sonnet|haiku)-4-5-\d{8}|claude-[a-z]+-[0-9-]{1,4}")


def bedrock_id(model: str, region: str) -> str:
    """The inference profile for a model, called from a region.

    In place of a region may stand what a profile covers: `global`, `us`, `eu`, `apac`, `jp`, `au`.
    """
    name = _full_name(model)
    if name is None:
        return model
    if _DATED.fullmatch(name):
        base = f"{name}-{'v2' if name == _SECOND_SONNET_3_5 else 'v1'}:0"
    else:
        base = _BEDROCK_ODD.get(name, name)
    area = region if region in _AREAS else _area(name, region)
    return f"{area}.anthropic.{base}"


def vertex_id(model: str) -> str:
    """The name of a model at Vertex."""
    name = _full_name(model)
    if name is None:
        return model
    dated = _DATED.fullmatch(name)
    if dated is None:
        return name
    family = f"{dated[1]}-v2" if name == _SECOND_SONNET_3_5 else dated[1]
    return f"{family}@{dated[2]}"


def _full_name(model: str) -> str | None:
    """The name with its date, where it has one; None when it is no name of Claude's own."""
    if not model.startswith("claude-") or not re.fullmatch(r"[a-z0-9.-]+", model):
        return None
    if _DATED.fullmatch(model):
        return model
    name = model.removesuffix("-latest").removesuffix("-0")
    return f"{name}-{_DATES[name]}" if name in _DATES else model


def _area(name: str, region: str) -> str:
    start = region.partition("-")[0]
    if region.startswith("us-gov-"):
        return "us-gov"
    if start in ("us", "ca", "eu"):
        return "eu" if start == "eu" else "us"
    if start != "ap":
        return "global"
    if _IN_APAC.fullmatch(name):
        return "apac"
    if region in ("ap-northeast-1", "ap-northeast-3") and _IN_JAPAN.fullmatch(name):
        return "jp"
    if region in ("ap-southeast-2", "ap-southeast-4") and _IN_AUSTRALIA.fullmatch(name):
        return "au"
    return "global"


MESSAGES = b"/v1/messages"
COUNT_TOKENS = b"/v1/messages/count_tokens"

_BOTH = frozenset(
    {
        "compact-2026-01-12",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "dangerous-tool-use-2026-09-03",
        "interleaved-thinking-2025-05-14",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "tool-search-tool-2025-10-19",
    }
)
BEDROCK_BETAS = _BOTH | {
    "effort-2025-11-24",
    "fine-grained-tool-streaming-2025-05-14",
    "mid-conversation-output-config-2026-07-01",
    "mid-conversation-tool-changes-2026-07-01",
    "output-128k-2025-02-19",
    "structured-outputs-2025-11-13",
    "token-efficient-tools-2025-02-19",
    "tool-examples-2025-10-29",
}
VERTEX_BETAS = _BOTH | {
    "compact-2026-09-04",
    "per-turn-control-2026-07-01",
    "web-search-2025-03-05",
}
# The clouds know by their single names what Anthropic's own door gathers under one.
_SINGLE_NAMES: Mapping[str, tuple[str, ...]] = {
    "advanced-tool-use-2025-11-20": ("tool-search-tool-2025-10-19", "tool-examples-2025-10-29"),
}
_WITH_CACHE_MARKS = ("cache_control", "system", "tools", "messages")


class CloudRequest(NamedTuple):
    """The members of a request, without the model, and whether a stream is asked for."""

    members: dict[str, msgspec.Raw]
    stream: bool

    def body(self) -> bytes:
        """The request as it is sent."""
        return written(self.members)


def model_in_path(name: str, safe: str = "") -> str:
    """The name of a model as a part of a path; CannotCarryError for dots alone, which lead away."""
    if not name.strip("."):
        raise UnsupportedRequestError("no model is named by dots alone")
    return quote(name, safe=safe)


def cloud_request(message: UpstreamRequest, version: str) -> CloudRequest:
    """The request for a cloud's version of the protocol; CannotCarryError when it is none."""
    path = message.target.partition(b"?")[0]
    if message.method != b"POST" or path not in (MESSAGES, COUNT_TOKENS):
        raise UnsupportedRequestError("upstreams of this kind take nothing but messages")
    body = plain(message)
    members = members_of(body)
    if members is None:
        raise UnsupportedRequestError("the body is no JSON object")
    members.pop("model", None)
    if b'"scope"' in body:
        for name in _WITH_CACHE_MARKS:
            if name in members:
                members[name] = _without_scopes(name, members[name])
    told = {"anthropic_version": raw(version)}
    told.update((name, value) for name, value in members.items() if name not in told)
    return CloudRequest(told, is_true(members.get("stream")))


def known_betas(betas: Iterable[str], known: frozenset[str]) -> list[str]:
    """The betas that a cloud knows, by its own names."""
    single = [name for beta in betas for name in _SINGLE_NAMES.get(beta, (beta,))]
    return [name for name in dict.fromkeys(single) if name in known]


def _without_scopes(name: str, value: msgspec.Raw) -> msgspec.Raw:
    """The value; only the messages and blocks in which a scope stood are written anew."""
    text = bytes(value)
    if b'"scope"' not in text:
        return value
    if text[:1] == b"[":
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        return msgspec.Raw(msgspec.json.encode([_item_without_scopes(item) for item in items]))
    if name == "cache_control":
        marked = {"cache_control": msgspec.json.decode(text)}
        return raw(marked["cache_control"]) if _strip(marked) else value
    return _item_without_scopes(value)


def _item_without_scopes(item: msgspec.Raw) -> msgspec.Raw:
    """A message or a block; one whose lists go too deep to be read is left to the cloud."""
    if b'"scope"' not in bytes(item):
        return item
    try:
        found = msgspec.json.decode(item)
        return raw(found) if _strip(found) else item
    except RecursionError:
        return item


def _strip(node: object) -> bool:
    """Take the scopes out of cache marks; tells whether there were any."""
    changed = False
    if isinstance(node, dict):
        mark = node.get("cache_control")
        if isinstance(mark, dict) and mark.pop("scope", None) is not None:
            changed = True
        # What a tool was given to work with is the model's own; it is left alone.
        inner = [value for key, value in node.items() if key not in ("input", "input_schema")]
    else:
        inner = node if isinstance(node, list) else []
    for value in inner:
        changed = _strip(value) or changed
    return changed


_LONGEST_SECONDS = 30.0


class SharedFetch:
    """One thing that has to be fetched now and then."""

    def __init__(self, fetch: Callable[[], None], seconds: float = _LONGEST_SECONDS) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._under_way: asyncio.Future[None] | None = None

    async def once(self) -> None:
        """Return when it is there; what the fetch raises, or TimeoutError, which is an OSError."""
        loop = asyncio.get_running_loop()
        running = self._under_way
        if running is None or running.done() or running.get_loop() is not loop:
            running = loop.run_in_executor(None, self._fetch)
            # Whoever waited for it may be gone by then; that is no error to report.
            running.add_done_callback(lambda word: word.cancelled() or word.exception())
            self._under_way = running
        async with asyncio.timeout(self._seconds):
            await asyncio.shield(running)


def missing_library(what: str, extra: str) -> UsageError:
    """A vendor's library is not there."""
    return UsageError(
        f"{what} needs a library that is not installed.",
        next=f"Run: pip install 'jackline[{extra}]'",
    )
