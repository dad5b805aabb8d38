"""Know whether the id that an answer gives its request is one, and no credential that was sent.

Rules: (1) an id is at most 128 letters, digits and the marks that ids are written with; (2) one
that holds a credential of its own request, or a long part of one, is none: ids are kept in the
journal, told to telemetry and written into logs by clients.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jackline.upstream.port import Headers

# Anthropic's, OpenAI's, Azure's, AWS's, Google's, and those of proxies.
ID_HEADERS = frozenset(
    (
        b"apim-request-id",
        b"cf-ray",
        b"request-id",
        b"x-amz-request-id",
        b"x-amzn-request-id",
        b"x-amzn-requestid",
        b"x-correlation-id",
        b"x-goog-request-id",
        b"x-ms-request-id",
        b"x-request-id",
        b"x-trace-id",
    )
)
_ID = re.compile(rb"[A-Za-z0-9_.:/+=-]{1,128}")
# Of names, because every vendor and proxy has its own; a key for idempotency opens nothing.
_SAYS_CREDENTIAL = re.compile(rb"auth|key|token|cookie|secret|credential|password|signature")
_NO_CREDENTIALS = frozenset((b"idempotency-key", b"x-idempotency-key"))
# A scheme, a name or a value; what is shorter is no secret.
_WORD = re.compile(rb"[^\s,;=]{6,}")
# So much of a credential is too much.
_LONG_PART = 16


def is_request_id(value: bytes, sent: Headers) -> bool:
    """Whether this can be kept as the id of the answer to a request with these headers."""
    return _ID.fullmatch(value) is not None and not _repeats_credential(value, sent)


def _repeats_credential(value: bytes, sent: Headers) -> bool:
    for name, told in sent:
        if _may_be_credential(name) and any(_share_part(value, w) for w in _WORD.findall(told)):
            return True
    return False


def _share_part(value: bytes, word: bytes) -> bool:
    size = min(_LONG_PART, len(word))
    return any(value[at : at + size] in word for at in range(len(value) - size + 1))


@lru_cache(maxsize=1024)
def _may_be_credential(name: bytes) -> bool:
    plain = name.lower()
    return plain not in _NO_CREDENTIALS and _SAYS_CREDENTIAL.search(plain) is not None
