"""Carry requests to providers and their answers back, byte for byte.

Rules: (1) nothing here knows what a request means; (2) every attempt ends exactly once; (3) no
request leaves but to a configured origin.
"""

from jackline.http1.headers import Headers
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import (
    ResponseHandler,
    Upstream,
    UpstreamAttempt,
    UpstreamRequest,
)
from jackline.upstream.origin import Origin, proxy_from_environment

__all__ = [
    "Headers",
    "HttpUpstream",
    "Origin",
    "ResponseHandler",
    "Upstream",
    "UpstreamAttempt",
    "UpstreamRequest",
    "proxy_from_environment",
]
