"""The files of the Claude Code plugin for this Jackline, and the folder that holds exactly them.

Rules: (1) the files are pure: text in, text out; the copy in the repository is made by the same
function for the plain command `jackline`, and a test compares the two; (2) every hook has a time
limit, and none can block the client; a hook is HTTP where a stopped service costs neither time nor
a message on the user's screen, and a command everywhere else (docs/decisions/041); (3) the client
runs what is in the folder: one with anything more, less or else (links, pipes, files that others
could write) is replaced whole, never repaired; the new one is built under a random name and moved
into place; (4) removal follows no links. The parent folder must be private
(private_files.make_private_folder).
Not here: installing it (cli/client_setup.py), what hooks answer (hooks/).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jackline import __version__
from jackline.private_files import own_number, read_private, write_private

PLUGIN = "jackline"
MARKETPLACE = "jackline"
FOLDER = "plugin"
_HOOK_SECONDS = 5
ABOUT: Mapping[str, str] = {
    ".claude-plugin/marketplace.json": "where the client finds the plugin",
    ".claude-plugin/plugin.json": "its name and version",
    ".mcp.json": "the tools: agent, agents, batch, why, status and more",
    "hooks/hooks.json": "the truth about sub-agents that died",
    "commands/why.md": "/jackline:why",
    "commands/status.md": "/jackline:status",
    "commands/resume.md": "/jackline:resume",
    "README.md": "what it is",
}
"""What each file is for, in a few words."""
_DESCRIPTION = (
    "Sub-agents that tell the truth when they die and can be resumed, batches that do not cascade,"
    " and the verdict on limits and outages."
)

_WHY = (
    "Call the Jackline tool `why` (with id `$ARGUMENTS` if one is given). Tell me in a few lines"
    " what happened, what is finished, and the exact way to resume."
)
_STATUS = (
    "Call the Jackline tool `status` and tell me its first sentence, then only what needs my"
    " attention: what waits, for what, until when."
)
_RESUME = (
    "Continue what was cut off. With an id (`$ARGUMENTS`), call the Jackline tool `agent` with"
    " continue_from_task_id set to it (or resume, if it is a session id). Without one, call `why`"
    " first, list what can be resumed, and ask me which. If a limit has not reset yet, say when it"
    " will, and offer to run it in the background so that it goes on by itself."
)
_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "why": ("Find out what stopped a session, workflow or sub-agent", "[id]", _WHY),
    "status": ("How model calls get through: limits, walls, outages, forecast", "", _STATUS),
    "resume": ("Continue a sub-agent or session that was cut off", "[id]", _RESUME),
}
_README = """\
# Jackline for Claude Code

Jackline keeps agents working through rate limits, quota walls and outages. This plugin brings it
into Claude Code:

- an `agent` tool whose results say `terminated_by`, and that goes on where it was cut off
  (`resume`, `continue_from_task_id`);
- a `batch` tool whose calls do not cancel each other;
- hooks that tell a parent the truth when a sub-agent died of an API error;
- `/jackline:why`, `/jackline:status` and `/jackline:resume`.

It needs the `jackline` command: the tools and hooks ask its service on this machine, and start it
when a tool is first used. When it does not run, Claude Code works as without the plugin.
"""


@dataclass(frozen=True, slots=True)
class HttpHook:
    """Where the service takes hooks over HTTP, and the header by which it knows them."""

    url: str
    header: str
    token: str

    def __repr__(self) -> str:
        return f"<HttpHook {self.url}>"


def plugin_files(command: Sequence[str], http: HttpHook | None = None) -> dict[str, str]:
    """Every file of the plugin by its path inside of the plugin's folder.

    Without `http` (nobody knows on which port the service will be) every hook is a command.
    """
    manifest = {
        "name": PLUGIN,
        "version": __version__,
        "description": _DESCRIPTION,
        "author": {"name": "The Jackline authors"},
        "license": "Apache-2.0",
    }
    files = {
        "README.md": _README,
        ".claude-plugin/plugin.json": _json(manifest),
        ".mcp.json": _json(
            {"mcpServers": {PLUGIN: {"command": command[0], "args": [*command[1:], "mcp"]}}}
        ),
        "hooks/hooks.json": _json(_hooks(shlex.join([*command, "hook"]), http)),
    }
    for name, (description, hint, words) in _COMMANDS.items():
        head = [f"description: {json.dumps(description)}"] + (
            [f'argument-hint: "{hint}"'] if hint else []
        )
        files[f"commands/{name}.md"] = "\n".join(["---", *head, "---", "", words, ""])
    return files


def marketplace_files(command: Sequence[str], http: HttpHook | None = None) -> dict[str, str]:
    """A marketplace that holds the plugin, by paths inside of its folder."""
    market = {
        "name": MARKETPLACE,
        "owner": {"name": "The Jackline authors"},
        "metadata": {"description": "Jackline for Claude Code"},
        "plugins": [{"name": PLUGIN, "source": f"./{FOLDER}", "description": _DESCRIPTION}],
    }
    inside = {f"{FOLDER}/{path}": text for path, text in plugin_files(command, http).items()}
    return {".claude-plugin/marketplace.json": _json(market), **inside}


def _hooks(command: str, http: HttpHook | None) -> dict[str, object]:
    run: list[dict[str, object]] = [
        {"type": "command", "command": command, "timeout": _HOOK_SECONDS}
    ]
    # No client waits for this one, none says a word when it fails, and a client that shuts down
    # ends a command before it has begun.
    news = run
    if http is not None:
        headers = {http.header: http.token}
        news = [{"type": "http", "url": http.url, "headers": headers, "timeout": _HOOK_SECONDS}]
    return {
        "description": "Tells parents the truth about sub-agents that died of an API error.",
        "hooks": {
            # What an Agent call gave back may be an error text that looks like a result.
            "PostToolUse": [{"matcher": "Agent|Task", "hooks": run}],
            "PostToolUseFailure": [{"matcher": "Agent|Task", "hooks": run}],
            "StopFailure": [{"hooks": news}],
            # Background agents die between turns; their parent hears of it here.
            "UserPromptSubmit": [{"hooks": run}],
        },
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


_TRIES = 5


def is_exact(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether the folder holds these files, by their paths inside of it, and nothing else."""
    wanted = {path: text.encode() for path, text in files.items()}
    folders = {parent.as_posix() for path in files for parent in Path(path).parents}
    try:
        return _is_own_folder(folder) and {*_entries(folder, "", wanted, folders)} == {
            *wanted,
            *folders - {"."},
        }
    except (OSError, _SomethingElseError):
        return False


def build(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder hold exactly these files; OSError when it cannot."""
    for left in reversed(range(_TRIES)):
        if is_exact(folder, files):
            return
        fresh = _random_name(folder)
        try:
            _write(fresh, files)
            remove(folder)
            fresh.rename(folder)
        except OSError:
            # Another process may have been first, with the same files.
            if not left:
                raise
        finally:
            remove(fresh)


def remove(folder: Path) -> None:
    """Take the folder away, or whatever stands in its place; nothing behind a link is touched."""
    away = _random_name(folder)
    try:
        folder.rename(away)  # at once: nobody sees half of it
    except FileNotFoundError:
        return
    if away.is_symlink() or not away.is_dir():
        away.unlink()
    else:
        shutil.rmtree(away)


class _SomethingElseError(Exception):
    """There is an entry that is not one of the plugin's."""


def _entries(
    folder: Path, inside: str, wanted: Mapping[str, bytes], folders: set[str]
) -> Iterator[str]:
    """The paths of what is there, as long as it is what it should be."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            path = folder / entry.name
            if name in wanted:
                if read_private(path, len(wanted[name])) != wanted[name]:
                    raise _SomethingElseError
            elif name in folders and _is_own_folder(path):
                yield from _entries(path, f"{name}/", wanted, folders)
            else:
                raise _SomethingElseError
            yield name


def _is_own_folder(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    found = path.lstat()
    return os.name == "nt" or (found.st_uid == own_number() and not found.st_mode & 0o077)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(mode=0o700)
    for path, text in files.items():
        place = folder
        for part in Path(path).parts[:-1]:
            place /= part
            place.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / path, text.encode())


def _random_name(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{os.urandom(8).hex()}")
