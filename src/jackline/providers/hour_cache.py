"""Know which upstreams take prompt caches of an hour, and what is asked of them there.

Rules: (1) where the vendor's documents do not name an hour for a model, only the upstream's own
`cache_ttl` asks for it; (2) models that are known to refuse it are never asked: the vendor would
refuse the whole request. Looked up on 2026-11-16:
- Anthropic: every model, without a beta header.
  https://platform.claude.com/docs/en/build-with-claude/prompt-caching
- Bedrock: Opus, Sonnet and Haiku 4.5. Older ones answer "Extra inputs are not permitted"
  (earendil-works/pi#1570); of newer ones reports differ (BerriAI/litellm#30454, archestra#5696).
  https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
- Vertex AI: all but Sonnet 3.7, Sonnet 3.5 and Opus 3.
  https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/prompt-caching
Which calls ask is in lanes/cache_ttl.py.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from jackline.lanes import CacheTtl
from jackline.providers.presets import ANTHROPIC_HOST
from jackline.providers.settings import UpstreamKind, UpstreamSettings

_SERVES_CLAUDE = (UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK, UpstreamKind.VERTEX)
# Behind the version there is a date, a revision, or nothing.
_NOT_BEDROCK = re.compile(r"claude-3-|claude-(?:opus|sonnet)-4(?:-[01])?(?:-\d{8}|-v\d|[@:\[]|$)")
_BEDROCK = re.compile(r"claude-(?:opus|sonnet|haiku)-4-5(?!\d)")
_NOT_VERTEX = re.compile(r"claude-3-7-sonnet|claude-3-5-sonnet|claude-3-opus")


def cache_ttl_of(
    upstream: UpstreamSettings, model: str, for_all: CacheTtl = CacheTtl.CLIENT
) -> CacheTtl | None:
    """What is asked of prompt caches on a lane; None where an hour is not known to be taken.

    `for_all` is what the user says of all upstreams.
    """
    name = model.replace(".", "-").lower()
    if upstream.kind not in _SERVES_CLAUDE or _refuses(upstream.kind, name):
        return None
    if upstream.cache_ttl is not None:
        return upstream.cache_ttl
    return for_all if _is_documented(upstream, name) else None


def _refuses(kind: UpstreamKind, name: str) -> bool:
    if kind is UpstreamKind.BEDROCK:
        return _NOT_BEDROCK.search(name) is not None
    return kind is UpstreamKind.VERTEX and _NOT_VERTEX.search(name) is not None


def _is_documented(upstream: UpstreamSettings, name: str) -> bool:
    if upstream.kind is UpstreamKind.BEDROCK:
        return _BEDROCK.search(name) is not None
    if upstream.kind is UpstreamKind.VERTEX:
        return True
    # Others that speak the same dialect may refuse, or ignore, what they do not know.
    return urlsplit(upstream.url).hostname == ANTHROPIC_HOST
