"""Post one document to an address that the user named: of a collector, or a webhook.

Rules: (1) it waits, and so runs in a thread; (2) no redirect is followed: whoever answers at that
address does not say where the document, or the credential beside it, goes next; (3) the proxy of
the environment is not used for this machine.
"""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO
from urllib.parse import urlsplit

from jackline.upstream.origin import Address

_MOST_READ = 4096


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: HTTPError with its status."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        """Follow none."""


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """Send it; OSError, ValueError or HTTPException when it was not accepted.

    Of the answer nothing counts but its status: one that is not 2xx is urllib's HTTPError.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    parts = urlsplit(url)
    if Address(parts.scheme, parts.hostname or "", 0).is_loopback:
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 -- its callers check the scheme
    answer: http.client.HTTPResponse
    with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
        answer.read(_MOST_READ)
