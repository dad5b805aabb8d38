"""Refuse to act on what this installation did not write, until a person has accepted it.

Rules: (1) a record that is not ours is listed and told about, and nothing that it names is loaded,
run, removed or woken; (2) a person accepts a whole run, after having been shown what it would run;
(3) records from before signatures count as somebody else's, since nothing tells them apart.
Not here: signatures (local/signing.py).
"""

from __future__ import annotations

from jackline.errors import UsageError
from jackline.flows.engine import Engine
from jackline.flows.records import RunRecord

NOT_OURS = "not written by this installation: not run"


def how_to_accept(run_id: str) -> str:
    """The next step for a person who knows where the run comes from."""
    return f"see what it would run, and accept it if it is yours: jackline show {run_id} --trust"


def must_be_trusted(run: RunRecord) -> None:
    """Refuse a run that this installation did not write."""
    if not run.trusted:
        what = f"{run.source} is not loaded" if run.source else "it is not gone on with"
        raise UsageError(
            f"The run {run.run_id} was not written by this installation: {what}.",
            next=how_to_accept(run.run_id),
        )


async def must_be_trusted_wholly(engine: Engine, run: RunRecord) -> None:
    """Refuse a run if it, or a result or a notebook that it would go on with, is not ours."""
    must_be_trusted(run)
    if rows := await engine.untrusted_rows(run.run_id):
        raise UsageError(
            f"Of what the run {run.run_id} has kept, {rows} records were not written by this"
            " installation: it is not gone on with.",
            next=how_to_accept(run.run_id),
        )
