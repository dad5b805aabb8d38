"""Who is asking: session, sub-agent, parent, tag, class, task, and what kind of client.

Laws: (1) only headers and the path are read; (2) what is absent is None, never guessed.
Not here: whose account pays (lane_book.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from jackline.outside_names import cut_name

_CLAUDE_CODE = re.compile(rb"claude-cli/(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?: \(([^)]*)\))?")
_LONGEST_USER_AGENT = 512
_TAGGED = re.compile(rb"/t/([A-Za-z0-9._~-]{1,64})(/.*)", re.DOTALL)
Who: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Client:
    """The program that asks. `headless` means that nobody watches its answers appear."""

    claude_code: bool
    headless: bool
    version: tuple[int, int, int] = (0, 0, 0)
    codex: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose call it is."""

    session: str | None
    agent: str | None
    parent: str | None
    tag: str | None
    client: Client
    class_: str | None = None
    """The class of traffic, as flows and their agents tell it."""
    task: str | None = None
    """The agent of a flow that the call is made for, whatever program makes it."""
    is_watched: bool = field(init=False)
    """Whether a person sees the answer appear."""
    who: Who | None = field(init=False)
    """By what a conversation is recognised; nobody is recognised without a session."""

    def __post_init__(self) -> None:
        # Once for each head, and looked at for every call.
        watched = not self.client.headless and self.agent is None
        object.__setattr__(self, "is_watched", watched)
        who = None if self.session is None else (self.session, self.agent)
        object.__setattr__(self, "who", who)


@lru_cache(maxsize=256)
def client_of(user_agent: bytes) -> Client:
    """What the User-Agent tells."""
    match = _CLAUDE_CODE.search(user_agent)
    if match is None:
        # `codex_exec` runs unattended; its siblings have a terminal or an editor around them.
        is_codex = user_agent.startswith(b"codex")
        headless = not is_codex or user_agent.startswith(b"codex_exec")
        return Client(claude_code=False, headless=headless, codex=is_codex)
    major, minor, patch, entrance = match.groups()
    parts = [part.strip() for part in (entrance or b"").split(b",")]
    # `cli` is the program in a terminal; `sdk-cli`, `sdk-py` and others run unattended.
    return Client(True, b"cli" not in parts, (int(major), int(minor), int(patch)))


def identify(header: Callable[[bytes], bytes | None], tag: str | None) -> Identity:
    """Whose call it is, by its headers."""
    return Identity(
        named(header(b"x-claude-code-session-id")),
        named(header(b"x-claude-code-agent-id")),
        named(header(b"x-claude-code-parent-agent-id")),
        tag,
        client_of((header(b"user-agent") or b"")[:_LONGEST_USER_AGENT]),
        named(header(b"x-jackline-class")),
        named(header(b"x-jackline-task")),
    )


def without_tag(path: bytes) -> tuple[str | None, bytes]:
    """The tag of `/t/<tag>/v1/…`, and the path without it."""
    if not path.startswith(b"/t/"):
        return None, path
    match = _TAGGED.fullmatch(path)
    return (None, path) if match is None else (match[1].decode("ascii"), match[2])


def named(value: bytes | None) -> str | None:
    """The name that a header holds; None where there is none."""
    return None if not value else cut_name(value.decode("latin-1"))
