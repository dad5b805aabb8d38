"""Requests to the vendors' documented rate-limits APIs, and parsing of their answers.

Rules: (1) pure: requests and bytes, no connection and no clock; (2) an answer that differs from the
documents is parsed as nothing, and never raises; unknown fields, groups and limiters are left out;
(3) a limit of zero is ignored: a vendor that allows nothing refuses calls itself; (4) the admin key
is in these requests and nowhere else. The vendors' documents: docs/decisions/066.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import quote, urlencode

import msgspec

from jackline import __version__
from jackline.lanes import KnownLimits
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.upstream.interface import UpstreamRequest

_ANTHROPIC_LIMITERS = {
    "requests_per_minute": "requests_per_minute",
    "input_tokens_per_minute": "input_tokens_per_minute",
    # Not documented, but seen in recorded answers: input without what is read from a prompt cache,
    # which is how lanes count it.
    "input_tokens_per_minute_cache_aware": "input_tokens_per_minute",
    "output_tokens_per_minute": "output_tokens_per_minute",
}
# The tokens of prompts and answers together, as the vendor's response headers count them.
_OPENAI_LIMITERS = {
    "max_requests_per_1_minute": "requests_per_minute",
    "max_tokens_per_1_minute": "input_tokens_per_minute",
}
_MODEL_GROUP = "model_group"
_MOST_ENTRIES = 1000
_MOST_MODELS = 5000
_LONGEST_NAME = 200
_LARGEST_LIMIT = 1e12
# A snapshot's date: claude-opus-4-5-20251101, gpt-4o-2024-08-06.
_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


@dataclass(frozen=True, slots=True)
class LimitsPage:
    """Limits by model, and the cursor of the next page, if there is one."""

    limits: Mapping[str, KnownLimits]
    next_page: str | None = None


def limit_paths(settings: UpstreamSettings) -> tuple[str, ...]:
    """The paths to request, the weakest answer first: a workspace's limits replace those above."""
    if settings.kind is not UpstreamKind.ANTHROPIC:
        # An address that ends in a version already has the whole path of the endpoints.
        version = "" if re.search(r"/v\d+$", settings.url) else "/v1"
        project = quote(settings.project or "", safe="")
        return (f"{version}/organization/projects/{project}/rate_limits",)
    organization = "/v1/organizations/rate_limits"
    if settings.workspace is None:
        return (organization,)
    workspace = quote(settings.workspace, safe="")
    return organization, f"/v1/organizations/workspaces/{workspace}/rate_limits"


def limits_request(
    settings: UpstreamSettings, path: str, page: str | None, key: str
) -> UpstreamRequest:
    """The request for one page of the limits at a path."""
    headers = [
        (b"Accept", b"application/json"),
        (b"User-Agent", f"jackline/{__version__}".encode()),
    ]
    if settings.kind is UpstreamKind.ANTHROPIC:
        query = {"group_type": _MODEL_GROUP} | ({} if page is None else {"page": page})
        headers += [(b"anthropic-version", b"2023-06-01"), (b"x-api-key", key.encode())]
    else:
        query = {"limit": "100"} | ({} if page is None else {"after": page})
        headers.append((b"Authorization", b"Bearer " + key.encode()))
    return UpstreamRequest(b"GET", f"{path}?{urlencode(query)}".encode(), tuple(headers))


def parse_limits_page(kind: UpstreamKind, body: bytes) -> LimitsPage | None:
    """One page of an answer, or None when it is no such page."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    is_anthropic = kind is UpstreamKind.ANTHROPIC
    found: dict[str, KnownLimits] = {}
    for entry in entries[:_MOST_ENTRIES]:
        if isinstance(entry, dict) and len(found) < _MOST_MODELS:
            if is_anthropic:
                models, limits = _anthropic_group(entry)
            else:
                # One model, with a field for each limit.
                values = [(ours, entry.get(theirs)) for theirs, ours in _OPENAI_LIMITERS.items()]
                models, limits = [entry.get("model")], _smallest(values)
            names = [n for n in models if isinstance(n, str) and 0 < len(n) <= _LONGEST_NAME]
            if limits != KnownLimits():
                found |= dict.fromkeys(names, limits)
    if is_anthropic:
        cursor = document.get("next_page")
    else:
        cursor = document.get("last_id") if document.get("has_more") is True else None
    is_cursor = isinstance(cursor, str) and 0 < len(cursor) <= 4 * _LONGEST_NAME
    return LimitsPage(found, cursor if is_cursor else None)


def merged_limits(below: KnownLimits, above: KnownLimits) -> KnownLimits:
    """The limits of `above`, with those of `below` where `above` has none."""
    return KnownLimits(
        **{
            each.name: getattr(below, each.name) if value is None else value
            for each in fields(KnownLimits)
            for value in (getattr(above, each.name),)
        }
    )


def limits_of(model: str, limits: Mapping[str, KnownLimits]) -> KnownLimits | None:
    """The limits of a model, by its own name, or of the model that it is a dated snapshot of."""
    return limits.get(model) or limits.get(_DATE.sub("", model))


def _anthropic_group(entry: Mapping[str, object]) -> tuple[list[object], KnownLimits]:
    """A group of models that share limits, each a pair of type and value."""
    group = entry.get("group")
    kind = entry.get("group_type") or (group.get("type") if isinstance(group, dict) else None)
    models, limiters = entry.get("models"), entry.get("limits")
    if kind != _MODEL_GROUP or not isinstance(models, list) or not isinstance(limiters, list):
        return [], KnownLimits()
    values: list[tuple[str, object]] = []
    for limiter in limiters[:_MOST_ENTRIES]:
        name = limiter.get("type") if isinstance(limiter, dict) else None
        if isinstance(name, str) and name in _ANTHROPIC_LIMITERS:
            values.append((_ANTHROPIC_LIMITERS[name], limiter.get("value")))
    return models[:_MOST_MODELS], _smallest(values)


def _smallest(values: list[tuple[str, object]]) -> KnownLimits:
    """Of several limits of one dimension the smallest counts."""
    found: dict[str, float] = {}
    for name, value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 < value <= _LARGEST_LIMIT and math.isfinite(value):
            found[name] = min(float(value), found.get(name, math.inf))
    return KnownLimits(
        found.get("requests_per_minute"),
        found.get("input_tokens_per_minute"),
        found.get("output_tokens_per_minute"),
    )
