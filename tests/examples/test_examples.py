"""Every example runs as its docstring says, against the simulator, with no key."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackline.simulator.reply_script import ReplyScript
from jackline.testing import SimulatedProvider
from tests.cli.commands import Answer, jackline

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider(script=ReplyScript(obliging=True)) as there:
        yield there


@pytest.fixture
def environ(provider: SimulatedProvider, tmp_path: Path) -> Iterator[dict[str, str]]:
    given = {
        "JACKLINE_STATE": str(tmp_path / "state"),
        "JACKLINE_PORT": "0",
        "JACKLINE_UPSTREAM": provider.url,
        "ANTHROPIC_API_KEY": "none",
    }
    try:
        yield given
    finally:
        jackline("down", env=given)


def run(example: str, environ: dict[str, str], *words: str) -> dict[str, Any]:
    answer = jackline("run", EXAMPLES / example, *words, "--json", "--quiet", env=environ)
    assert answer.code == 0, told(answer)
    document: dict[str, Any] = json.loads(answer.out)
    assert (document["state"], document["terminated_by"]) == ("finished", "completion")
    return document


def told(answer: Answer) -> str:
    return answer.out + answer.err


def test_deep_research_asks_more_than_sixty_agents_and_answers(environ: dict[str, str]) -> None:
    document = run("deep_research.py", environ, "--question", "What keeps a crew on board?")
    assert document["tally"]["ok"] == document["tally"]["agents"] > 60
    assert set(document["value"]) == {"answer", "sources"}


def test_review_repo_reads_every_file_and_judges_once(
    environ: dict[str, str], tmp_path: Path
) -> None:
    for name in ("a.py", "inner/b.py", "inner/c.py"):
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text("x = 1\n")
    document = run("review_repo.py", environ, "--folder", str(tmp_path / "code"))
    assert document["tally"]["ok"] == 4


def test_migrate_leaves_no_clean_worktree_and_every_dirty_one(
    environ: dict[str, str], tmp_path: Path
) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "parser.py").write_text("x = 1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "First")):
        names = ("-c", "user.name=crew", "-c", "user.email=crew@example.org")
        subprocess.run(["git", *names, *words], cwd=repo, check=True)
    given = ("--modules", '["parser", "printer"]', "--repo", str(repo))
    document = run("migrate.py", environ, *given)
    assert [line.partition(":")[0] for line in document["value"]] == ["parser", "printer"]
    assert sorted(path.name for path in tmp_path.glob("repo-*")) == []
    # A worktree with work that nobody has committed outlives the run that made it.
    subprocess.run(["git", "worktree", "add", "-q", "../repo-migrate-lexer"], cwd=repo, check=True)
    (tmp_path / "repo-migrate-lexer" / "notes.txt").write_text("not committed\n")
    run("migrate.py", environ, "--modules", '["lexer"]', "--repo", str(repo))
    assert (tmp_path / "repo-migrate-lexer" / "notes.txt").exists()
    listed = jackline("resources", env=environ)
    assert "worktree/lexer" in listed.out, told(listed)
    assert "not committed" in listed.out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_says_how_it_is_run_and_has_a_test(path: Path) -> None:
    words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert f"jackline run examples/{path.name}" in words
    assert f'"{path.name}"' in Path(__file__).read_text("utf-8"), os.fspath(path)
