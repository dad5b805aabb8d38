"""Whatever is in a file, reading goes on and reports what it could not read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackline.failures import Kind
from jackline.transcripts import claude_code
from jackline.transcripts.records import LineReader
from jackline.transcripts.story import AgentStory, TranscriptEnd, TranscriptSet, time_of_epoch
from tests.transcripts.transcript_data import DATA, read_place

REAL = sorted(DATA.rglob("*.jsonl"))
ERROR = {
    "isSidechain": True,
    "agentId": "a1",
    "sessionId": "s1",
    "type": "assistant",
    "timestamp": "2026-11-15T08:26:06.539Z",
    "message": {
        "id": "m",
        "model": "<synthetic>",
        "content": [
            {"type": "text", "text": "You've hit your session limit · resets 10:26am (UTC)"}
        ],
    },
    "isApiErrorMessage": True,
    "apiErrorStatus": 429,
}
ERROR_LINE = json.dumps(ERROR).encode()


def read_bytes(folder: Path, *lines: bytes, end: bytes = b"\n") -> TranscriptSet:
    path = folder / "agent-a1.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    return read_place(path)


def only(evidence: TranscriptSet) -> AgentStory:
    (story,) = evidence.stories
    return story


def whats(evidence: TranscriptSet) -> dict[str, int]:
    return {problem.what: problem.count for problem in evidence.problems}


def test_spaces_between_json_tokens_change_nothing(tmp_path: Path) -> None:
    tight = json.dumps(ERROR, separators=(",", ":")).encode()
    assert only(read_bytes(tmp_path, tight)) == only(read_bytes(tmp_path, ERROR_LINE))


def test_broken_lines_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    evidence = read_bytes(
        tmp_path, ERROR_LINE, b"not json", b"\0\0\0", b"[]", b'{"type":7}', ERROR_LINE
    )
    assert len(only(evidence).failures) == 2
    assert whats(evidence) == {"lines that are not JSON, or not of a known shape": 4}


def test_a_half_written_last_line_is_named_as_such(tmp_path: Path) -> None:
    evidence = read_bytes(tmp_path, ERROR_LINE, ERROR_LINE[:200], end=b"")
    assert len(only(evidence).failures) == 1
    assert whats(evidence) == {"half-written last line": 1}


def test_a_whole_last_line_without_its_end_is_read(tmp_path: Path) -> None:
    evidence = read_bytes(tmp_path, ERROR_LINE, end=b"")
    assert len(only(evidence).failures) == 1
    assert not evidence.problems


def test_a_line_over_the_limit_is_named_and_what_follows_is_read(tmp_path: Path) -> None:
    huge = b'{"type":"user","message":{"content":"' + b"x" * (9 << 20) + b'"}}'
    evidence = read_bytes(tmp_path, ERROR_LINE, huge, ERROR_LINE)
    assert len(only(evidence).failures) == 2
    assert whats(evidence) == {"lines over 8 MB, skipped": 1}


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\\ud83d", b"\xe2\x82"])
def test_broken_characters_in_an_error_do_not_hide_it(tmp_path: Path, bad: bytes) -> None:
    mangled = ERROR_LINE.replace(b"session limit", b"session limit " + bad)
    (seen,) = only(read_bytes(tmp_path, mangled)).failures
    assert seen.failure.kind is Kind.ACCOUNT_QUOTA
    seen.text.encode()


def test_empty_files_and_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", b""), ("b.jsonl", b"\x89PNG\r\n\0\0"), ("c.jsonl", b"{}\n")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "notes.txt").write_text("nothing to see")
    (tmp_path / "package.json").write_text('{"name": "x"}')
    evidence = read_place(tmp_path)
    assert {t.path.name: t.what for t in evidence.problems} == {
        "a.jsonl": "an empty file",
        "b.jsonl": "not a transcript of a known kind",
        "c.jsonl": "not a transcript of a known kind",
    }


def test_a_folder_with_the_name_of_a_transcript_is_walked(tmp_path: Path) -> None:
    folder = tmp_path / "odd.jsonl"
    folder.mkdir()
    assert len(only(read_bytes(folder, ERROR_LINE)).failures) == 1
    assert len(read_place(tmp_path).stories) == 1


def test_a_file_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent-a1.jsonl").symlink_to(tmp_path / "agent-a1.jsonl")
    (what,) = whats(read_place(tmp_path))
    assert what.startswith("cannot be read: ")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "agent-a1.jsonl")
    assert list(whats(read_place(tmp_path))) == ["not a regular file, so not read"]


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "never.jsonl")
    assert list(whats(read_place(tmp_path))) == ["cannot be read: No such file or directory"]


def test_shell_output_before_a_log_does_not_hide_it(tmp_path: Path) -> None:
    log = (DATA / "a_429_one_of_three-2.1.325" / "stream.jsonl").read_bytes()
    path = tmp_path / "run.log"
    path.write_bytes(b"+ claude -p hello\nwarning: something\n" + log)
    evidence = read_place(path)
    assert len(evidence.stories) == 4
    assert whats(evidence) == {"lines that are not JSON, or not of a known shape": 2}


def test_local_commands_after_the_last_answer_do_not_make_it_unanswered(tmp_path: Path) -> None:
    answer = {
        "type": "assistant",
        "sessionId": "s1",
        "message": {
            "id": "m",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "x"}],
        },
    }
    command = {
        "type": "user",
        "sessionId": "s1",
        "message": {"role": "user", "content": "<command-name>/exit</command-name>"},
    }
    evidence = read_bytes(tmp_path, *(json.dumps(line).encode() for line in (answer, command)))
    assert only(evidence).ending is TranscriptEnd.FINISHED


def test_an_unanswered_long_tool_result_is_the_end_of_the_story(tmp_path: Path) -> None:
    result = {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"tool_use_id": "t1", "type": "tool_result", "content": "x" * 9_000}],
        },
        "timestamp": "2026-11-15T09:00:00.000Z",
        "sessionId": "s1",
    }
    line = json.dumps(result, separators=(",", ":")).encode()
    story = only(read_bytes(tmp_path, ERROR_LINE, line))
    assert story.ending is TranscriptEnd.CUT
    assert story.ended_at is not None
    assert story.ended_at.hour == 9


def stories_of(path: Path, *, shortcuts: bool) -> list[AgentStory]:
    """The stories in one transcript; without shortcuts every line is decoded as a whole."""
    written = time_of_epoch(path.stat().st_mtime)
    assert written is not None
    with path.open("rb", buffering=0) as file:
        reader = LineReader(file)
        transcript = claude_code.ClaudeTranscript(path, reader, written)
        if shortcuts:
            return transcript.read().stories
        for number, line in enumerate(reader, 1):
            transcript._add_whole(line, number)
    return transcript._findings().stories


@pytest.mark.parametrize(
    "path", [p for p in REAL if "projects" in p.parts], ids=lambda p: p.stem[:20]
)
@pytest.mark.parametrize("padding", [0, 5_000])
def test_shortcuts_change_nothing(path: Path, padding: int, tmp_path: Path) -> None:
    padded = tmp_path / path.name
    old = b'"type":"tool_result","content":"'
    padded.write_bytes(path.read_bytes().replace(old, old + b"x" * padding))
    assert stories_of(padded, shortcuts=True) == stories_of(padded, shortcuts=False)


mutations: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "cut": lambda data, at, _junk: data[:at],
    "insert": lambda data, at, junk: data[:at] + junk + data[at:],
    "replace": lambda data, at, junk: data[:at] + junk + data[at + len(junk) :],
    "swap a word": lambda data, at, junk: data.replace(b'"text"', junk, at % 7),
    "swap a number": lambda data, at, junk: data.replace(b":429", b":" + junk, 1 + at % 3),
    "swap null": lambda data, at, junk: data.replace(b"null", junk, 1 + at % 5),
}
junk_bytes = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"{}",
            b"[]",
            b"[[1]]",
            b"-1",
            b"1e999",
            b'"\\ud800"',
            b"\0\0",
            b"\n",
            b"true",
            b'{"a":[]}',
        ]
    ),
)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    path=st.sampled_from(REAL),
    mutation=st.sampled_from(sorted(mutations)),
    where=st.floats(0, 1),
    junk=junk_bytes,
)
def test_reading_never_raises(
    tmp_path: Path, path: Path, mutation: str, where: float, junk: bytes
) -> None:
    data = path.read_bytes()
    place = tmp_path / path.name
    place.write_bytes(mutations[mutation](data, int(where * len(data)), junk))
    evidence = read_place(place)
    assert evidence.files_read + len(evidence.problems) >= 1
    for story in evidence.stories:
        assert all(isinstance(second, int) for second in story.spent)
        assert story.tokens >= 0 or b"-" in junk


@given(lines=st.lists(st.binary(max_size=80), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_can_be_read(tmp_path: Path, lines: list[bytes]) -> None:
    evidence = read_bytes(tmp_path, *lines)
    assert not evidence.stories
