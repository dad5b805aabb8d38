"""What tables of the configuration are made of: the strict table itself, and kinds of values.

Laws: (1) unknown keys and loose types are faults; (2) a fault says what to write instead; (3) a
setting that does not declare what a project's file may do with it is closed to such files.
Not here: the tables (gateway_tables.py, work_tables.py), the whole document (document.py).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from jackline.config.quantities import duration_text, read_duration, read_size
from jackline.config.references import INSTEAD, is_reference

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


class Table(BaseModel):
    """Any table of the document: strict, and closed to unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)
