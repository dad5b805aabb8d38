"""Know by which variables of the shell a run pays, so that nothing wakes it where they are missing.

Laws: (1) names only, never values; (2) a run that is woken without them is left parked as it is:
its agents would be refused one by one, and lose their conversations; (3) a person's own order is
not judged.
Not here: sending credentials (agents/), what references of the configuration mean (config/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jackline.clock import Clock
from jackline.flows.engine import Engine
from jackline.flows.records import NoteRecord
from jackline.flows.waking import NOT_WOKEN
from jackline.providers.settings import Credential, UpstreamSettings

_CLIENTS_OWN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PAYS = "pays with"


def paying_variables(
    upstreams: Sequence[UpstreamSettings], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The variables that are set here and that calls are paid with; secrets are references."""
    names: dict[str, None] = {}
    for each in upstreams:
        if each.credential is Credential.PASS_THROUGH:
            names.update(dict.fromkeys(_CLIENTS_OWN))
        elif each.secret is not None and each.secret.startswith("env:"):
            names[each.secret.removeprefix("env:")] = None
    return tuple(name for name in names if environ.get(name))


async def note_paying(engine: Engine, run_id: str, names: Sequence[str], clock: Clock) -> None:
    """Keep with the run what it pays with, unless that is nothing and never was anything."""
    if names or await missing_to_pay(engine, run_id, {}):
        await engine.note(run_id, clock.wall(), _PAYS, "", {"variables": list(names)})


async def missing_to_pay(engine: Engine, run_id: str, environ: Mapping[str, str]) -> list[str]:
    """The variables that the run paid with when it was last begun, and that are not set here."""
    kept = [each for each in await engine.notes(run_id) if each.what == _PAYS]
    names = kept[-1].detail.get("variables") if kept else None
    return [str(n) for n in names if not environ.get(str(n))] if isinstance(names, list) else []


async def note_not_woken(engine: Engine, run_id: str, why: str, clock: Clock) -> None:
    """Keep with the run why it was left parked."""
    await engine.note(run_id, clock.wall(), NOT_WOKEN, "", {"why": why})


def last_refusal(notes: Sequence[NoteRecord]) -> str:
    """Why the run was left parked when it was last to be woken; empty if nothing spoke against."""
    for note in reversed(notes):
        if note.what == NOT_WOKEN:
            return str(note.detail.get("why", ""))
        if note.what in ("started", "parked", "woke"):
            break
    return ""
