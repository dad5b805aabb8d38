"""Decide whether a call may run for somebody who was not asked, with a look at the disk.

Rules: (1) the policy is asked first, which touches nothing; (2) a link must not lead a command out
of the folder; (3) git is not started, by whatever words, in a repository that names programs of its
own: its settings may have come with an archive, or from somebody who could write one file; (4)
looking only reads.
"""

from __future__ import annotations

import asyncio

from jackline.batches.links import way_out
from jackline.batches.policy import Allowed, Denied, Judgement, Policy
from jackline.batches.results import BatchCall
from jackline.batches.usual_commands import starts_git
from jackline.foreign_repositories import program_set_by
from jackline.outside_names import printable


async def permit(policy: Policy, call: BatchCall) -> Judgement:
    """Whether the call may run now."""
    said = policy.judge(call)
    if isinstance(said, Denied) or call.tool.name != "shell":
        return said
    out = await asyncio.to_thread(way_out, policy.folder, call.arguments)
    if out is not None:
        return Denied(
            f"{out!r} leads out of the project folder by a link",
            "give paths inside the project folder",
        )
    if not starts_git(call.arguments, windows=policy.windows):
        return Allowed()
    given = call.arguments.get("cwd")
    place = policy.folder / (given if isinstance(given, str) else ".")
    setting = await program_set_by(place)
    if setting is None:
        return Allowed()
    return Denied(
        f"the repository sets {printable(setting)}, a program that git would start",
        f"the user may run git there, or take it out: git config --unset-all {printable(setting)}",
    )
