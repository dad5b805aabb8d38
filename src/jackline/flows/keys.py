"""Know a call again: by kind, label and arguments, never by its position.

Laws: (1) the same call has the same key in every process and on every machine; (2) what cannot be
written as JSON has no key, and is refused with the name of what it was; (3) the rule is part of
the stored format: changing it makes every finished call run again, and a stored-history test fails.
Not here: which arguments count (agent_spec.py, step_call.py), counting occurrences (execution.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import cast

from jackline.errors import BadArgumentError
from jackline.flows.records import CallKind

_SESSIONS = uuid.UUID("6f1c9a1e-6f0b-5d0e-9a53-2f5c8f0b7a11")


def call_key(kind: CallKind, label: str, arguments: object) -> str:
    """The key of a call; BadArgumentError when an argument is no plain data."""
    return hashlib.sha256(canonical([kind.value, label, arguments])).hexdigest()


def task_id_of(run_id: str, key: str, occurrence: int) -> str:
    """The id of the agent behind a call: the same after any crash."""
    whole = f"{run_id}\n{key}\n{occurrence}".encode()
    return f"t-{hashlib.sha256(whole).hexdigest()[:20]}"


def session_id_of(task_id: str) -> str:
    """A UUID for the agent's session, since Claude Code accepts nothing else."""
    return str(uuid.uuid5(_SESSIONS, task_id))


def canonical(value: object) -> bytes:
    """The one way to write a value as JSON: sorted keys, no spaces, sets in order."""
    try:
        text = json.dumps(
            value,
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            default=_plain,
        )
        return text.encode("utf-8", "surrogatepass")
    except BadArgumentError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgumentError(
            f"A call's arguments cannot be written as JSON: {error}.",
            next="Give text, numbers, lists, dicts with text keys, dataclasses or pydantic models.",
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value, key=canonical)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(type(value), "model_fields"):
        return dict(cast("Iterable[tuple[str, object]]", value))
    return _by_pydantic(value)


def _by_pydantic(value: object) -> object:
    # Dates, paths, UUIDs, decimals and the like; imported late, since most arguments are plain.
    from pydantic_core import PydanticSerializationError, to_jsonable_python  # noqa: PLC0415

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise BadArgumentError(
            f"A call's argument is a {type(value).__name__}, which cannot be written as JSON.",
            next="Give plain data: what a call is asked must be the same after a crash.",
        ) from None
