"""Which files are read for each kind of target."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline.errors import NothingFoundError, UnreadableError
from jackline.transcripts.reader import read
from jackline.transcripts.sources import ClientFolders, Source, find

OLD, NEW, NEWEST = 1_000_000, 2_000_000, 3_000_000
ONE = "11111111-aaaa-4000-8000-000000000000"
TWO = "22222222-bbbb-4000-8000-000000000000"
ROLLOUT = "33333333-cccc-7000-8000-000000000000"


def put(path: Path, modified: int, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (modified, modified))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    project = tmp_path / ".claude" / "projects" / "-home-user-project"
    put(project / f"{ONE}.jsonl", OLD)
    put(project / ONE / "subagents" / "agent-a1b2c3.jsonl", OLD)
    put(project / ONE / "subagents" / "agent-a1b2c3.meta.json", OLD)
    put(project / f"{TWO}.jsonl", OLD)
    run = project / TWO / "subagents" / "workflows" / "wf_77-1"
    put(run / "agent-a9d8.jsonl", NEW)
    put(run / "journal.jsonl", NEW)
    put(project / TWO / "workflows" / "wf_77-1.json", NEW)
    put(tmp_path / ".codex" / "sessions" / "2026" / "11" / "15" / rollout_name(), OLD)
    return tmp_path


def rollout_name() -> str:
    return f"rollout-2026-11-15T08-27-27-{ROLLOUT}.jsonl"


def names(sources: list[Source]) -> set[str]:
    return {source.path.name for source in sources}


def stores(home: Path) -> ClientFolders:
    return ClientFolders.of(home, {})


TWO_FILES = {f"{TWO}.jsonl", "agent-a9d8.jsonl", "journal.jsonl", "wf_77-1.json"}
ONE_FILES = {f"{ONE}.jsonl", "agent-a1b2c3.jsonl"}


def test_without_a_target_it_is_the_session_in_which_anything_changed_last(home: Path) -> None:
    assert names(find([], stores=stores(home))) == TWO_FILES


def test_a_codex_session_can_be_the_newest(home: Path) -> None:
    rollout = next(home.rglob("rollout-*"))
    os.utime(rollout, (NEWEST, NEWEST))
    assert names(find([], stores=stores(home))) == {rollout_name()}


def test_the_environment_moves_the_stores(home: Path, tmp_path: Path) -> None:
    moved = ClientFolders.of(
        tmp_path / "elsewhere",
        {"CLAUDE_CONFIG_DIR": str(home / ".claude"), "CODEX_HOME": str(home / ".codex")},
    )
    assert names(find([], stores=moved)) == TWO_FILES


def test_a_machine_without_sessions_gets_advice(tmp_path: Path) -> None:
    with pytest.raises(NothingFoundError) as caught:
        find([], stores=stores(tmp_path))
    assert "jackline why PATH" in caught.value.hint


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (ONE, ONE_FILES),
        ("1111", ONE_FILES),
        ("2222", TWO_FILES),
        (ROLLOUT[:9], {rollout_name()}),
        ("a1b2", {f"{ONE}.jsonl", "agent-a1b2c3.jsonl"}),
        ("wf_77", TWO_FILES),
    ],
)
def test_a_session_an_agent_or_a_run_is_found_by_the_beginning_of_its_id(
    home: Path, word: str, expected: set[str]
) -> None:
    assert names(find([word], stores=stores(home))) == expected


def test_an_unknown_id_says_where_was_looked(home: Path) -> None:
    with pytest.raises(UnreadableError) as caught:
        find(["99999"], stores=stores(home))
    assert str(home / ".claude") in caught.value.hint


def test_an_id_that_fits_several_sessions_asks_for_more_of_it(home: Path) -> None:
    put(home / ".claude" / "projects" / "-other" / "1111ffff.jsonl", OLD)
    with pytest.raises(UnreadableError) as caught:
        find(["1111"], stores=stores(home))
    assert "2 ids start with 1111" in caught.value.message
    assert caught.value.hint == "Write more of the id."


def test_a_path_that_does_not_exist_is_a_usage_error(home: Path) -> None:
    for word in ("missing.jsonl", "some/where"):
        with pytest.raises(UnreadableError):
            find([word], stores=stores(home))


def test_since_gives_whole_sessions_in_which_anything_is_newer(home: Path) -> None:
    since = datetime.fromtimestamp(NEW - 10, UTC)
    assert names(find([], stores=stores(home), since=since)) == TWO_FILES
    assert find([], stores=stores(home), since=datetime.fromtimestamp(NEWEST, UTC)) == []


def test_a_main_transcript_brings_its_agents_along(home: Path) -> None:
    main = next(home.rglob(f"{ONE}.jsonl"))
    assert names(find([str(main)], stores=stores(home))) == ONE_FILES


def test_a_session_folder_brings_its_main_transcript_along(home: Path) -> None:
    folder = next(home.rglob(f"{ONE}.jsonl")).with_suffix("")
    assert names(find([str(folder)], stores=stores(home))) == ONE_FILES


def test_a_folder_of_agents_is_just_that(home: Path) -> None:
    folder = next(home.rglob(f"{ONE}.jsonl")).with_suffix("") / "subagents"
    assert names(find([str(folder)], stores=stores(home))) == {"agent-a1b2c3.jsonl"}


def test_agents_that_older_clients_saved_beside_the_main_file_belong_to_it(home: Path) -> None:
    main = next(home.rglob(f"{ONE}.jsonl"))
    put(main.parent / "agent-0ld1.jsonl", OLD, f'{{"sessionId":"{ONE}"}}\n')
    put(main.parent / "agent-0ld2.jsonl", OLD, f'{{"sessionId":"{TWO}"}}\n')
    assert names(find([ONE], stores=stores(home))) == {*ONE_FILES, "agent-0ld1.jsonl"}


def test_each_real_file_is_read_once_whichever_links_lead_to_it(tmp_path: Path) -> None:
    real = put(tmp_path / "a" / "real.jsonl", OLD)
    (tmp_path / "a" / "link.jsonl").symlink_to(real)
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    found = find([str(tmp_path), str(real)], stores=stores(tmp_path))
    assert len(found) == 1


def test_a_loop_of_links_is_named_and_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "deep" / "er" / "real.jsonl", OLD)
    (tmp_path / "deep" / "er" / "back").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.jsonl").symlink_to(tmp_path / "self.jsonl")
    found = find([str(tmp_path)], stores=stores(tmp_path))
    assert names(found) == {"real.jsonl", "back", "self.jsonl"}
    assert {s.path.name for s in found if s.problem} == {"back", "self.jsonl"}
    assert {t.path.name for t in read(found).problems} >= {"back", "self.jsonl"}


def test_a_folder_without_transcripts_is_a_problem_not_an_error(tmp_path: Path) -> None:
    put(tmp_path / "photo.png", OLD)
    evidence = read(find([str(tmp_path)], stores=stores(tmp_path)))
    assert [problem.what for problem in evidence.problems] == ["a folder without transcripts"]
    assert evidence.files_read == 0
