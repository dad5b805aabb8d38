"""Claude Code offers an agent, and its sub-agents, only the tools that somebody named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jackline.agents.outcome import Ending
from jackline.errors import BadArgumentError
from jackline.mcp_server.permissions import AgentSettings, offered
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say, structured
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.assembly.world import run
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="links need a right there"),
]
CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
FETCHED = Callable[[], Path]
# Of the usual ones, those that these versions know.
KNOWN = {"Agent", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Write"}
SECRET = "a-word-that-stands-in-the-users-key"  # noqa: S105 -- what the attack would like to read
Call = tuple[str, dict[str, object]]


def sub_agent(kind: str, **more: object) -> Call:
    """A sub-agent that is waited for."""
    given = {"description": "x", "prompt": "Do it.", "subagent_type": kind}
    return "Agent", {**given, "run_in_background": False, **more}


def offered_in(asked: ClientRequest) -> set[str]:
    """The tools of one request."""
    tools = asked.body.get("tools")
    assert isinstance(tools, list)
    return {str(tool["name"]) for tool in tools}


def worked(
    fetched: FETCHED,
    folder: Path,
    calls: Sequence[Call],
    of_sub_agents: Sequence[Call] = (),
    *,
    prepare: Callable[[World], None] = lambda _world: None,
    **more: object,
) -> World:
    """An agent that makes these calls one by one; each of its sub-agents makes the others."""

    def mind(asked: ClientRequest) -> Reply:
        mine = calls if is_agent(asked) else of_sub_agents
        if asked.turn < len(mine):
            return Say("next", (mine[asked.turn],))
        return structured({"x": 1}) if "schema" in more and is_agent(asked) else Say("Done.")

    world = World(folder, fetched(), mind)
    world.home.mkdir()
    prepare(world)

    async def main() -> None:
        async with world.open():
            outcome = await world.carry(Pages(), FreeLeave(), **more)
            assert outcome.terminated_by is Ending.COMPLETION

    run(main())
    return world


def is_agent(asked: ClientRequest) -> bool:
    """Whether it is the agent itself, no sub-agent."""
    return "TASK: do the work." in str(asked.body)


def clone(world: World, link: str, target: str) -> None:
    """What a plain `git clone` of a repository brings, a link in it; and a hook of the user."""
    source = world.folder / "source"
    source.mkdir()
    git = ("git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x")
    subprocess.run([*git, "init", "-q"], check=True)
    (source / "own").write_text("what is inside")
    (source / link).parent.mkdir(exist_ok=True)
    (source / link).symlink_to(target)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    subprocess.run(["git", "clone", "-q", str(source), str(world.project)], check=True)
    hook = world.project / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {world.folder}/HOOK\n")
    hook.chmod(0o755)


KINDS = ("general-purpose", "Explore", "Plan", "claude-code-guide", "statusline-setup", "own")


@pytest.mark.parametrize("fetched", CLAUDES)
def test_without_names_an_agent_and_its_sub_agents_have_the_usual_tools_alone(
    fetched: FETCHED, tmp_path: Path
) -> None:
    """Whatever else this version brings, and whatever a definition of a sub-agent asks for."""

    def prepare(world: World) -> None:
        agents = world.home / ".claude" / "agents"
        agents.mkdir(parents=True)
        wanted = "name: own\ndescription: x\ntools: Bash, WebFetch, Read, Monitor"
        (agents / "own.md").write_text(f"---\n{wanted}\n---\nDo it.")

    calls = [sub_agent(kind) for kind in KINDS]
    tries: list[Call] = [("Bash", {"command": "id > ran", "description": "x"})]
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    world = worked(fetched, tmp_path, calls, tries, prepare=prepare, schema=schema, tool_names=None)
    assert offered_in(world.received[0]) == {*KNOWN, "StructuredOutput"}
    assert set.union(*map(offered_in, world.received)) == {*KNOWN, "StructuredOutput"}
    asking = [each for each in world.received if not is_agent(each)]
    assert len(asking) >= 2 * (len(KINDS) - 1), "2.1.197 lacks one of them"
    assert not (world.project / "ran").exists()


READS: list[Call] = [
    ("Bash", {"command": "grep -R '' .", "description": "x"}),
    ("Bash", {"command": "rg -L '' .", "description": "x"}),
    ("Bash", {"command": "cat ven*/.ssh/key", "description": "x"}),
    ("Bash", {"command": "cat < ../home/.ssh/key", "description": "x"}),
    ("Monitor", {"command": "grep -R '' .", "description": "x", "timeout_ms": 1000}),
    ("Grep", {"pattern": "word", "output_mode": "content"}),
    ("Grep", {"pattern": "word", "output_mode": "content", "path": "vendor"}),
    ("Grep", {"pattern": "word", "output_mode": "content", "glob": "vendor/**"}),
    ("Read", {"file_path": "vendor/.ssh/key"}),
]


@pytest.mark.parametrize("fetched", CLAUDES)
@pytest.mark.parametrize("named", [None, ["Read", "Grep", "Agent", "Bash", "Monitor"], ["default"]])
def test_no_agent_of_a_model_reads_through_a_link_of_a_clone(
    fetched: FETCHED, named: list[str] | None, tmp_path: Path
) -> None:
    """Whatever tools the model names: of Bash alone, Claude Code runs what only reads."""
    try:
        tools = offered(named, "claude-code", AgentSettings()).tools
    except BadArgumentError:
        tools = []

    def prepare(world: World) -> None:
        clone(world, "vendor", "../home")
        (world.home / ".ssh").mkdir()
        (world.home / ".ssh" / "key").write_text(SECRET)

    calls = [*READS, sub_agent("general-purpose", cwd=str(tmp_path / "home"))]
    names = None if tools is None else tuple(tools)
    world = worked(fetched, tmp_path, calls, READS, prepare=prepare, tool_names=names)
    assert len(world.received) > len(calls)
    assert SECRET not in str([each.body for each in world.received])


@pytest.mark.parametrize("fetched", CLAUDES)
@pytest.mark.parametrize("named", [None, ("Read", "Write", "Agent", "EnterWorktree", "Workflow")])
def test_no_agent_makes_a_worktree_wherever_a_link_of_a_clone_leads(
    fetched: FETCHED, named: tuple[str, ...] | None, tmp_path: Path
) -> None:
    """What is checked out at ~/.vim runs when vim starts next; and git runs the hooks."""

    def prepare(world: World) -> None:
        clone(world, ".claude/worktrees", "../../home/wanted")
        (world.home / "wanted").mkdir()
        agents = world.home / ".claude" / "agents"
        agents.mkdir(parents=True)
        apart = "name: apart\ndescription: x\nisolation: worktree"
        (agents / "apart.md").write_text(f"---\n{apart}\n---\nDo it.")

    calls: list[Call] = [
        ("EnterWorktree", {"name": ".vim"}),
        sub_agent("general-purpose", isolation="worktree"),
        sub_agent("apart"),
        sub_agent("general-purpose"),
    ]
    world = worked(fetched, tmp_path, calls, prepare=prepare, tool_names=named)
    assert list((world.home / "wanted").iterdir()) == []
    assert not (tmp_path / "HOOK").exists()
    git = ("git", "-C", str(world.project), "worktree", "list")
    listed = subprocess.run(git, check=True, capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1
