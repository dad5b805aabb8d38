"""Find the calls of a batch whose needs cannot be met, before anything runs.

Laws: (1) pure; (2) a fault is told per call, in words that say what to change; (3) the calls left
over form no cycle, so that waiting for needs always ends.
Not here: waiting for needs, skipping after a failure (batch.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jackline.batches.results import BatchCall


def faults_of(calls: Sequence[BatchCall]) -> dict[int, str]:
    """By position in `calls`: why that call cannot run."""
    given = Counter(call.id for call in calls)
    needs = {call.id: call.needs for call in calls}
    circular = _in_cycles(needs)
    faults = {}
    for position, call in enumerate(calls):
        if fault := _fault(call, given, circular):
            faults[position] = fault
    return faults


def _fault(call: BatchCall, given: Counter[str], circular: set[str]) -> str | None:
    if given[call.id] > 1:
        return f"the id {call.id!r} is given to {given[call.id]} calls; give each its own"
    unknown = [need for need in call.needs if need not in given]
    if unknown:
        known = ", ".join(repr(name) for name in list(given)[:10])
        named = ", ".join(repr(name) for name in unknown)
        return f"it needs {named}, which is no call of this batch; the calls are {known}"
    if call.id in call.needs:
        return "it needs itself; leave its own id out of `needs`"
    if call.id in circular:
        return "it waits, through its needs, for itself; remove one of the needs on that circle"
    return None


def _in_cycles(needs: Mapping[str, Sequence[str]]) -> set[str]:
    """The ids that reach themselves; found without recursion, since a chain may be long."""
    known = {call: {need for need in wanted if need in needs} for call, wanted in needs.items()}
    rest = _without_the_free(known)
    return {call for call in rest if _reaches_itself(call, rest)}


def _without_the_free(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What is left when every call whose needs can be met in some order is taken away."""
    left = {call: set(wanted) for call, wanted in edges.items()}
    wanted_by: dict[str, list[str]] = {call: [] for call in left}
    for call, wanted in left.items():
        for need in wanted:
            wanted_by[need].append(call)
    free = [call for call, wanted in left.items() if not wanted]
    while free:
        done = free.pop()
        del left[done]
        for call in wanted_by[done]:
            left[call].discard(done)
            if not left[call]:
                free.append(call)
    return left


def _reaches_itself(start: str, edges: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    ahead = list(edges[start])
    while ahead:
        call = ahead.pop()
        if call == start:
            return True
        if call not in seen:
            seen.add(call)
            ahead.extend(edges[call])
    return False
