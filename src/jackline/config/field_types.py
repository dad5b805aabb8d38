"""Parse and check values by their form: durations ("15m"), sizes ("64MB"), addresses, names.

Rules: (1) a bare number is seconds, or bytes; KB, MB and GB are powers of 1024; (2) a duration or
size that is written here parses to the same number; (3) a fault says what to write instead, and
quotes nothing that could be a secret. Waits in error texts are parsed by failures/resets.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from jackline.config.references import INSTEAD, is_reference
from jackline.errors import UsageError
from jackline.flows.settings import parse_hours
from jackline.providers.settings import Credential
from jackline.settings import Form

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}
_NUMBER = r"\d{1,18}(?:\.\d{1,30})?"
_DURATION = re.compile(
    rf"(?:(?P<d>{_NUMBER})d)?(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?"
    rf"(?:(?P<ms>{_NUMBER})ms)?"
)
_SIZE = re.compile(rf"(?P<number>{_NUMBER})(?P<unit>[kmgt]?i?b?)")
# What is quoted from a configuration is never longer: no secret is that short.
_QUOTED = 15
# Longer than this is a slip of the pen (milliseconds for seconds), and no sleep can take it.
LONGEST = 10 * 366 * 86400.0


def read_duration(value: object) -> float:
    """Seconds, from "15m", "2h30m", "90s", "1.5h", "250ms" or a number; ValueError otherwise."""
    number = _plain_number(value)
    if number is None:
        text = re.sub(r"\s+", "", str(value).lower()) if isinstance(value, str) else ""
        found = _DURATION.fullmatch(text)
        if not text or found is None:
            raise ValueError(
                f'{_quoted(value)}is no duration; write it like "15m", "2h30m", "90s"'
                " or as a number of seconds"
            )
        number = sum(float(n) * _SECONDS[unit] for unit, n in found.groupdict().items() if n)
    if not number <= LONGEST:
        raise ValueError(f"{number:g} seconds are more than ten years")
    return number


def read_size(value: object) -> int:
    """Bytes, from "64MB", "512 KiB", "1.5GB" or a number; ValueError otherwise."""
    number = _plain_number(value)
    factor = 1
    if number is None:
        text = re.sub(r"\s+", "", str(value).lower()) if isinstance(value, str) else ""
        found = _SIZE.fullmatch(text)
        unit = "" if found is None else found["unit"].replace("i", "").removesuffix("b")
        factor = _BYTES.get(f"{unit}b", 0)
        if found is None or not factor:
            raise ValueError(
                f'{_quoted(value)}is no size; write it like "64MB", "512KB" or as a number of bytes'
            )
        number = float(found["number"])
    if not number * factor < 2**63:
        raise ValueError(f"{number * factor:g} bytes are more than any disk has")
    return round(number * factor)


def duration_text(seconds: float) -> str:
    """The shortest way to write this duration."""
    if not seconds:
        return "0s"
    milliseconds = seconds * 1000
    if milliseconds != round(milliseconds):
        return f"{Decimal(repr(seconds)):f}s"
    parts = []
    rest = round(milliseconds)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def size_text(size: int) -> str:
    """The shortest exact way to write this size."""
    for unit in ("tb", "gb", "mb", "kb"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit.upper()}"
    return f"{size}B"


def _plain_number(value: object) -> float | None:
    """A number, or a text that is nothing but one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = float(value) if re.fullmatch(_NUMBER, value.strip()) else None
    if not isinstance(value, int | float):
        return None
    if not value >= 0:
        raise ValueError("it is below zero or no number")
    # Whole numbers may be larger than any float.
    return float(value) if value < 2**63 else math.inf


def _quoted(value: object) -> str:
    if isinstance(value, str) and len(value) <= _QUOTED:
        return f'"{value}" '
    return "this "


def _plain_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://api.anthropic.com")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or password: clients send their own credentials")
    if parts.query or parts.fragment:
        raise ValueError("must end with the path: no ? and no #")
    _ = parts.port  # raises ValueError when it is no port
    return text.rstrip("/")


def _reference(text: str) -> str:
    if not is_reference(text) or not text.partition(":")[2].strip():
        raise ValueError(f"must not be written here itself; {INSTEAD}")
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text):
        raise ValueError("must be made of letters, digits, dots, dashes and underscores")
    return text


def _model(text: str) -> str:
    if text.startswith("-") or not text.isprintable():
        raise ValueError("must be the name of a model: an agent's program would read it as a flag")
    return text


def _host_name(text: str) -> str:
    if not re.fullmatch(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63})*", text.lower()):
        raise ValueError("must be a host name without port, such as jackline or llm.team.example")
    return text.lower()


def _hours(text: str) -> str:
    try:
        parse_hours(text)
    except UsageError as error:
        raise ValueError(f"{error.message} {error.hint}") from error
    return text


def _absolute(text: str) -> str:
    if not Path(text).expanduser().is_absolute():
        raise ValueError("must be a whole path, such as /srv/work or ~/work")
    return text


def _proxy(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.password:
        raise ValueError(f"must not hold a password; {INSTEAD}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like http://proxy.example:3128, or a reference")
    return text


def _webhook(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://hooks.example/jackline, or a reference")
    if parts.username or parts.password or parts.query:
        raise ValueError(f"must not hold a secret; {INSTEAD}")
    return text


def _credential(text: str) -> str:
    if text in (Credential.PASS_THROUGH, Credential.NONE):
        return text
    if not is_reference(text) or not text.partition(":")[2].strip():
        raise ValueError(f'must be "pass-through", "none" or a reference; {INSTEAD}')
    return text


_WRITTEN_BY_US = ("host", "content-length", "transfer-encoding", "connection")
_CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Headers that may be added to requests; ValueError otherwise."""
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError("holds a name that no header can have")
        if name.lower() in _WRITTEN_BY_US:
            raise ValueError(f"{name} is written by Jackline itself")
        if name.lower() in _CREDENTIALS and not is_reference(value):
            raise ValueError(f"the value of {name} must not be written here itself; {INSTEAD}")
        if not value.isprintable() or not value.isascii() or value != value.strip() or not value:
            raise ValueError(f"the value of {name} must be plain text on one line")
    return headers


TEXT_CHECKS: Mapping[Form, Callable[[str], str]] = {
    Form.NAME: _name,
    Form.MODEL: _model,
    Form.HOST_NAME: _host_name,
    Form.URL: _plain_url,
    Form.HOURS: _hours,
    Form.ABSOLUTE_PATH: _absolute,
    Form.REFERENCE: _reference,
    Form.UNRESOLVED: _reference,
    Form.PROXY: _proxy,
    Form.WEBHOOK: _webhook,
    Form.CREDENTIAL: _credential,
}
"""For each form of text a check: the text as settings take it, or ValueError."""
