"""Carry requests to providers and their answers back, byte for byte.

Laws: (1) nothing here knows what a request means; (2) every attempt ends exactly once; (3) no
request leaves but to a configured origin.
Not here: when to send, what a failure means, what to do about it (calls/, lanes/, failures/).
"""

from jackline.upstream.hop_by_hop import end_to_end
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.origin import Origin
from jackline.upstream.port import Attempt, Ear, Headers, Message, Upstream
from jackline.upstream.proxying import proxy_from_environment

__all__ = [
    "Attempt",
    "Ear",
    "Headers",
    "HttpUpstream",
    "Message",
    "Origin",
    "Upstream",
    "end_to_end",
    "proxy_from_environment",
]
