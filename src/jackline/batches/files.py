"""The tools `read`, `write`, `edit` and `search` for files of the working folder.

Rules: (1) no path leaves the folder; (2) a file is replaced whole or not at all, and its
permissions stay; (3) two edits of one process never overwrite each other; (4) an answer says what
was left out and how to get it; (5) a search needs no other program and runs in a process of its
own, so that a pattern that never ends is stopped like any command and its hits so far remain; no
hit is a normal answer; (6) tools of flows write no file by which somebody else's program would be
started: protected are git folders, in any layout, with what would make one of a folder, and the
settings of agents' programs and of Jackline; a path is judged below the agent's folder, with all
links followed, and what cannot be read is protected; a flow that must write there passes `shell`,
or its own tool.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
from base64 import b64encode
from io import BytesIO
from itertools import islice
from pathlib import Path
from uuid import uuid4

from pydantic import Field

from jackline.batches import search_worker
from jackline.batches.arguments import Arguments, inside
from jackline.batches.permission import is_in_git, is_in_settings
from jackline.batches.policy import names_git, names_settings
from jackline.batches.processes import FinishedCommand, ProcessCommand, run_process, without_secrets
from jackline.batches.threads import SharedPlaces, in_own_thread
from jackline.batches.tool import JsonObject, Tool, ToolContext, ToolFailedError, ToolOutput
from jackline.foreign_repositories.git_folders import is_git_layout

_MOST_LINES = 2_000
_LONGEST_LINE = 2_000
_LONGEST_TEXT = 500_000
"""Characters; what comes after is another call's."""
_LARGEST = 20_000_000
_LARGEST_IMAGE = 3_750_000
"""Bytes; five million characters once encoded, which is what a model is let see."""
_IMAGES = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}

# Over all batches: each read holds a whole file in memory for a moment.
_reading = SharedPlaces(4)
_one_change_at_a_time = threading.Lock()


class ReadArguments(Arguments):
    """What `read` takes."""

    path: str = Field(description="A file inside the working folder.")
    offset: int = Field(1, ge=1, description="The first line to give.")
    limit: int = Field(_MOST_LINES, ge=1, le=_MOST_LINES, description="How many lines to give.")


class WriteArguments(Arguments):
    """What `write` takes."""

    path: str = Field(description="A file inside the working folder; missing folders are made.")
    content: str = Field(description="The whole new content.")


class EditArguments(Arguments):
    """What `edit` takes."""

    path: str = Field(description="A file inside the working folder.")
    old: str = Field(min_length=1, description="The text to replace, exactly as in the file.")
    new: str = Field(description="The text to put in its place.")
    every: bool = Field(False, description="Replace every occurrence instead of the only one.")


class ReadTool:
    """Gives lines of a file, numbered; images as images."""

    name = "read"
    description = (
        "Reads a file of the working folder. Lines come with their numbers and a tab, which are "
        "not part of the file. Images are shown."
    )
    input_schema = ReadArguments.json_schema()

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Reading changes nothing."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """The lines asked for."""
        args = ReadArguments.checked(arguments)
        async with _reading.here():
            return await in_own_thread(lambda: self._read(args, context.cwd), "jackline-read")

    def _read(self, args: ReadArguments, folder: Path) -> ToolOutput:
        path = inside(folder, args.path)
        content = _content(path, args.path)
        kind = _IMAGES.get(path.suffix.lower())
        if kind is not None and len(content) <= _LARGEST_IMAGE:
            source = {"type": "base64", "media_type": kind, "data": b64encode(content).decode()}
            return ToolOutput(f"{args.path}: an image", ({"type": "image", "source": source},))
        if b"\0" in content:
            return ToolOutput(f"({args.path} is binary, {len(content):,} bytes, not shown)")
        content = content.removesuffix(b"\n")
        if not content:
            return ToolOutput(f"({args.path} is empty)")
        # By line feeds alone, as grep, compilers and editors count. One line at a time: a list of
        # all of them would take many times the file's size.
        many = content.count(b"\n") + 1
        first = args.offset - 1
        part = [
            line.removesuffix(b"\n").decode("utf-8", "replace")
            for line in islice(BytesIO(content), first, first + args.limit)
        ]
        if first == many - 1 and not part:
            part = [""]  # a last line that is empty
        if not part:
            raise ToolFailedError(f"{args.path!r} has only {many:,} lines")
        last = first + len(part)
        if last == many - 1 and len(part) < args.limit:
            part.append("")
            last += 1
        text = ""
        for number, ended in enumerate(part, args.offset):
            if len(text) > _LONGEST_TEXT:
                last = number - 1
                break
            line = ended.removesuffix("\r")
            if len(line) > _LONGEST_LINE:
                line = f"{line[:_LONGEST_LINE]}… (line cut)"
            text += f"{number:>6}\t{line}\n"
        if last < many:
            text += f"(lines {first + 1:,} to {last:,} of {many:,}; go on with offset={last + 1})\n"
        return ToolOutput(text)


class WriteTool:
    """Replaces or makes a whole file."""

    name = "write"
    description = "Writes a whole file inside the working folder, replacing what was there."
    input_schema = WriteArguments.json_schema()

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Writing is never harmless."""
        return False

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What was written, in a sentence."""
        args = WriteArguments.checked(arguments)
        return await in_own_thread(lambda: self._write(args, context.cwd), "jackline-write")

    def _write(self, args: WriteArguments, folder: Path) -> ToolOutput:
        path = inside(folder, args.path)
        with _one_change_at_a_time:
            existed = path.exists()
            _replace(path, args.content.encode("utf-8", "surrogatepass"), args.path)
        lines = len(args.content.splitlines())
        did = "replaced" if existed else "made"
        return ToolOutput(f"{did} {path.relative_to(folder.resolve()).as_posix()}, {lines:,} lines")


class EditTool:
    """Replaces an exact text in a file."""

    name = "edit"
    description = (
        "Replaces a text in a file of the working folder. The text must be there exactly once, "
        "unless `every` is true."
    )
    input_schema = EditArguments.json_schema()

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Editing is never harmless."""
        return False

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What was replaced, in a sentence."""
        args = EditArguments.checked(arguments)
        return await in_own_thread(lambda: self._edit(args, context.cwd), "jackline-edit")

    def _edit(self, args: EditArguments, folder: Path) -> ToolOutput:
        path = inside(folder, args.path)
        with _one_change_at_a_time:
            # Bytes, not text: what is not touched stays as it is, line ends and odd bytes included.
            before = _content(path, args.path)
            old, new = args.old.encode(), args.new.encode()
            if b"\r\n" in before and b"\r\n" not in old:
                old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
            count = before.count(old)
            if count == 0:
                raise ToolFailedError(
                    f"the text to replace is not in {args.path!r}; read the file and give it"
                    " exactly",
                    ended_by="not found",
                )
            if count > 1 and not args.every:
                raise ToolFailedError(
                    f"the text to replace is {count} times in {args.path!r}; give more of its "
                    "surroundings, or `every`",
                    ended_by="not unique",
                )
            if len(before) + count * (len(new) - len(old)) > _LARGEST:
                raise ToolFailedError(
                    f"{args.path!r} would have more than {_LARGEST:,} bytes", ended_by="too large"
                )
            _replace(path, before.replace(old, new), args.path)
        shown = path.relative_to(folder.resolve()).as_posix()
        return ToolOutput(f"replaced {count} place{'s' if count > 1 else ''} in {shown}")


def _content(path: Path, named: str) -> bytes:
    """The bytes of an ordinary file; ToolFailedError for whatever else is there."""
    try:
        found = path.stat()
        # Asked before opening: a pipe would keep us waiting for a writer.
        if stat.S_ISDIR(found.st_mode):
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name for entry in path.iterdir()
            )
            listed = ", ".join(names[:50]) or "nothing"
            raise ToolFailedError(f"{named!r} is a folder; it holds {listed}", ended_by="a folder")
        if not stat.S_ISREG(found.st_mode):
            raise ToolFailedError(f"{named!r} is not an ordinary file", ended_by="no file")
        if found.st_size > _LARGEST:
            size = f"{found.st_size:,} bytes"
            raise ToolFailedError(
                f"{named!r} has {size}, too many to read whole; search it instead",
                ended_by="too large",
            )
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        words = f"{named!r} cannot be read: {why}"
        raise ToolFailedError(words, ended_by=why.lower()) from error


def _replace(path: Path, content: bytes, named: str) -> None:
    """Put a new file in the place of the old one, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ToolFailedError(f"{named!r} is a folder", ended_by="a folder")
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        beside = path.with_name(f".{path.name[:100]}.{uuid4().hex}")
        try:
            # Opened by hand and not by `tempfile`, so that the user's umask holds for new files.
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                beside.chmod(mode)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        words = f"{named!r} cannot be written: {why}"
        raise ToolFailedError(words, ended_by=why.lower()) from error


AT_ONCE = 4
"""So many processes one batch has at most."""
AT_ONCE_IN_ALL = 16
_MOST = 200
_LONGEST = 2_000
_LARGEST_SEARCHED = 5_000_000
_SECONDS = 60.0
_COMPILE_SECONDS = 5.0
_LAST = "\x1e"

_searching = SharedPlaces(AT_ONCE_IN_ALL)


class SearchArguments(Arguments):
    """What `search` takes."""

    pattern: str = Field(
        min_length=1, max_length=_LONGEST, description="A regular expression, matched line by line."
    )
    path: str = Field(".", description="A file or folder inside the working folder.")
    files: str = Field(
        "", max_length=_LONGEST, description="Only files whose names fit, such as '*.py'."
    )
    any_case: bool = Field(False, description="Whether capital and small letters are the same.")
    most: int = Field(_MOST, ge=1, le=2_000, description="How many lines to give at most.")


def _existing(folder: Path, named: str) -> tuple[Path, Path]:
    """The folder and what was named inside of it, both resolved."""
    root = inside(folder, named)
    if not os.path.exists(root):  # noqa: PTH110 -- Path's own raises for names that are too long
        raise ToolFailedError(f"there is no {named!r}", ended_by="no such path")
    return folder.resolve(), root


class SearchTool:
    """Gives matching lines as `path:line:text`; one is made for each batch."""

    name = "search"
    description = (
        "Searches files of the working folder for a regular expression (Python's) and gives the "
        "matching lines as path:line:text. Version control, caches and binary files are left out."
    )
    input_schema = SearchArguments.json_schema()

    def __init__(
        self, *, seconds: float = _SECONDS, compile_seconds: float = _COMPILE_SECONDS
    ) -> None:
        self._seconds = seconds
        self._compile_seconds = compile_seconds
        self._places = asyncio.Semaphore(AT_ONCE)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Searching changes nothing."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """The matching lines."""
        args = SearchArguments.checked(arguments)
        cwd, root = await in_own_thread(
            lambda: _existing(context.cwd, args.path), "jackline-search"
        )
        question = {
            "pattern": args.pattern,
            "compile_seconds": self._compile_seconds,
            "path": root.relative_to(cwd).as_posix(),
            "files": args.files,
            "any_case": args.any_case,
            "most": args.most,
            "largest": _LARGEST_SEARCHED,
        }
        command = ProcessCommand(
            argv=(sys.executable, "-I", "-S", "-W", "ignore", str(search_worker.__file__)),
            cwd=cwd,
            environ=without_secrets(os.environ),
            seconds=self._seconds,
            limit=1_000_000,
            stdin=json.dumps(question).encode(),
        )
        # First its own: the batches' queue for the others is then short, and each has its turn.
        async with self._places, _searching.here():
            # Not passed on as it comes: the last line is for us alone, and hits are short.
            return self._output(await run_process(command), args.most)

    def _output(self, finished: FinishedCommand, most: int) -> ToolOutput:
        hits, _, last = finished.output.rpartition(_LAST)
        if finished.timed_out:
            raise ToolFailedError(
                "timed out; use a simpler pattern or fewer files",
                output=finished.output,
                ended_by="timed out",
            )
        if finished.exit_code != 0 or not last:
            raise ToolFailedError(
                "the search ended before its time", output=hits, exit_code=finished.exit_code
            )
        summary = json.loads(last)
        if "bad_pattern" in summary:
            raise ToolFailedError(
                f"the pattern is no regular expression: {summary['bad_pattern']}",
                ended_by="bad pattern",
            )
        notes = []
        if not summary["found"]:
            notes.append(f"no line of {summary['files']:,} files matches")
        if summary["full"]:
            notes.append(f"only the first {most:,}; narrow the pattern or name `files` for others")
        if summary["too_large"]:
            notes.append(f"left out, being too large: {', '.join(summary['too_large'])}")
        return ToolOutput(hits + (f"({'; '.join(notes)})\n" if notes else ""))


class ProtectedFilesTool:
    """A tool that writes to `path`, and to no protected file."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.input_schema = tool.input_schema

    def read_only(self, arguments: JsonObject) -> bool:
        """As the tool itself."""
        return self._tool.read_only(arguments)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What the tool gives; ToolFailedError for a protected file."""
        path = arguments.get("path")
        if isinstance(path, str):
            await in_own_thread(
                lambda: _refuse_protected(context.cwd, path), "jackline-protected-files"
            )
        return await self._tool.run(arguments, context)


def _refuse_protected(folder: Path, name: str) -> None:
    path = inside(folder, name)
    root = folder.resolve()
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:count]) for count in range(len(parts))]
    if any(map(names_settings, (name, *parts))) or is_in_settings(path, root):
        what = "settings that programs follow"
    elif (
        any(map(names_git, (name, *parts)))
        or is_in_git(path, root)
        or any(map(_becomes_git_folder, below, parts))
    ):
        what = "a git folder, whose settings git follows"
    else:
        return
    raise ToolFailedError(
        f"{name!r} is protected: it is part of {what}; name another file", ended_by="protected"
    )


def _becomes_git_folder(folder: Path, name: str) -> bool:
    """Whether the folder is a repository's own as soon as there is something of this name."""
    try:
        names = {each.lower() for each in os.listdir(folder)}  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    # Some file systems ignore case, or what comes after a name.
    return is_git_layout(names | {name.lower().partition(":")[0].rstrip(". ")})
