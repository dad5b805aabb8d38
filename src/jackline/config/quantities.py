"""Read and write durations ("15m", "2h30m") and sizes ("64MB") as people write them.

Laws: (1) a bare number is seconds, or bytes; (2) KB, MB and GB are powers of 1024, with or without
an i; (3) what is written here is read back as the same number, sizes to the byte and durations to
far below a millisecond.
Not here: how long an error says to wait (failures/durations.py), which is far more lenient.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

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
