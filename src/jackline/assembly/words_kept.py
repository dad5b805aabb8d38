"""Make a wall's words fit to be kept on disk: what the vendor says, and no credential.

Laws: (1) only headers that speak of limits are kept: no cookie can be among them; (2) keys that a
vendor quotes in its error are blanked out; (3) words that cannot be read are not kept.
Not here: which words are remembered (calls/walls.py), storing them (journal/).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

from jackline.failures import Json
from jackline.failures.wording import redact

_KEPT = ("content-type", "anthropic-", "x-ratelimit-", "x-should-retry")


def fit_to_keep(walls: dict[str, Json]) -> dict[str, Json]:
    """The exported words of each lane's wall without what could be a secret."""
    fit = {name: _without_secrets(told) for name, told in walls.items()}
    return {name: told for name, told in fit.items() if told is not None}


def _without_secrets(told: Json) -> Json:
    match told:
        case {"status": int(status), "headers": list(pairs), "body": str(packed)}:
            try:
                body = b64decode(packed).decode()
            except (binascii.Error, UnicodeDecodeError):
                return None
            headers = [pair for pair in pairs if _speaks_of_limits(pair)]
            blanked = b64encode(redact(body).encode()).decode()
            return {"status": status, "headers": headers, "body": blanked}
    return None


def _speaks_of_limits(pair: Json) -> bool:
    match pair:
        case [str(name), str(_)]:
            return name.lower().startswith(_KEPT)
    return False
