"""Play the drills in another dialect, and demand the same of them.

Rules: (1) faults, stand-ins and demands are those of the drill; only the crew, its models and the
dialect are others; (2) what fails once may be a busy machine's fault, what fails twice is ours.
Not here: the drills (jackline.drills), the crews (codex.py, sdk_fleets.py).
"""

from __future__ import annotations

from dataclasses import replace

from jackline import event_loop
from jackline.drills.catalogue import drill_named
from jackline.drills.drill import BackupProvider, CrewPart, crew, crew_script
from jackline.drills.drill_run import CrewRun, DrillOptions, FleetMaker, Side
from jackline.drills.environment import open_gateway
from jackline.drills.evaluation import Figures, check_requirements
from jackline.providers.settings import UpstreamKind


def part_named(name: str, place: int = 0, *, real_client: bool = False) -> CrewPart:
    """One of the parts of a drill that are played by a crew."""
    part = drill_named(name, real_client=real_client).parts[place]
    assert isinstance(part, CrewPart)
    return part


def part_of(
    name: str, dialect: UpstreamKind, *, agents: int, rounds: int, models: tuple[str, ...]
) -> CrewPart:
    """The drill's part with another crew, and its dialect spoken by all providers."""
    part = part_named(name)
    plans = crew(agents, models, rounds=rounds)
    backups = tuple(
        BackupProvider(
            one.name, dialect, faults=one.faults, buckets=one.buckets, concurrency=one.concurrency
        )
        for one in part.backups
    )
    return replace(
        part,
        crew=plans,
        script=crew_script(plans, turns=2, tokens=120, tools=2),
        backups=part.backups if dialect is UpstreamKind.ANTHROPIC else backups,
        faults_after=agents + 1,
        dialect=dialect,
    )


def drilled(part: CrewPart, fleet: FleetMaker, speed: float) -> Figures:
    """Jackline's side of a part, once every demand is met."""
    missed: list[object] = []
    figures = None
    for _ in range(2):
        options = DrillOptions("-", fleet, open_gateway, speed)
        figures = event_loop.run(CrewRun(part, Side.JACKLINE, options).run())
        missed = [one for one in check_requirements(part, figures, figures, speed) if not one.met]
        if not missed:
            break
    assert figures is not None
    assert missed == [], (figures.providers, figures.reasons, figures.died_of)
    assert (figures.left_behind, figures.errors_seen, figures.misbound) == (0, 0, 0)
    return figures
