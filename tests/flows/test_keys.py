"""A call is known by what it is, in every process, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from jackline.dialects import TokenUsage
from jackline.errors import UsageError
from jackline.flows.records import (
    CallKind,
    call_key,
    canonical_json,
    decode_outcome,
    encode_outcome,
    session_id_of,
    task_id_of,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


class Model(BaseModel):
    tags: set[str]
    at: datetime


@dataclass
class Data:
    path: PurePosixPath
    models: list[Model]


@given(plain)
def test_equal_arguments_have_equal_keys_whatever_their_order(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(list(part))}
        return [turned(one) for one in part] if isinstance(part, list) else part

    assert call_key(CallKind.STEP, "l", value) == call_key(CallKind.STEP, "l", turned(value))


@given(plain, plain)
def test_different_arguments_have_different_keys(one: object, other: object) -> None:
    same = canonical_json(one) == canonical_json(other)
    assert (call_key(CallKind.STEP, "", one) == call_key(CallKind.STEP, "", other)) is same


def test_kind_and_label_count() -> None:
    keys = {
        call_key(CallKind.STEP, "a", 1),
        call_key(CallKind.AGENT, "a", 1),
        call_key(CallKind.STEP, "b", 1),
        call_key(CallKind.STEP, "", ["a", 1]),
    }
    assert len(keys) == 4


def test_rich_values_have_one_way_to_be_written_in_every_process() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    value = Data(PurePosixPath("a/b"), [Model(tags={"x", "y", "z", "w"}, at=at)])
    written = b'{"models":[{"at":"2026-01-01T00:00:00Z","tags":["w","x","y","z"]}],"path":"a/b"}'
    assert canonical_json(value) == written
    program = (
        "from jackline.flows.records import canonical_json\n"
        "print(canonical_json({'b','a','c'}).decode())"
    )
    for seed in ("1", "2", "3"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert told.stdout.split() == [b'["a","b","c"]']


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2, "a": 3}, lambda: 1, open])
def test_what_is_no_data_has_no_key(value: object) -> None:
    with pytest.raises(UsageError):
        canonical_json([value])


def test_ids_follow_from_the_key_and_never_change() -> None:
    assert task_id_of("r", "k", 0) == "t-164fef729ac4dd7d6cf8"
    assert len({task_id_of(r, k, o) for r in "ab" for k in "cd" for o in (0, 1)}) == 8
    assert uuid.UUID(session_id_of("t-1")).version == 5
    assert session_id_of("t-1") == "32b55af5-7996-59b4-892e-cec66345faf5"


def test_an_outcome_of_an_earlier_version_has_its_usage() -> None:
    saved = (
        b'{"terminated_by":"completion","usage":{"input_tokens":1,"output_tokens":2,'
        b'"cache_read_tokens":3,"cache_write_tokens":4,"cache_write_1h_tokens":5}}'
    )
    outcome = decode_outcome(saved)
    assert outcome.usage == TokenUsage(1, 2, 3, 4, 5)
    assert encode_outcome(outcome).count(b"_tokens") == 5
    assert decode_outcome(encode_outcome(outcome)) == outcome
    assert decode_outcome(b'{"terminated_by":"completion"}').usage == TokenUsage()
