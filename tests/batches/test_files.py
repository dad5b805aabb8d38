"""Files: nothing leaves the folder, replacing is whole, searching and reading are bounded."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackline import event_loop
from jackline.batches import files as search
from jackline.batches.arguments import inside
from jackline.batches.batch import run_batch
from jackline.batches.files import EditTool, ReadTool, SearchTool, WriteTool
from jackline.batches.processes import FinishedCommand, ProcessCommand
from jackline.batches.tool import (
    BatchCall,
    CallResult,
    JsonObject,
    Tool,
    ToolContext,
    ToolFailedError,
)


def use(tool: Tool, folder: Path, **arguments: object) -> CallResult:
    call = BatchCall("0", tool, arguments)
    return event_loop.run(run_batch([call], context=ToolContext(folder)))["0"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    inner = tmp_path / "project"
    inner.mkdir()
    (inner / "way-out").symlink_to(tmp_path)
    (inner / "link").symlink_to(tmp_path / "secret.txt")
    (inner / "a.txt").write_text("one\ntwo\nthree\n")
    (inner / "inner-link").symlink_to(inner / "a.txt")
    return inner


ESCAPES = [
    "../secret.txt",
    "way-out/secret.txt",
    "link",
    "/etc/passwd",
    "~/x",
    "a/../../secret.txt",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        (ReadTool(), {}),
        (WriteTool(), {"content": "overwritten"}),
        (EditTool(), {"old": "secret", "new": "overwritten"}),
        (SearchTool(), {"pattern": "secret"}),
    ],
)
def test_no_path_leads_out_of_the_folder(
    folder: Path, tool: Tool, path: str, more: JsonObject
) -> None:
    result = use(tool, folder, path=path, **more)
    assert not result.ok
    assert "outside the working folder" in (result.error or "")
    assert "secret" not in result.text
    assert (folder.parent / "secret.txt").read_text() == "secret"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["..", ".", "way-out", "link", "a", "", "/", "~"]), max_size=6))
def test_whatever_is_put_together_stays_inside_or_is_refused(
    folder: Path, parts: list[str]
) -> None:
    try:
        meant = inside(folder, "/".join(parts))
    except ToolFailedError:
        return
    assert Path(os.path.realpath(meant)).is_relative_to(os.path.realpath(folder))


def test_nul_and_endless_links_are_refused_as_paths(folder: Path) -> None:
    (folder / "round").symlink_to(folder / "round")
    for path in ("a\0b", "round"):
        assert not use(ReadTool(), folder, path=path).ok


def test_reading_gives_numbered_lines_and_says_how_to_go_on(folder: Path) -> None:
    result = use(ReadTool(), folder, path="a.txt", offset=2, limit=1)
    assert result.text == "     2\ttwo\n(lines 2 to 2 of 3; go on with offset=3)\n"
    assert use(ReadTool(), folder, path="inner-link").text.startswith("     1\tone\n")


def test_reading_what_is_no_text_says_what_it_is(folder: Path) -> None:
    (folder / "empty").write_text("")
    (folder / "binary").write_bytes(b"\0\1")
    (folder / "dot.png").write_bytes(b"\x89PNG")
    os.mkfifo(folder / "pipe")
    assert use(ReadTool(), folder, path="empty").text == "(empty is empty)"
    assert use(ReadTool(), folder, path="binary").text == "(binary is binary, 2 bytes, not shown)"
    assert use(ReadTool(), folder, path="dot.png").blocks[0]["type"] == "image"
    assert use(ReadTool(), folder, path="pipe").error == "'pipe' is not an ordinary file"
    assert "is a folder; it holds" in (use(ReadTool(), folder, path=".").error or "")
    assert (
        use(ReadTool(), folder, path="no").error == "'no' cannot be read: No such file or directory"
    )
    assert use(ReadTool(), folder, path="a.txt", offset=9).error == "'a.txt' has only 3 lines"


def test_writing_replaces_whole_keeps_permissions_and_leaves_no_other_file(folder: Path) -> None:
    script = folder / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    before = set(folder.iterdir())
    assert (
        use(WriteTool(), folder, path="run.sh", content="new\n").text == "replaced run.sh, 1 lines"
    )
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new\n", 0o750)
    assert set(folder.iterdir()) == before
    assert use(WriteTool(), folder, path="x/y/z.txt", content="").ok
    assert (folder / "x" / "y" / "z.txt").read_text() == ""
    assert use(WriteTool(), folder, path="x", content="").error == "'x' is a folder"


def test_editing_wants_the_text_exactly_once(folder: Path) -> None:
    path = folder / "b.txt"
    path.write_bytes(b"one\r\ntwo\r\none\r\n\xff")
    assert "is 2 times in 'b.txt'" in (
        use(EditTool(), folder, path="b.txt", old="one", new="").error or ""
    )
    assert "is not in 'b.txt'" in (
        use(EditTool(), folder, path="b.txt", old="four", new="").error or ""
    )
    assert use(EditTool(), folder, path="b.txt", old="two\none", new="2\n1").ok
    assert path.read_bytes() == b"one\r\n2\r\n1\r\n\xff"
    assert use(EditTool(), folder, path="b.txt", old="\n", new="", every=True).ok


def test_edits_of_one_file_side_by_side_all_arrive(folder: Path) -> None:
    (folder / "many").write_text("".join(f"<{number}>\n" for number in range(30)))
    calls = [
        BatchCall(str(n), EditTool(), {"path": "many", "old": f"<{n}>", "new": f"[{n}]"})
        for n in range(30)
    ]
    report = event_loop.run(run_batch(calls, context=ToolContext(folder), limit=30))
    assert report.ok
    assert (folder / "many").read_text() == "".join(f"[{number}]\n" for number in range(30))


def test_searching_gives_path_line_and_text_and_skips_what_is_not_asked(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "b.py").write_text("x = 'TWO'\r\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "c").write_text("two")
    (folder / "bin").write_bytes(b"two\0")
    assert use(SearchTool(), folder, pattern="two").text == "a.txt:2:two\n"
    every = use(SearchTool(), folder, pattern="^t|TWO", any_case=True).text
    assert every == "a.txt:2:two\na.txt:3:three\nsub/b.py:1:x = 'TWO'\n"
    assert use(SearchTool(), folder, pattern="TWO", files="*.py").text == "sub/b.py:1:x = 'TWO'\n"
    assert use(SearchTool(), folder, pattern="two", path="a.txt").text == "a.txt:2:two\n"
    none = use(SearchTool(), folder, pattern="nowhere")
    assert none.ok
    assert re.fullmatch(r"\(no line of \d files matches\)\n", none.text)
    first = use(SearchTool(), folder, pattern="t", most=1).text
    assert first.startswith("a.txt:2:two\n(only the first 1;")
    assert "no regular expression" in (use(SearchTool(), folder, pattern="(").error or "")


def test_a_pattern_that_never_ends_is_ended_and_holds_up_nobody(folder: Path) -> None:
    (folder / "evil.txt").write_text("a" * 5_000 + "!\n")
    calls = [
        BatchCall("evil", SearchTool(seconds=1), {"pattern": "(a+)+$"}),
        BatchCall("good", SearchTool(), {"pattern": "three"}),
    ]
    report = event_loop.run(run_batch(calls, context=ToolContext(folder)))
    assert report["evil"].ended_by == "timed out"
    assert report["good"].text == "a.txt:3:three\n"


@pytest.mark.parametrize("pattern", ["(" * 1_000, "a{99999999999}", "(" * 900 + ")" * 900, "[z-a]"])
def test_whatever_is_no_regular_expression_is_told_as_that(pattern: str, folder: Path) -> None:
    result = use(SearchTool(), folder, pattern=pattern)
    assert result.ended_by == "bad pattern", result.error
    assert "the pattern is no regular expression" in (result.error or "")


def test_a_pattern_is_compiled_in_the_process_that_can_be_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling some takes seconds, in which nothing else would run here."""
    compiled: list[object] = []
    plain = re.compile

    def noted(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return plain(pattern, flags)

    monkeypatch.setattr(re, "compile", noted)
    assert use(SearchTool(), folder, pattern="t[w]o").text == "a.txt:2:two\n"
    assert "t[w]o" not in compiled


def test_a_pattern_that_takes_too_long_to_compile_is_a_bad_one(folder: Path) -> None:
    slow = "(?i)" + "[\u0100-\U0001ffff]" * 390
    result = use(SearchTool(compile_seconds=0.1), folder, pattern=slow)
    assert (result.ended_by, result.text) == ("bad pattern", "")
    assert "takes too long to compile" in (result.error or "")


def test_what_a_search_is_asked_has_a_largest_size(folder: Path) -> None:
    for name in ("pattern", "files"):
        asked = {"pattern": "x", name: "a" * 2_001}
        result = use(SearchTool(), folder, **asked)
        assert result.ended_by == "bad arguments"
        assert name in (result.error or "")


def test_a_warning_about_a_pattern_is_no_hit(folder: Path) -> None:
    assert use(SearchTool(), folder, pattern="[[t]wo").text == "a.txt:2:two\n"


def test_a_batch_of_searches_without_end_leaves_room_for_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    most = 0

    async def main() -> None:
        release = asyncio.Event()
        filled = asyncio.Event()

        async def run(command: ProcessCommand) -> FinishedCommand:
            nonlocal most
            pattern = json.loads(command.stdin or b"")["pattern"]
            running.append(pattern)
            most = max(most, len(running))
            if running.count("evil") == search.AT_ONCE:
                filled.set()
            if pattern == "evil":
                await release.wait()
            running.remove(pattern)
            return FinishedCommand(
                0, '\x1e{"found": 0, "files": 1, "full": false, "too_large": []}\n'
            )

        monkeypatch.setattr(search, "run_process", run)
        context = ToolContext(folder)
        tool = SearchTool()
        calls = [BatchCall(str(number), tool, {"pattern": "evil"}) for number in range(200)]
        evil = asyncio.ensure_future(run_batch(calls, context=context))
        async with asyncio.timeout(20):
            await filled.wait()
        good = await run_batch([BatchCall("0", SearchTool(), {"pattern": "good"})], context=context)
        assert good.ok
        assert most == search.AT_ONCE + 1
        others = [
            asyncio.ensure_future(
                run_batch([BatchCall("0", SearchTool(), {"pattern": "evil"})], context=context)
            )
            for _ in range(100)
        ]
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(running) == search.AT_ONCE_IN_ALL
        release.set()
        reports = [await evil, *[await each for each in others]]
        assert all(report.ok for report in reports)

    event_loop.run(main())
    assert most == search.AT_ONCE_IN_ALL


def test_a_cancelled_read_of_many_leaves_the_loop_usable(folder: Path) -> None:
    async def main() -> None:
        calls = [BatchCall(str(n), ReadTool(), {"path": "a.txt"}) for n in range(50)]
        batch = asyncio.ensure_future(run_batch(calls, context=ToolContext(folder), limit=50))
        await asyncio.sleep(0)
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        assert (await run_batch(calls, context=ToolContext(folder))).ok

    event_loop.run(main())


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b"\n")), st.data())
def test_reading_a_part_gives_the_lines_of_the_whole(raw: bytes, data: st.DataObject) -> None:
    lines = raw.decode("utf-8", "replace").removesuffix("\n").split("\n")
    first = data.draw(st.integers(1, len(lines) + 1))
    limit = data.draw(st.integers(1, len(lines) + 1))
    with TemporaryDirectory() as name:
        Path(name, "some.txt").write_bytes(raw)
        result = use(ReadTool(), Path(name), path="some.txt", offset=first, limit=limit)
    if not raw.removesuffix(b"\n"):
        assert "is empty" in result.text
    elif first > len(lines):
        assert f"has only {len(lines):,} lines" in str(result.error)
    else:
        plain = [line.removesuffix("\r") for line in lines]
        shown = [f"{n:>6}\t{line}\n" for n, line in enumerate(plain, 1)][first - 1 :][:limit]
        assert result.text.startswith("".join(shown))
        assert ("go on with" in result.text) == (first - 1 + limit < len(lines))


def test_a_file_of_line_ends_takes_no_more_memory_than_its_size_a_few_times(folder: Path) -> None:
    (folder / "ends.txt").write_bytes(b"aa\n" * 1_000_000)
    tracemalloc.start()
    try:
        assert "aa" in use(ReadTool(), folder, path="ends.txt", limit=1).text
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5 * 3_000_000


def test_an_edit_makes_no_file_that_is_too_large(folder: Path) -> None:
    (folder / "many.txt").write_text("a" * 10_000)
    result = use(EditTool(), folder, path="many.txt", old="a", new="b" * 10_000, every=True)
    assert not result.ok
    assert "would have more than" in str(result.error)
    assert (folder / "many.txt").read_text() == "a" * 10_000
