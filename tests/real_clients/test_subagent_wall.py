"""Drill `subagent-wall`: the real client, old and new, loses nothing of what a wall has cut off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.drill import ProgramPart
from jackline.drills.evaluation import check_requirements
from jackline.drills.subagent_wall import SubagentFigures, subagent_wall
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import VERSION, old_claude_binary

pytestmark = pytest.mark.real_client
NEW = "2.1.325"


def parts() -> dict[str, ProgramPart]:
    clients = [InstalledClaude.named(old_claude_binary()), InstalledClaude.named(claude_binary())]
    return {client.version: subagent_wall(client).programs[0] for client in clients}


def played(side: str, folder: Path) -> dict[str, SubagentFigures]:
    """What came of this side with each version; both at once, since they mostly wait."""

    async def one(version: str, part: ProgramPart) -> SubagentFigures:
        own = folder / version
        async with part.open_side(own, 1.0, thorough=True) as opened:
            figures = await getattr(opened, side)()
        assert isinstance(figures, SubagentFigures)
        return figures

    async def all_of_them() -> dict[str, SubagentFigures]:
        found = parts()
        figures = await asyncio.gather(*(one(*each) for each in found.items()))
        return dict(zip(found, figures, strict=True))

    return event_loop.run(all_of_them())


def test_three_of_eight_sub_agents_are_cut_off_and_gone_on_with_and_nothing_runs_twice(
    tmp_path: Path,
) -> None:
    figures = played("jackline", tmp_path)
    assert set(figures) == {VERSION, NEW}
    for version, part in parts().items():
        ours = figures[version]
        missed = {
            one.requirement.figure
            for one in check_requirements(part, ours, ours, 1.0)
            if not one.met
        }
        assert missed == set(), ours
        assert (ours.finished, ours.agents) == (8, 8)


def test_bare_the_parent_is_left_with_five_and_the_old_client_takes_errors_for_results(
    tmp_path: Path,
) -> None:
    figures = played("bare", tmp_path)
    for bare in figures.values():
        assert (bare.not_cut, bare.finished, bare.unreported) == (0, 5, 3)
    assert figures[VERSION].taken_for_results == 3
    assert figures[NEW].taken_for_results == 0, "it says itself that they did not finish"
