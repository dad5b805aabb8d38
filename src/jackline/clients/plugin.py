"""The files of the Claude Code plugin for this Jackline, and the folder that holds exactly them.

Rules: (1) the files are pure: text in, text out; the copy in the repository is made by the same
function for the plain command `jackline`, and a test compares the two; (2) every hook has a time
limit, and none can block the client; a hook is HTTP where a stopped service costs neither time nor
a message on the user's screen, and a command everywhere else (docs/decisions/041); (3) the client
runs what is in the folder: a folder with any other entry (links, pipes, files that others could
write) is replaced, never repaired; the new one is built under a random name and moved into place;
(4) removal follows no links. The parent folder must be private (private_files.make_private_folder).
Installing the plugin: cli/plugin_setup.py. What hooks answer: hooks/.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jackline import __version__
from jackline.private_files import own_number, read_private, write_private

PLUGIN = "jackline"
MARKETPLACE = "jackline"
PLUGIN_ID = f"{PLUGIN}@{MARKETPLACE}"
FOLDER = "plugin"
_HOOK_SECONDS = 5
_BUILD_ATTEMPTS = 5
ABOUT: Mapping[str, str] = {
    ".claude-plugin/marketplace.json": "where the client finds the plugin",
    ".claude-plugin/plugin.json": "its name and version",
    ".mcp.json": "the tools: agent, agents, batch, why, status and more",
    "hooks/hooks.json": "reports of sub-agents that died",
    "commands/why.md": "/jackline:why",
    "commands/status.md": "/jackline:status",
    "commands/resume.md": "/jackline:resume",
    "README.md": "what it is",
}
"""The purpose of each file."""
_DESCRIPTION = (
    "Sub-agents that report how they really ended and can be resumed, batches that do not cascade,"
    " and the status of limits and outages."
)

_WHY = (
    "Call the Jackline tool `why` (with id `$ARGUMENTS` if there is one). Say in a few lines what"
    " happened, what is finished, and the exact way to resume."
)
_STATUS = (
    "Call the Jackline tool `status` and show its first sentence, then only what needs my"
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
    "status": ("Status of model calls: limits, quota walls, outages, forecast", "", _STATUS),
    "resume": ("Continue a sub-agent or session that was cut off", "[id]", _RESUME),
}
_README = """\
# Jackline for Claude Code

Jackline keeps agents working through rate limits, quota walls and outages. This plugin brings it
into Claude Code:

- an `agent` tool whose results say `terminated_by`, and that goes on where it was cut off
  (`resume`, `continue_from_task_id`);
- a `batch` tool whose calls do not cancel each other;
- hooks that report to a parent when a sub-agent died of an API error;
- `/jackline:why`, `/jackline:status` and `/jackline:resume`.

It needs the `jackline` command: the tools and hooks call its service on this machine, and start it
when a tool is first used. When it does not run, Claude Code works as without the plugin.
"""


@dataclass(frozen=True, slots=True)
class HttpHook:
    """The service's address for hooks over HTTP, and the header with its token."""

    url: str
    header: str
    token: str

    def __repr__(self) -> str:
        return f"<HttpHook {self.url}>"


def plugin_files(command: Sequence[str], http: HttpHook | None = None) -> dict[str, str]:
    """Every file of the plugin by its path inside the plugin's folder.

    Without `http` (the port of the service is not known) every hook is a command.
    """
    manifest = {
        "name": PLUGIN,
        "version": __version__,
        "description": _DESCRIPTION,
        "author": {"name": "The Jackline authors"},
        "license": "Apache-2.0",
    }
    run: dict[str, object] = {
        "type": "command",
        "command": shlex.join([*command, "hook"]),
        "timeout": _HOOK_SECONDS,
    }
    # No client waits for StopFailure or shows its errors, and a client that shuts down ends a
    # command before it has started.
    stop_failure = run
    if http is not None:
        headers = {http.header: http.token}
        stop_failure = {
            "type": "http",
            "url": http.url,
            "headers": headers,
            "timeout": _HOOK_SECONDS,
        }
    hooks = {
        "description": "Reports sub-agents that died of an API error to their parents.",
        "hooks": {
            # The result of an Agent call may be an error text that looks like an answer.
            "PostToolUse": [{"matcher": "Agent|Task", "hooks": [run]}],
            "PostToolUseFailure": [{"matcher": "Agent|Task", "hooks": [run]}],
            "StopFailure": [{"hooks": [stop_failure]}],
            # Background agents die between turns; their parent gets the report here.
            "UserPromptSubmit": [{"hooks": [run]}],
        },
    }
    server = {"command": command[0], "args": [*command[1:], "mcp"]}
    files = {
        "README.md": _README,
        ".claude-plugin/plugin.json": _json(manifest),
        ".mcp.json": _json({"mcpServers": {PLUGIN: server}}),
        "hooks/hooks.json": _json(hooks),
    }
    for name, (description, hint, prompt) in _COMMANDS.items():
        head = [f"description: {json.dumps(description)}"]
        if hint:
            head.append(f'argument-hint: "{hint}"')
        files[f"commands/{name}.md"] = "\n".join(["---", *head, "---", "", prompt, ""])
    return files


def marketplace_files(command: Sequence[str], http: HttpHook | None = None) -> dict[str, str]:
    """A marketplace that holds the plugin, by paths inside its folder."""
    market = {
        "name": MARKETPLACE,
        "owner": {"name": "The Jackline authors"},
        "metadata": {"description": "Jackline for Claude Code"},
        "plugins": [{"name": PLUGIN, "source": f"./{FOLDER}", "description": _DESCRIPTION}],
    }
    inside = {f"{FOLDER}/{path}": text for path, text in plugin_files(command, http).items()}
    return {".claude-plugin/marketplace.json": _json(market), **inside}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def is_exact(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether the folder holds these files, by their paths inside it, and nothing else."""
    wanted = {path: text.encode() for path, text in files.items()}
    folders = {parent.as_posix() for path in files for parent in Path(path).parents}
    found = set()
    unread = ["."]
    try:
        while unread:
            inside = unread.pop()
            path = folder / inside
            if path.is_symlink() or not path.is_dir():
                return False
            status = path.lstat()
            is_private = status.st_uid == own_number() and not status.st_mode & 0o077
            if os.name != "nt" and not is_private:
                return False
            for entry in path.iterdir():
                name = entry.relative_to(folder).as_posix()
                if name in folders:
                    unread.append(name)
                elif name not in wanted or read_private(entry, len(wanted[name])) != wanted[name]:
                    return False
                found.add(name)
    except OSError:
        return False
    return found == {*wanted, *folders - {"."}}


def build(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder hold exactly these files; OSError when it cannot."""
    for left in reversed(range(_BUILD_ATTEMPTS)):
        if is_exact(folder, files):
            return
        fresh = folder.with_name(f"{folder.name}.{os.urandom(8).hex()}")
        try:
            fresh.mkdir(mode=0o700)
            for path, text in files.items():
                parent = fresh
                for part in Path(path).parts[:-1]:
                    parent /= part
                    parent.mkdir(mode=0o700, exist_ok=True)
                write_private(fresh / path, text.encode())
            remove(folder)
            fresh.rename(folder)
        except OSError:
            # Another process may have been first, with the same files.
            if not left:
                raise
        finally:
            remove(fresh)


def remove(folder: Path) -> None:
    """Remove the folder, or whatever has its name; nothing behind a link is touched."""
    away = folder.with_name(f"{folder.name}.{os.urandom(8).hex()}")
    try:
        folder.rename(away)  # in one step: nobody sees a part of it
    except FileNotFoundError:
        return
    if away.is_symlink() or not away.is_dir():
        away.unlink()
    else:
        shutil.rmtree(away)
