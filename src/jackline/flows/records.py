"""The records of runs, calls, resources and hooks; the keys of calls; outcomes as JSON.

Rules: (1) records are plain values; times are seconds since the epoch; `value` and `outcome` are
JSON bytes, so that a store never needs the user's types; (2) `trusted` says whether this
installation wrote the record: a store sets it on reading; (3) the same call has the same key in
every process and on every machine; an argument that cannot be written as JSON has no key and is
refused; (4) keys are part of the stored format: changing the rule makes every finished call run
again, and a stored-history test fails; (5) an outcome that is read equals the one that was
written, without its value, which is saved beside it; unknown fields are ignored and missing ones
have their defaults, so that versions can read each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum, StrEnum
from typing import Any, NamedTuple, cast

import msgspec

from jackline.agents.outcome import Outcome
from jackline.errors import BadArgumentError, JournalError
from jackline.states import CallState as CallState  # noqa: PLC0414 -- imported from here by many
from jackline.states import ResourceState as ResourceState  # noqa: PLC0414
from jackline.states import RunState as RunState  # noqa: PLC0414
from jackline.user_errors import error_texts

ENDED = frozenset({RunState.FINISHED, RunState.FAILED, RunState.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run."""

    run_id: str
    flow: str
    """The function's name."""
    source: str
    """The file it is loaded from again; empty when only its own process can run it."""
    arguments: bytes
    """JSON object of keyword arguments."""
    settings: bytes = b"{}"
    """JSON of RunSettings: budgets, what to do at a quota, how to wake."""
    cwd: str = ""
    state: RunState = RunState.RUNNING
    created_at: float = 0.0
    updated_at: float = 0.0
    ended_at: float | None = None
    why: str = ""
    """Why it is parked, stopped or failed, for a person."""
    wake_at: float | None = None
    outcome: bytes | None = None
    """JSON of the run's Outcome once it ended."""
    forked_from: str | None = None
    owner: str = ""
    """The process that carries it now: host, process id and a random part."""
    lease_until: float = 0.0
    epoch: int = 0
    """Grows with each claim; a write with an older one is refused."""
    tokens: int = 0
    cost: float = 0.0
    confirmed: bool = False
    """A person allowed the next waking (`resume.confirm`)."""
    trusted: bool = True

    def decoded_outcome(self) -> Outcome[Any] | None:
        """How it ended, or how far it has come; None when nothing is saved of that."""
        return None if self.outcome is None else decode_outcome(self.outcome)

    @property
    def unpriced(self) -> int:
        """Tokens that `cost` is without, since their price is not known."""
        return _unpriced(self.outcome)


class CallKind(StrEnum):
    """What a keyed call is."""

    AGENT = "agent"
    STEP = "step"
    FLOW = "flow"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One keyed call of a run: an agent, a step, or a child flow."""

    run_id: str
    key: str
    occurrence: int
    kind: CallKind
    label: str
    phase: str
    task_id: str
    state: CallState
    value: bytes | None = None
    """JSON of the result; only of a call that is done."""
    outcome: bytes | None = None
    """JSON of an agent's Outcome without its value."""
    attempts: int = 1
    started_at: float = 0.0
    ended_at: float | None = None
    tokens: int = 0
    cost: float = 0.0
    terminated_by: str = ""
    trusted: bool = True

    @property
    def unpriced(self) -> int:
        """Tokens that `cost` is without, since their price is not known."""
        return _unpriced(self.outcome)

    def decoded_outcome(self) -> Outcome[Any]:
        """How the agent of an ended call ended, without its value; its text is there again."""
        outcome = decode_outcome(self.outcome or b'{"terminated_by":"completion"}')
        if outcome.text or self.state is not CallState.DONE or self.value is None:
            return outcome
        value = msgspec.json.decode(self.value)
        return replace(outcome, text=value) if isinstance(value, str) else outcome


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """A person's order to end single agents of a run, and what came of it."""

    run_id: str
    name: str
    """Their label or task id."""
    at: float
    ended: int | None = None
    """How many were ended by it; None until the run's owner has looked, 0 while there is none."""


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """One line of an agent's log."""

    task_id: str
    number: int
    """From 1, without a gap."""
    kind: str
    data: bytes
    at: float
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """Something that was rented and must be given back."""

    run_id: str
    name: str
    task_id: str
    """The agent that rented it; empty when the run did."""
    release: str
    """A shell command, or `function NAME` of the flow's file; empty: only listed."""
    release_on_park: bool
    lease_until: float | None
    state: ResourceState
    taken_at: float
    released_at: float | None = None
    tries: int = 0
    trouble: str = ""
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class HookRecord:
    """One clean-up hook for one end of one agent or run."""

    run_id: str
    end_id: str
    """Task id (or run id) and the number of the ending.

    A hook runs at least once per ending, each time with the same idempotency key.
    """
    hook: str
    """A shell command, or `function NAME` of the flow's file."""
    outcome: bytes
    """JSON of the Outcome, the hook's input."""
    state: str = "due"
    """due, running, done, failed."""
    tries: int = 0
    trouble: str = ""
    at: float = 0.0
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """One line of a run's log."""

    run_id: str
    number: int
    at: float
    what: str
    """Such as started, agent began, agent waits, agent ended, parked, woke, hook failed, ended."""
    label: str = ""
    detail: dict[str, object] = field(default_factory=dict)


_ALLOWED_PREFIX = "allowed "


class AllowedCommand(NamedTuple):
    """A model's command, the folder that it was judged in, and the patterns that permit it."""

    command: str
    folder: str
    allow: tuple[str, ...]


def render_allowed_command(command: str, folder: str, allow: Sequence[str]) -> str:
    """Such a command as it is saved."""
    saved = {"command": command, "folder": folder, "allow": list(allow)}
    return f"{_ALLOWED_PREFIX}{json.dumps(saved)}"


def parse_allowed_command(action: str) -> AllowedCommand | None:
    """The model's command that an action is; None for any other.

    Text of another form is no model's command: a flow can still run a program named `allowed`.
    """
    if not action.startswith(f"{_ALLOWED_PREFIX}{{"):
        return None
    try:
        saved = json.loads(action.removeprefix(_ALLOWED_PREFIX))
        command, folder, allow = saved["command"], saved["folder"], saved["allow"]
    except (ValueError, KeyError):
        return None
    return AllowedCommand(str(command), str(folder), tuple(map(str, allow)))


def shown_action(action: str) -> str:
    """An action for people: of such a command, what it runs and where."""
    found = parse_allowed_command(action)
    return action if found is None else f"{found.command}   (in {found.folder})"


_SESSIONS = uuid.UUID("6f1c9a1e-6f0b-5d0e-9a53-2f5c8f0b7a11")


def call_key(kind: CallKind, label: str, arguments: object) -> str:
    """The key of a call; BadArgumentError when an argument is no plain data."""
    return hashlib.sha256(canonical_json([kind.value, label, arguments])).hexdigest()


def task_id_of(run_id: str, key: str, occurrence: int) -> str:
    """The id of the agent behind a call: the same after any crash."""
    whole = f"{run_id}\n{key}\n{occurrence}".encode()
    return f"t-{hashlib.sha256(whole).hexdigest()[:20]}"


def session_id_of(task_id: str) -> str:
    """A UUID for the agent's session, since Claude Code accepts nothing else."""
    return str(uuid.uuid5(_SESSIONS, task_id))


def canonical_json(value: object) -> bytes:
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
    except Exception as error:
        raise BadArgumentError(
            "A call's arguments cannot be written as JSON.",
            hint="Pass text, numbers, lists, dicts with text keys, dataclasses or pydantic models.",
            private=error_texts(error).private,
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value, key=canonical_json)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(type(value), "model_fields"):
        return dict(cast("Iterable[tuple[str, object]]", value))
    # Dates, paths, UUIDs, decimals and the like; imported late, since most arguments are plain.
    from pydantic_core import PydanticSerializationError, to_jsonable_python  # noqa: PLC0415

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise BadArgumentError(
            f"A call's argument is a {type(value).__name__}, which cannot be written as JSON.",
            hint="Pass plain data: the arguments of a call must be the same after a crash.",
        ) from None


_DECODER = msgspec.json.Decoder(Outcome[Any])


def _unpriced(outcome: bytes | None) -> int:
    try:
        return 0 if outcome is None else decode_outcome(outcome).unpriced
    except JournalError:
        return 0  # an older version's, or somebody else's


def encode_outcome(outcome: Outcome[Any], *, plain_value: object = None) -> bytes:
    """The outcome as JSON, with `plain_value` (JSON data) in place of its own."""
    return msgspec.json.encode(replace(outcome, value=plain_value))


def encode_kept_beside(outcome: Outcome[Any]) -> bytes:
    """The outcome as JSON, for a call that has the value itself; see `decoded_outcome`."""
    is_value = outcome.ok and outcome.value == outcome.text
    return encode_outcome(replace(outcome, text="") if is_value else outcome)


def decode_outcome(data: bytes) -> Outcome[Any]:
    """The outcome; its value is plain JSON data, or None."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalError(f"A saved outcome cannot be read: {error}.") from error
