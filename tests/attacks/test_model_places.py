"""A model that was talked into an attack: it names folders, tools and ids that are not its own.

Rules: those of this package. Two projects share one service; what happens in one is unknown to the
other.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from mcp import ClientSession

from jackline.clock import SystemClock
from jackline.errors import RefusedError, UnreadableError
from jackline.mcp_server import status_tools
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import AgentSettings, check_nested
from jackline.mcp_server.status_tools import SeenStores
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from jackline.transcripts.saved_conversation import folder_of_thread
from jackline.transcripts.sources import find_path
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, call, refused, until

_ANSWER = "done: what is nobody else's business"
_PROMPT = "what is nobody else's business"


# --- folders inside the project ----------------------------------------------------------------


def _hook(folder: Path, mark: Path) -> None:
    (folder / ".claude").mkdir()
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}
    (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


def _servers(folder: Path, mark: Path) -> None:
    servers = {"x": {"command": "touch", "args": [str(mark)]}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def _codex(folder: Path, mark: Path) -> None:
    (folder / ".codex").mkdir()
    (folder / ".codex" / "config.toml").write_text(f'notify = ["touch", "{mark}"]')


def _above(folder: Path, mark: Path) -> None:
    _hook(folder.parent, mark)


def _link(folder: Path, mark: Path) -> None:
    _hook(folder, mark)
    (folder / ".claude").rename(folder.parents[2] / "elsewhere")
    (folder / ".claude").symlink_to(folder.parents[2] / "elsewhere")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def _monitor(folder: Path, mark: Path) -> None:
    """Claude Code 2.1.197 asks git, which starts this."""
    _git(folder, "init", "--quiet", ".")
    _git(folder, "config", "core.fsmonitor", f"touch {mark}")


def _bare(folder: Path, mark: Path) -> None:
    """A commit can hold such a folder, since it is no `.git`."""
    _git(folder, "init", "--quiet", "--bare", ".")
    _git(folder, "config", "core.fsmonitor", f"touch {mark}")


def _submodule(folder: Path, mark: Path) -> None:
    """A clean repository, and a submodule in it in which its git starts another one."""
    _git(folder, "init", "--quiet", ".")
    (folder / "sub").mkdir()
    _git(folder / "sub", "init", "--quiet", ".")
    _as_somebody(folder / "sub", "commit", "--quiet", "--allow-empty", "-m", "x")
    _as_somebody(folder, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    _git(folder / "sub", "config", "core.fsmonitor", f"touch {mark}")


def _submodule_with_hook(folder: Path, mark: Path) -> None:
    _submodule(folder, mark)
    _git(folder / "sub", "config", "--unset", "core.fsmonitor")
    (folder / "sub" / ".git" / "hooks").mkdir(exist_ok=True)
    (folder / "sub" / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {mark}")


def _submodule_beside(folder: Path, mark: Path) -> None:
    """Git looks at the whole repository, in whichever of its folders it is asked."""
    _submodule(folder.parent, mark)


def _submodule_in_submodule(folder: Path, mark: Path) -> None:
    _submodule(folder, mark)
    _git(folder / "sub", "config", "--unset", "core.fsmonitor")
    (folder / "sub" / "inner").mkdir()
    _submodule(folder / "sub" / "inner", mark)
    _as_somebody(folder / "sub" / "inner", "commit", "--quiet", "-m", "x")
    _as_somebody(folder / "sub", "-c", "advice.addEmbeddedRepo=false", "add", "inner")


def _submodules_hooks_elsewhere(folder: Path, mark: Path) -> None:
    """Hooks that are not there yet: the agent may write them."""
    _submodule(folder, mark)
    _git(folder / "sub", "config", "--unset", "core.fsmonitor")
    _git(folder / "sub", "config", "core.hooksPath", "../hooks")


def _kept_module(folder: Path, mark: Path) -> None:
    """A submodule that is not checked out yet: the next `git submodule update` brings it in."""
    _git(folder, "init", "--quiet", ".")
    _git(folder, "init", "--quiet", "--bare", ".git/modules/sub")
    _git(folder / ".git" / "modules" / "sub", "config", "core.fsmonitor", f"touch {mark}")


def _lacking(folder: Path, mark: Path) -> None:
    """What such a repository lacks, git fetches when it is asked how the folder stands."""
    _git(folder, "init", "--quiet", ".")
    _git(folder, "config", "remote.origin.url", f"{folder}/{mark.name}")
    _git(folder, "config", "remote.origin.promisor", "true")


def _as_somebody(folder: Path, *words: str) -> None:
    _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", *words)


def _git_hook(folder: Path, mark: Path) -> None:
    _git(folder, "init", "--quiet", ".")
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    (folder / ".git" / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {mark}\n")


_BROUGHT = [
    *(_hook, _servers, _codex, _above, _link, _monitor, _bare, _git_hook),
    *(_submodule, _submodule_with_hook, _submodule_beside, _submodule_in_submodule),
    *(_submodules_hooks_elsewhere, _kept_module, _lacking),
]


@pytest.mark.parametrize("runner", ["claude-code", "codex"])
@pytest.mark.parametrize("bring", _BROUGHT)
def test_no_program_is_started_in_a_folder_that_brings_programs(
    tmp_path: Path, bring: Callable[[Path, Path], None], runner: str
) -> None:
    world, mark = AgentsWorld(tmp_path), tmp_path / "ran"
    nested = world.project / "vendor" / "evil"
    nested.mkdir(parents=True)
    bring(nested, mark)

    async def main() -> None:
        async with world.open() as client:
            given = {"prompt": "x", "runner": runner, "cwd": "vendor/evil"}
            one, _ = await refused(client, "agent", **given)
            many, _ = await refused(client, "agents", orders=[given])
            listed, _ = await call(client, "agent_status")
        for text in (one, many):
            assert "No agent is started in" in text
            assert f'agents.folders = ["{nested}"]' in text
        assert listed == "No agent was started here yet."
        assert not mark.exists()

    run(main())


def test_a_folder_that_brings_nothing_or_that_the_user_named_is_fine(tmp_path: Path) -> None:
    project = (tmp_path / "project").resolve()
    plain, cloned = project / "src" / "part", project / "vendor" / "clone"
    for folder in (plain, cloned):
        folder.mkdir(parents=True)
    _git(cloned, "init", "--quiet", ".")
    (cloned / "part").mkdir()
    _hook(project, tmp_path / "ran")
    _git(project, "init", "--quiet", ".")
    # The project's own settings are the user's own matter.
    _git(project, "config", "core.fsmonitor", "touch x")

    async def main() -> None:
        for folder in (project, plain, cloned, cloned / "part"):
            await check_nested(folder, project)
        _git(cloned, "init", "--quiet", "other")
        with pytest.raises(RefusedError, match="holds another one, other"):
            await check_nested(cloned, project)
        with pytest.raises(RefusedError, match="holds another one, other"):
            await check_nested(cloned / "part", project)
        await check_nested(project / "vendor", project)
        await check_nested(cloned, cloned)
        _hook(plain, tmp_path / "ran")
        await check_nested(plain, plain)
        with pytest.raises(RefusedError):
            await check_nested(plain, project)

    run(main())


def test_a_folder_that_became_a_link_since_is_not_followed(tmp_path: Path) -> None:
    project, other = (tmp_path / "project").resolve(), tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (project / "part").symlink_to(other)

    async def main() -> None:
        with pytest.raises(RefusedError, match="leads elsewhere"):
            await check_nested(project / "part", project)

    run(main())


# --- tools -------------------------------------------------------------------------------------


def test_a_model_widens_no_tool_by_brackets(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            for rule in ("Write(~/.bashrc)", "Read(//root/.ssh/**)", "Bash(sh *)"):
                given = {"prompt": "x", "runner": "claude-code", "tools": ["Read", rule]}
                text, _ = await refused(client, "agent", **given)
                assert "only the user can say" in text
            listed, _ = await call(client, "agent_status")
        assert listed == "No agent was started here yet."

    run(main())


@pytest.mark.parametrize("tool", ["write", "edit"])
def test_an_agent_that_may_write_rewrites_no_settings(tmp_path: Path, tool: str) -> None:
    """The user allowed it to write files of the project, not to have git run something."""
    closed = (".git/config", ".claude/settings.json", ".mcp.json", "kept/config")
    words = {"content": "[core]"} if tool == "write" else {"old": "a", "new": "b", "every": True}
    calls = [(tool, {"path": path, **words}) for path in closed]

    def mind(asked: ClientRequest) -> Reply:
        return Say("done") if asked.results else Say("I write.", tuple(calls))

    world = AgentsWorld(tmp_path, mind, tools=(tool,))
    world.project.mkdir()
    _git(world.project, "init", "--quiet", ".")
    _git(world.project, "init", "--quiet", "--bare", "kept")
    (world.project / ".claude").mkdir()
    (world.project / ".claude" / "settings.json").write_text("a")
    (world.project / ".mcp.json").write_text("a")
    before = [(world.project / path).read_text() for path in closed]

    async def main() -> None:
        async with world.open() as client:
            await call(client, "agent", prompt="x", tools=[tool])
        assert len(world.received) == 2
        assert [(world.project / path).read_text() for path in closed] == before

    run(main())


# --- an agent's own folder ------------------------------------------------------------------------


def _evil(world: AgentsWorld) -> Path:
    """A stranger's folder in the project: its Makefile marks that it ran."""
    evil = world.project / "vendor" / "evil"
    evil.mkdir(parents=True)
    (evil / "Makefile").write_text("lint:\n\t@touch ran\n")
    (world.project / "Makefile").write_text("lint:\n\t@echo recipe of the user\n")
    return evil


_LINT = {"calls": [{"id": "1", "tool": "shell", "input": {"command": "make lint"}}]}


@pytest.mark.skipif(os.name == "nt", reason="POSIX programs")
def test_the_folder_of_an_agent_is_none_that_the_user_chose(tmp_path: Path) -> None:
    """A model chose it; so an agent's own `jackline mcp` there makes nothing in it trusted."""
    world = AgentsWorld(tmp_path, allow=("make lint",))
    evil = _evil(world)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            async with world.client(service) as person:
                _, first = await call(person, "agent", prompt="x", cwd="vendor/evil")
            task = first["task_id"]
            for _ in ("the agent", "the one that it started"):
                async with world.client(service, parent_task=task, folder=evil) as agent:
                    text, _ = await refused(agent, "batch", **_LINT)
                    assert "own folder" in text
                    given = {"prompt": "y", "release": "make lint"}
                    text, _ = await refused(agent, "agent", **given)
                    assert "The release command may not run" in text
                    _, data = await call(agent, "agent", prompt="y")
                    task = data["task_id"]
            _hook(evil, evil / "ran")
            async with world.client(service, parent_task=first["task_id"], folder=evil) as agent:
                text, _ = await refused(agent, "agent", prompt="z", runner="claude-code")
            assert "brings .claude" in text
        assert not (evil / "ran").exists()

    run(main())


@pytest.mark.skipif(os.name == "nt", reason="POSIX programs")
def test_an_agent_of_whom_nothing_is_known_works_by_the_users_settings_alone(
    tmp_path: Path,
) -> None:
    world = AgentsWorld(tmp_path, allow=("make lint",))
    evil = _evil(world)

    async def main() -> None:
        async with world.provider():
            async with (
                world.service() as service,
                world.client(service, parent_task="of nobody", folder=evil) as agent,
            ):
                text, _ = await refused(agent, "batch", **_LINT)
                assert "own folder" in text
                text, _ = await refused(agent, "agent", prompt="z", runner="claude-code")
                assert "No agent is started in" in text
                assert not (evil / "ran").exists()
            world.folders = (evil,)
            async with (
                world.service() as service,
                world.client(service, parent_task="of nobody", folder=evil) as agent,
            ):
                await call(agent, "batch", **_LINT)
                assert (evil / "ran").exists()

    run(main())


@pytest.mark.skipif(os.name == "nt", reason="POSIX programs")
def test_an_agent_in_the_folder_that_the_user_chose_runs_what_the_user_allowed(
    tmp_path: Path,
) -> None:
    world = AgentsWorld(tmp_path, allow=("make lint",))
    _evil(world)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            async with world.client(service) as person:
                _, first = await call(person, "agent", prompt="x")
            async with world.client(service, parent_task=first["task_id"]) as agent:
                text, _ = await call(agent, "batch", **_LINT)
                assert "recipe of the user" in text
                _, second = await call(agent, "agent", prompt="y", release="make lint")
            async with world.client(service, parent_task=second["task_id"]) as agent:
                text, _ = await call(agent, "batch", **_LINT)
                assert "recipe of the user" in text

    run(main())


# --- other projects' runs and sessions -----------------------------------------------------------


@asynccontextmanager
async def _two_projects(
    world: AgentsWorld,
) -> AsyncIterator[tuple[ClientSession, ClientSession, dict[str, Any]]]:
    """A client in the project, one in another, and the run that the first one started."""
    other = world.folder / "other"
    other.mkdir()
    async with (
        world.provider(),
        world.service() as service,
        world.client(service) as mine,
        world.client(service, session="another", folder=other) as stranger,
    ):
        _, data = await call(mine, "agent", prompt=_PROMPT)
        yield mine, stranger, data


def test_another_projects_runs_are_unknown(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with _two_projects(world) as (mine, stranger, data):
            listed, _ = await call(stranger, "agent_status")
            assert listed == "No agent was started here yet."
            for named in (data["run_id"], data["task_id"], data["session_id"]):
                for tool in ("agent_status", "agent_wait", "agent_cancel"):
                    text, told = await refused(stranger, tool, ids=[named])
                    missing, _ = await refused(stranger, tool, ids=["nobody-at-all"])
                    assert text.replace(named, "nobody-at-all") == missing
                    assert "jackline show" in text
                    assert _ANSWER not in text + json.dumps(told)
                for given in (
                    {"resume": named},
                    {"continue_from_task_id": named},
                    {"resume": named, "prompt": "x", "runner": "messages"},
                    {"resume": named, "prompt": "x", "runner": "codex"},
                    {"continue_from_task_id": named, "prompt": "say it again", "cwd": "."},
                ):
                    text, _ = await refused(stranger, "agent", **given)
                    assert "of this project has the id" in text
            assert world.prompts() == [_PROMPT]
            text, _ = await call(mine, "agent_status", ids=[data["run_id"]])
            assert _ANSWER in text

    run(main())


def test_a_client_that_tells_no_folder_sees_those_of_the_configuration_alone(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    assert not AgentSettings().sight_of(None)(str(project))
    assert AgentSettings(folders=(tmp_path,)).sight_of(None)(str(project))
    sees = AgentSettings().sight_of(project)
    assert sees(str(project / "part"))
    for folder in (None, "", "project", str(tmp_path), str(tmp_path / "project-2")):
        assert not sees(folder)
    assert ToolCaller().folder is None


def _transcript(claude: Path, project: Path, session: str) -> Path:
    kept = claude / "projects" / str(project).replace("/", "-")
    kept.mkdir(parents=True, exist_ok=True)
    line = {"type": "user", "sessionId": session, "cwd": str(project), "message": {"content": "x"}}
    file = kept / f"{session}.jsonl"
    file.write_text(json.dumps({"type": "summary"}) + "\n" + json.dumps(line) + "\n")
    return file


def test_why_reads_no_file_and_no_session_of_others(tmp_path: Path) -> None:
    home, project, other = tmp_path / "home", tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    own = _transcript(home / ".claude", project, "aaaa-own")
    theirs = _transcript(home / ".claude", other, "aaaa-theirs")
    log = project / "client.jsonl"
    log.write_text(own.read_text())
    (project / "link").symlink_to(other)
    (other / "log.jsonl").write_text(theirs.read_text())
    stores = SeenStores.of_user(home, {}, AgentSettings().sight_of(project))

    def found(word: str | None) -> list[Path]:
        target = None if word is None else stores.target(word, project)
        return [source.path for source in stores.found(target)]

    assert found(None) == [own]
    # Alone with that beginning, as far as this client may know.
    assert found("aaaa") == [own]
    assert found("client.jsonl") == [log]
    assert found(str(own)) == [own]
    for hidden in (
        *("aaaa-theirs", str(theirs), str(other), str(other / "log.jsonl"), "/etc/passwd"),
        *("link", "link/log.jsonl", "../other", "~/.netrc", str(theirs.parent)),
    ):
        with pytest.raises(UnreadableError) as refusal:
            found(hidden)
        assert "jackline why" in refusal.value.hint
        assert "aaaa-own" not in refusal.value.message
    # Nor by a folder that holds both.
    assert found(str(home / ".claude" / "projects")) == [own]


def test_a_word_that_is_no_path_is_an_id_wherever_the_service_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the service was started is nothing that a client may look at, however it is named."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    own = _transcript(home / ".claude", project, "aaaa-own")
    # The service happens to run in the project, whose files may be seen: they are not named so.
    (project / "logs").mkdir()
    (project / "logs" / "one.jsonl").write_text(own.read_text())
    (project / "plain").write_text(own.read_text())
    (project / "logs" / "inner").mkdir()
    monkeypatch.chdir(project / "logs" / "inner")
    stores = SeenStores.of_user(home, {}, AgentSettings().sight_of(project))
    walked: list[str] = []
    scandir = os.scandir

    def noted(at: Any) -> Any:
        walked.append(str(at))
        return scandir(at)

    monkeypatch.setattr(os, "scandir", noted)
    for word in (".", "..", "", "./", "logs", "plain", "inner", "~nobody"):
        with pytest.raises(UnreadableError):
            stores.found(stores.target(word, project))
    assert not any(Path(at).absolute().is_relative_to(project) for at in walked)
    target = stores.target("logs/one.jsonl", project)
    assert [source.path for source in stores.found(target)] == [project / "logs" / "one.jsonl"]


def test_a_folder_is_not_looked_through_without_end(tmp_path: Path) -> None:
    project = tmp_path / "project"
    deep = project.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    for number in range(60):
        (project / f"{number:02}.jsonl").write_text("{}\n")
    found = find_path(project, most=50)
    assert sum(source.problem is None for source in found) <= 50
    assert any("too many" in (source.problem or "") for source in found)
    # Nor ever deeper, for whomever.
    assert any("too deep" in (source.problem or "") for source in find_path(project / "d"))


def test_why_has_threads_of_its_own_and_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    begun: list[int] = []

    def slow(*_given: object) -> NoReturn:
        begun.append(1)
        go_on.wait(20)
        raise UnreadableError("late")

    monkeypatch.setattr(status_tools, "_autopsy", slow)
    settings = AgentSettings(wait=0.2)
    (why,) = (
        tool
        for tool in status_tools.status_tools(dict, lambda: settings, SystemClock())
        if tool.name == "why"
    )

    async def main() -> None:
        caller = ToolCaller(folder=tmp_path)
        many = [asyncio.ensure_future(why.run({"id": "x"}, caller)) for _ in range(50)]
        try:
            # As many as there are threads in the pool that everybody uses, and more.
            await until(lambda: bool(begun))
            assert await asyncio.to_thread(lambda: "free") == "free"
            for told in await asyncio.gather(*many, return_exceptions=True):
                assert isinstance(told, UnreadableError)
                assert "takes too long" in told.message
            assert len(begun) < 5
        finally:
            go_on.set()

    run(main())


def test_a_thread_of_codex_tells_its_folder(tmp_path: Path) -> None:
    day = tmp_path / "sessions" / "2026" / "11" / "15"
    day.mkdir(parents=True)
    line = {"type": "session_meta", "payload": {"id": "01a1", "cwd": "/srv/other"}}
    (day / "rollout-2026-11-15T14-30-54-01a1.jsonl").write_text(json.dumps(line) + "\n")
    environ = {"CODEX_HOME": str(tmp_path)}
    assert folder_of_thread("01a1", environ) == "/srv/other"
    assert folder_of_thread("01a2", environ) is None
