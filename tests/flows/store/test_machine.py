"""Any order of claims, writes and forgets, by old owners and new, ends as a simple model says."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from jackline.errors import InternalError, JournalError, LeaseLostError
from jackline.flows.records import CallState, RunState
from jackline.flows.store.run_store import Claim
from tests.flows.store import made
from tests.flows.store.made import LEASE, STORES, World

T = TypeVar("T")

RUNS = st.sampled_from(["run-1", "run-2"])
KEYS = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from(["me", "you"])
VALUES = st.sampled_from([b"1", b"2", made.LONG, made.LONG + b" "])


class Owners(RuleBasedStateMachine):
    """The model: who owns each run until when, what its calls gave, how long notebooks are."""

    kind: ClassVar[str]
    claims: Bundle[Claim] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._world = World(self.kind, Path(self._folder.name))
        self._loop = asyncio.new_event_loop()
        self._engine = self._world.engine()
        self._owners: dict[str, Claim | None] = {}
        self._epochs: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._calls: dict[tuple[str, str], bytes | None] = {}
        self._lines: dict[tuple[str, str], int] = {}

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return self._loop.run_until_complete(work)

    def _owned(self, claim: Claim, work: Coroutine[object, object, None]) -> bool:
        """Whether the write was made; it must be refused exactly when the claim is stale."""
        if self._owners[claim.run_id] == claim:
            self._do(work)
            return True
        with pytest.raises(LeaseLostError):
            self._do(work)
        return False

    @rule(target=claims, run_id=RUNS, owner=OWNERS)
    def claim_or_create(self, run_id: str, owner: str) -> Claim:
        now, held = self._world.now, self._owners.get(run_id)
        if run_id not in self._owners:
            work = self._engine.create(made.run(run_id), owner=owner, lease=LEASE)
            claim: Claim | None = self._do(work)
        else:
            claim = self._do(self._engine.claim(run_id, owner=owner, lease=LEASE))
            in_force = 0 < self._until[run_id] - now <= 2 * LEASE
            if held is not None and held.owner != owner and in_force:
                assert claim is None
                return held
        assert claim == Claim(run_id, owner, self._epochs.get(run_id, 0) + 1)
        self._owners[run_id] = claim
        self._epochs[run_id] = claim.epoch
        self._until[run_id] = now + LEASE
        return claim

    @rule(seconds=st.sampled_from([-200.0, -20.0, 0.5, 20.0, 40.0]))
    def let_the_clock_run_or_jump(self, seconds: float) -> None:
        self._world.now += seconds

    @rule(claim=claims)
    def renew(self, claim: Claim) -> None:
        if self._owned(claim, self._engine.renew(claim, lease=LEASE)):
            self._until[claim.run_id] = self._world.now + LEASE

    @rule(claim=claims, state=st.sampled_from(list(RunState)))
    def let_go(self, claim: Claim, state: RunState) -> None:
        if self._owned(claim, self._engine.let_go(claim, made.run(claim.run_id, state))):
            self._owners[claim.run_id] = None

    @rule(claim=claims, key=KEYS, state=st.sampled_from(list(CallState)), value=VALUES)
    def write_a_call(self, claim: Claim, key: str, state: CallState, value: bytes) -> None:
        name = (claim.run_id, key)
        given = value if state is CallState.DONE else None
        call = made.call(key, state, run_id=claim.run_id, value=given, outcome=value)
        if self._owners[claim.run_id] == claim and self._calls.get(name) is not None:
            with pytest.raises(InternalError):
                self._do(self._engine.end_call(claim, call))
        elif self._owned(claim, self._engine.end_call(claim, call)):
            self._calls[name] = given

    @rule(claim=claims, keys=st.sets(KEYS))
    def forget(self, claim: Claim, keys: set[str]) -> None:
        if self._owned(claim, self._engine.forget_calls(claim, [(key, 0) for key in keys])):
            for name in ((claim.run_id, key) for key in keys):
                if name in self._calls:
                    del self._calls[name]
                    self._lines.pop(name, None)

    @rule(claim=claims, key=KEYS, number=st.integers(1, 3), data=VALUES)
    def write_a_line(self, claim: Claim, key: str, number: int, data: bytes) -> None:
        name = (claim.run_id, key)
        task_id = made.call(key, run_id=claim.run_id).task_id
        work = self._engine.write_entry(claim, made.entry(number, task_id, data=data))
        if self._owners[claim.run_id] == claim and number != self._lines.get(name, 0) + 1:
            with pytest.raises(JournalError):
                self._do(work)
        elif self._owned(claim, work):
            self._lines[name] = number

    @rule()
    def open_again(self) -> None:
        if self._world.outlives_close:
            self._do(self._engine.close())
            self._engine = self._world.engine()

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        for run_id, claim in self._owners.items():
            run = self._do(self._engine.run(run_id))
            assert run is not None
            assert run.owner == ("" if claim is None else claim.owner)
            assert run.epoch == self._epochs[run_id]
            kept = {call.key: call.value for call in self._do(self._engine.calls(run_id))}
            model = {key: given for (of, key), given in self._calls.items() if of == run_id}
            assert kept == model
            for key in ("a", "b", "c"):
                entries = self._do(self._engine.entries(made.call(key, run_id=run_id).task_id))
                assert len(entries) == self._lines.get((run_id, key), 0)

    def teardown(self) -> None:
        self._do(self._engine.close())
        self._loop.close()
        self._folder.cleanup()


@pytest.mark.parametrize("store", STORES)
def test_any_order_of_writes_ends_as_the_model_says(store: str) -> None:
    machine = type("Owners", (Owners,), {"kind": store})
    limits = settings(max_examples=30, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(machine, settings=limits)
