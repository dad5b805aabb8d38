"""Many small calls at once: each has its own result, and none runs that was not allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, call, refused


def shell(name: str, command: str, *needs: str) -> dict[str, object]:
    given: dict[str, object] = {"id": name, "tool": "shell", "input": {"command": command}}
    return {**given, "needs": list(needs)} if needs else given


def test_failures_are_counted_and_every_result_bears_its_id(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("echo *", "ls *"))

    async def main() -> None:
        async with world.open() as client:
            (world.project / "notes.txt").write_text("a note\n")
            calls = [
                shell("greet", "echo hello"),
                shell("gone", "ls nowhere"),
                shell("after", "echo never", "gone"),
                {"id": "read", "tool": "read", "input": {"path": "notes.txt"}},
                {"id": "search", "tool": "search", "input": {"pattern": "note"}},
            ]
            text, data = await call(client, "batch", calls=calls)
            assert text.startswith("1 of 5 failed: ls (exit ")
            results = {result["id"]: result for result in data["results"]}
            assert list(results) == ["greet", "gone", "after", "read", "search"]
            assert results["greet"]["text"] == "hello\n"
            assert results["gone"]["exit_code"] != 0
            assert "skipped" in results["after"]["error"]
            assert "a note" in results["read"]["text"]
            assert "notes.txt:1:a note" in results["search"]["text"]
            assert "\ngreet: " in text

    run(main())


def test_what_was_not_allowed_does_not_run_and_says_what_to_write(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("touch *",))

    async def main() -> None:
        async with world.open() as client:
            calls = [
                shell("other", "rm -r ."),
                shell("chain", "touch a && touch b"),
                shell("outside", "touch ../c"),
                {"id": "web", "tool": "fetch", "input": {"url": "https://example.org/"}},
                {"id": "read", "tool": "read", "input": {"path": "../state/gateway.json"}},
            ]
            text, data = await refused(client, "batch", calls=calls)
            assert text.startswith("5 of 5 failed: ")
            assert all("jackline.toml" in result["error"] for result in data["results"])
            await call(client, "batch", calls=[shell("fine", "touch d")])
            assert [path.name for path in world.project.iterdir()] == ["d"]
            for cwd in ("..", "/", str(tmp_path)):
                text, _ = await refused(client, "batch", calls=[shell("x", "touch e")], cwd=cwd)
                assert "agents.folders" in text

    run(main())


def test_bad_calls_are_refused_before_anything_runs(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("touch *",))

    async def main() -> None:
        async with world.open() as client:
            good = shell("good", "touch a")
            for bad in ({"id": "x"}, {**good, "tool": "fly"}, {**good, "more": 1}):
                await refused(client, "batch", calls=[good, bad])
            await refused(client, "batch", calls=[])
            assert not list(world.project.iterdir())

    run(main())


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_no_link_no_glob_and_no_cwd_leads_a_command_out_of_the_project(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("cat *", "touch *"))

    async def main() -> None:
        async with world.open() as client:
            _lay_doors(tmp_path, world.project)
            tries: list[dict[str, object]] = [
                {"command": "cat door/secret"},
                {"command": "cat d*/secret"},
                {"command": "cat *.txt"},
                {"argv": ["cat", "door/secret"]},
                {"command": "cat secret", "cwd": "door"},
                {"command": "touch door/made"},
                {"command": "cat ../outside/secret"},
                {"command": f"cat {tmp_path}/outside/secret"},
            ]
            calls: list[dict[str, object]] = [
                {"id": str(number), "tool": "shell", "input": given}
                for number, given in enumerate(tries)
            ]
            calls += [
                {"id": "read", "tool": "read", "input": {"path": "door/secret"}},
                {"id": "linked", "tool": "read", "input": {"path": "file.txt"}},
                {"id": "search", "tool": "search", "input": {"pattern": "s", "path": "door"}},
            ]
            text, data = await refused(client, "batch", calls=calls)
            assert "TOP-SECRET" not in str(data)
            assert "by a link" in text
            # Searching all of the project passes links by.
            call_all = {"id": "all", "tool": "search", "input": {"pattern": "TOP"}}
            _, data = await call(client, "batch", calls=[call_all])
            assert "TOP-SECRET" not in str(data)
            given = {"prompt": "TASK", "release": "touch door/made"}
            text, _ = await refused(client, "agent", **given)
            assert "by a link" in text

    run(main())
    assert not (tmp_path / "outside" / "made").exists()


def _lay_doors(root: Path, project: Path) -> None:
    (root / "outside").mkdir()
    (root / "outside" / "secret").write_text("TOP-SECRET")
    (project / "door").symlink_to(root / "outside")
    (project / "file.txt").symlink_to(root / "outside" / "secret")


def test_results_that_are_too_long_together_are_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackline.mcp_server.batch_tools.LARGEST_ANSWER", 2_500)
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            (world.project / "long.txt").write_text("x" * 1_000)
            calls = [
                {"id": str(n), "tool": "read", "input": {"path": "long.txt"}} for n in range(4)
            ]
            text, data = await call(client, "batch", calls=calls)
            # Whichever came first.
            assert sum("left out" in result["text"] for result in data["results"]) == 2
            assert len(text) < 3_000

    run(main())
