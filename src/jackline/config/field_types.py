"""The types of settings: durations ("15m"), sizes ("64MB"), addresses, names, and the strict table.

Rules: (1) a bare number is seconds, or bytes; KB, MB and GB are powers of 1024; (2) what is written
here is read back as the same number; (3) unknown keys and loose types are faults, and a fault says
what to write instead; (4) a setting that does not declare what a project's file may do with it is
closed to such files.
Not here: the tables (tables.py), waits in error texts (failures/waits.py), which are more
lenient.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from jackline.config.references import INSTEAD, is_reference

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


# Never seen by whoever reads a document: only what was written is taken from it.
NOT_SET: Any = None


class InProject(Enum):
    """What a project's file may do with a setting; declared in the field's annotation."""

    # The default: it could move data, code, credentials, addresses or files, or loosen a brake.
    NEVER = "never"
    FREE = "free"
    # A limit: only a lower one than holds without the project's file.
    LOWER = "lower"
    # A list: only more entries than hold without the project's file.
    MORE = "more"
    # A model: only one whose price is known, wherever a limit in dollars holds.
    PRICED = "priced"
    # After the user has agreed to the file's exact content (`jackline trust`).
    CONSENT = "consent"


def plain_url(text: str) -> str:
    """An address without credentials, query and fragment; ValueError otherwise."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://api.anthropic.com")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or password: clients send their own credentials")
    if parts.query or parts.fragment:
        raise ValueError("must end with the path: no ? and no #")
    _ = parts.port  # raises ValueError when it is no port
    return text.rstrip("/")


def reference(text: str) -> str:
    """Where a secret is kept; ValueError when it stands there itself."""
    if not is_reference(text) or not text.partition(":")[2].strip():
        raise ValueError(f"must not stand here itself; {INSTEAD}")
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


def between(low: float, high: float) -> AfterValidator:
    """Durations from `low` to `high` seconds."""

    def check(seconds: float) -> float:
        if not low <= seconds <= high:
            raise ValueError(f"must be from {duration_text(low)} to {duration_text(high)}")
        return seconds

    return AfterValidator(check)


IS_DURATION = BeforeValidator(read_duration)
IS_SIZE = BeforeValidator(read_size)
Duration: TypeAlias = Annotated[
    float,
    IS_DURATION,
    WithJsonSchema({"type": ["string", "number"], "examples": ["15m", "2h30m", 90]}),
]
Size: TypeAlias = Annotated[
    int,
    IS_SIZE,
    WithJsonSchema({"type": ["string", "integer"], "examples": ["64MB", "512KB", 65536]}),
]
# Below a second, a slip of the pen would keep the gateway busy with nothing else.
Beat: TypeAlias = Annotated[Duration, between(1, 240)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
PerMinute: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dollars: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name: TypeAlias = Annotated[str, AfterValidator(_name)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Model: TypeAlias = Annotated[Text, AfterValidator(_model)]
HostName: TypeAlias = Annotated[Text, AfterValidator(_host_name)]


class ConfigTable(BaseModel):
    """Any table of the document: strict, and closed to unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)
