"""What the pages point to is there, and what they tell people to type exists."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from jackline.cli.main import jackline
from tests.config.places import Machine
from tests.docs.pages import DOCS, FENCE, ROOT, all_pages, shell_lines

LINK = re.compile(r"\]\(([^)\s]+)\)")
# Words of the shell and programs that a page may ask for beside our own.
OTHERS = frozenset(
    {"cat", "cd", "curl", "eval", "export", "kill", "mkdir", "pip", "python", "wait", "make", "git"}
    | {"aider", "codex", "opencode", "pipx", "uv"}
)
NAMES = [str(page.relative_to(ROOT)) for page in all_pages()]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_within_the_project_leads_somewhere(name: str) -> None:
    page = ROOT / name
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if ":" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), f"{name} points to {target}"
        if anchor:
            assert anchor in anchors(found), f"{name} points to {target}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_shell_blocks_are_ours_with_flags_that_exist_or_known_ones(name: str) -> None:
    for line in shell_lines((ROOT / name).read_text("utf-8")):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "jackline" or words[0] in OTHERS, f"{name}: {line}"
        if words[0] == "jackline":
            fault = fault_of(words[1:])
            assert fault is None, f"{name}: {line}: {fault}"


def fault_of(words: list[str]) -> str | None:
    """Why the command line would not be understood; None when it would be."""
    command: click.Command = jackline
    context = click.Context(jackline, info_name="jackline")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no verb {rest[0]}"
        command, rest = found, rest[1:]
    if any(each.type is click.UNPROCESSED for each in command.params):
        return None  # the rest of the line is for another program, or for a flow
    known = {name for each in command.params for name in each.opts} | {"--help", "-h", "--version"}
    flags = [word.partition("=")[0] for word in _before_dashes(rest) if word.startswith("-")]
    wrong = [flag for flag in flags if flag not in known]
    return f"there is no {wrong[0]}" if wrong else None


def _before_dashes(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    assert fault_of(["stauts"]) == "there is no verb stauts"
    assert fault_of(["upstream", "use", "aws", "--fro", "30m"]) == "there is no --fro"
    assert fault_of(["upstream", "use", "aws", "--for", "30m"]) is None


@pytest.mark.parametrize("name", [each for each in NAMES if each.startswith("docs/")])
def test_settings_in_toml_blocks_are_settings(name: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for language, body in FENCE.findall((ROOT / name).read_text("utf-8")):
        if language == "toml":
            machine.write_own(body)
            machine.load(with_secrets=False)


@pytest.mark.parametrize("name", [each for each in NAMES if each.endswith(".md")])
def test_python_blocks_can_be_read(name: str) -> None:
    for language, body in FENCE.findall((ROOT / name).read_text("utf-8")):
        if language == "python":
            compile(body, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # as in excerpts


def test_the_map_and_the_index_for_models_name_every_page() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    pages = {page for page in pages if not page.startswith("decisions/")} - {"index.md"}
    told = set(LINK.findall((DOCS / "index.md").read_text("utf-8")))
    assert pages - told == set()
    for_models = set(LINK.findall((ROOT / "llms.txt").read_text("utf-8")))
    assert {f"docs/{page}" for page in pages} - for_models == set()


def test_the_picture_of_the_readme_is_small_and_whole() -> None:
    picture = DOCS / "timeline.svg"
    assert picture.stat().st_size <= 100_000
    words = re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text("utf-8"))
    assert picture.read_text("utf-8").rstrip().endswith("</svg>")
    assert any(
        re.fullmatch(r"through jackline up: (\d+) of \1 agents finish", each) for each in words
    )
