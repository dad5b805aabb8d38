"""What Bedrock and Vertex share: Claude's model names, the form of requests, fetching credentials.

Rules: (1) a name that is not one of Claude's own is unchanged: it comes from the user's map;
unknown names follow the pattern of the newest ones; (2) model and version are where the cloud wants
them; (3) betas that a cloud does not know are left out: it would refuse the whole request; (4)
nothing else in a request is changed, except cache scopes, which exist only at Anthropic; (5) a
vendor's blocking library runs in a thread, one fetch at a time for all who wait; a waiter that
leaves does not stop it for the others, and nobody waits longer than the time limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from jackline.errors import UsageError
from jackline.http1.headers import Headers
from jackline.providers.sent_request import (
    BETA,
    UnsupportedRequestError,
    members_of,
    plain_body,
    raw,
)
from jackline.upstream.interface import UpstreamRequest

_DATED = re.compile(r"(claude-.+?)-(\d{8})")
# Names without a date mean the only version; up to 4.5 the clouds want it with its date.
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
# The clouds have single names for what Anthropic's own API gathers under one.
_SINGLE_NAMES: Mapping[str, tuple[str, ...]] = {
    "advanced-tool-use-2025-11-20": ("tool-search-tool-2025-10-19", "tool-examples-2025-10-29"),
}


def bedrock_id(model: str, region: str) -> str:
    """The inference profile for a model, called from a region.

    `region` may also be what a profile covers: `global`, `us`, `eu`, `apac`, `jp`, `au`.
    """
    name = _full_name(model)
    if name is None:
        return model
    if _DATED.fullmatch(name):
        base = f"{name}-{'v2' if name == _SECOND_SONNET_3_5 else 'v1'}:0"
    else:
        base = _BEDROCK_ODD.get(name, name)
    start = region.partition("-")[0]
    area = "global"
    if region in _AREAS:
        area = region
    elif region.startswith("us-gov-"):
        area = "us-gov"
    elif start in ("us", "ca", "eu"):
        area = "eu" if start == "eu" else "us"
    elif start == "ap":
        if _IN_APAC.fullmatch(name):
            area = "apac"
        elif region in ("ap-northeast-1", "ap-northeast-3") and _IN_JAPAN.fullmatch(name):
            area = "jp"
        elif region in ("ap-southeast-2", "ap-southeast-4") and _IN_AUSTRALIA.fullmatch(name):
            area = "au"
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


def model_in_path(name: str, safe: str = "") -> str:
    """The name of a model as a part of a path; UnsupportedRequestError for dots alone."""
    if not name.strip("."):
        raise UnsupportedRequestError("no model is named by dots alone")
    return quote(name, safe=safe)


def cloud_request(request: UpstreamRequest, version: str) -> tuple[dict[str, msgspec.Raw], bool]:
    """The members of a cloud's request without the model, and whether it requests a stream.

    UnsupportedRequestError if it is no request for messages.
    """
    path = request.target.partition(b"?")[0]
    if request.method != b"POST" or path not in (MESSAGES, COUNT_TOKENS):
        raise UnsupportedRequestError("upstreams of this kind take nothing but messages")
    body = plain_body(request)
    members = members_of(body)
    if members is None:
        raise UnsupportedRequestError("the body is no JSON object")
    members.pop("model", None)
    if b'"scope"' in body:
        for name in ("cache_control", "system", "tools", "messages"):
            value = bytes(members.get(name, b""))
            if value[:1] == b"[" and b'"scope"' in value:
                # Only the messages and blocks that have a scope are rewritten.
                items = msgspec.json.decode(value, type=list[msgspec.Raw])
                members[name] = raw([_without_scopes(item) for item in items])
            elif value:
                is_mark = name == "cache_control"
                members[name] = _without_scopes(members[name], is_mark=is_mark)
    versioned = {"anthropic_version": raw(version)}
    versioned.update((name, value) for name, value in members.items() if name not in versioned)
    return versioned, bytes(members.get("stream", b"")) == b"true"


def known_betas(headers: Headers, known: frozenset[str]) -> list[str]:
    """The betas of `anthropic-beta` that a cloud knows, by its own names."""
    betas = [
        beta.strip().decode("latin-1")
        for name, value in headers
        if name.lower() == BETA
        for beta in value.split(b",")
    ]
    single = [name for beta in betas for name in _SINGLE_NAMES.get(beta, (beta,))]
    return [name for name in dict.fromkeys(single) if name in known]


def _without_scopes(value: msgspec.Raw, *, is_mark: bool = False) -> msgspec.Raw:
    """A message, a block or a cache mark without scopes; unchanged if it is nested too deeply."""
    if b'"scope"' not in bytes(value):
        return value
    try:
        node = msgspec.json.decode(value)
        changed = _strip_scopes({"cache_control": node} if is_mark else node)
    except RecursionError:
        return value
    return raw(node) if changed else value


def _strip_scopes(node: object) -> bool:
    """Remove the scopes from cache marks; returns whether there were any."""
    changed = False
    if isinstance(node, dict):
        mark = node.get("cache_control")
        if isinstance(mark, dict) and mark.pop("scope", None) is not None:
            changed = True
        # The arguments of a tool call are the model's own and are not changed.
        inner = [value for key, value in node.items() if key not in ("input", "input_schema")]
    else:
        inner = node if isinstance(node, list) else []
    for value in inner:
        changed = _strip_scopes(value) or changed
    return changed


class SharedFetch:
    """One thing that has to be fetched now and then."""

    def __init__(self, fetch: Callable[[], None], seconds: float = 30.0) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._running: asyncio.Future[None] | None = None

    async def once(self) -> None:
        """Return when it is fetched; raises what the fetch raises, or TimeoutError (an OSError)."""
        loop = asyncio.get_running_loop()
        running = self._running
        if running is None or running.done() or running.get_loop() is not loop:
            running = loop.run_in_executor(None, self._fetch)
            # Whoever waited for it may be gone by then; that is no error to report.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._running = running
        async with asyncio.timeout(self._seconds):
            await asyncio.shield(running)


def missing_library(what: str, extra: str) -> UsageError:
    """The error for a vendor's library that is not installed."""
    return UsageError(
        f"{what} needs a library that is not installed.",
        hint=f"Run: pip install 'jackline[{extra}]'",
    )
