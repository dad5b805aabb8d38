"""Sign a request as AWS wants it (Signature Version 4).

Laws: (1) the same request at the same moment has the same signature; (2) the host, the body and all
headers that are given are signed; (3) no key in a `repr`.
Not here: where keys come from (aws_credentials.py).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """What signs; the token comes with keys that were lent for a time."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ToSign:
    """A request; `path` as it goes on the wire, without a query."""

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes | bytearray


def signed_headers(
    request: ToSign, keys: AwsKeys, region: str, service: str, moment: datetime
) -> dict[str, str]:
    """The given headers and those that sign them, for this moment, which is in UTC."""
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    sent = {**request.headers, "X-Amz-Date": stamp}
    if keys.token is not None:
        sent["X-Amz-Security-Token"] = keys.token
    lines = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    lines["host"] = request.host
    names = ";".join(sorted(lines))
    canonical = "\n".join(
        (
            request.method,
            # Every service but S3 wants what is quoted already to be quoted once more.
            quote(request.path, safe="/-_.~"),
            "",
            *(f"{name}:{lines[name]}" for name in sorted(lines)),
            "",
            names,
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(keys.secret_key, scope), text.encode(), hashlib.sha256).hexdigest()
    sent["Authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope},"
        f" SignedHeaders={names}, Signature={signature}"
    )
    return sent


def _key(secret: str, scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
