"""Recognise who sends a request: session, agent, tag, client, credential, conversation and prefix.

Rules: (1) who sends a request is read from headers and the path only; what is absent is None, never
guessed; a head that came before on the same connection is not read again; (2) a client's own
headers and credentials pass unchanged; only ours (`x-jackline-…`) are removed; (3) conversation and
prefix are names only: nothing of a prompt can be read from them; (4) for them the body is searched,
not decoded, and only where it matters: a wrong name costs a wrong guess of a price, which the next
answer corrects; (5) a conversation is named by its session and its first message: whatever changes
that loses the cache, too; (6) a prefix without a cache mark has no name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from jackline.gateway.connection import Exchange
from jackline.http1.headers import HeaderFilter, Headers, request_lines
from jackline.lane_id import LaneId
from jackline.lanes.prompt_caches import SMALLEST_PREFIX
from jackline.outside_names import cut_name
from jackline.providers.settings import UpstreamSettings
from jackline.task_proof import HEADER

_CLAUDE_CODE = re.compile(rb"claude-cli/(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?: \(([^)]*)\))?")
_LONGEST_USER_AGENT = 512
_TAGGED = re.compile(rb"/t/([A-Za-z0-9._~-]{1,64})(/.*)", re.DOTALL)
TASK_HEADER = HEADER.encode()
Who: TypeAlias = tuple[str, str | None]
TaskIn: TypeAlias = Callable[[bytes], str | None]
"""Gives the agent that a header names, if this user's installation has named it."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client's program. `headless` means that nobody watches its answers appear."""

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
    """The class of traffic, as flows and their agents name it."""
    task: str | None = None
    """The agent of a flow that the call is made for, whatever program makes it."""
    is_watched: bool = field(init=False)
    """Whether a person sees the answer appear."""
    who: Who | None = field(init=False)
    """What a conversation is recognised by; nobody is recognised without a session."""

    def __post_init__(self) -> None:
        # Once for each head, and looked at for every call.
        watched = not self.client.headless and self.agent is None
        object.__setattr__(self, "is_watched", watched)
        who = None if self.session is None else (self.session, self.agent)
        object.__setattr__(self, "who", who)


@lru_cache(maxsize=256)
def client_of(user_agent: bytes) -> Client:
    """The client by its User-Agent."""
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


def no_task(_value: bytes) -> str | None:
    """Believes no name of an agent."""
    return None


def identify(
    header: Callable[[bytes], bytes | None], tag: str | None, task_in: TaskIn = no_task
) -> Identity:
    """Whose call it is, by its headers; `task_in` gives the agent of a flow that one names."""
    task = header(TASK_HEADER)
    return Identity(
        named(header(b"x-claude-code-session-id")),
        named(header(b"x-claude-code-agent-id")),
        named(header(b"x-claude-code-parent-agent-id")),
        tag,
        client_of((header(b"user-agent") or b"")[:_LONGEST_USER_AGENT]),
        named(header(b"x-jackline-class")),
        None if task is None else task_in(task),
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


class CallRoute(NamedTuple):
    """One way for a call: the upstream, the model requested there, whether that is another one."""

    upstream: UpstreamSettings
    model: str
    degrades: bool


class CallLanes(NamedTuple):
    """The lanes that a call may use, and those that it may use only if all of them fail.

    `own_key` are those of both that are paid by the user's own key, where the first is not: they
    are closed to a client whose credential the first refuses. To one that is `unproven` they are
    open only once the first is known to be down for others.
    """

    lanes: tuple[LaneId, ...]
    last_resorts: tuple[LaneId, ...]
    own_key: tuple[LaneId, ...] = ()
    unproven: bool = False


class GatewayCaller(NamedTuple):
    """Who sends a call; `credential` is what pays, `bearer` whether it is a login that is renewed.

    Filled while its calls are placed: `accounts` has the fingerprints of the credential, by
    address; `places` the only route and the lanes of its calls, by model, where there is only one.
    """

    identity: Identity
    who: Who | None
    headers: Headers
    lines: bytes
    credential: bytes
    bearer: bool
    afk: bool
    accounts: dict[str, str]
    places: dict[str, tuple[CallRoute, CallLanes]]

    def __repr__(self) -> str:
        return f"<Caller {self.identity}>"


_MEMO = "caller"
# Answers have to be read while they pass, so they are requested without compression.
_PASSES = HeaderFilter((b"accept-encoding",), b"x-jackline-")
_UNCOMPRESSED = (b"accept-encoding", b"identity")


def caller_of(exchange: Exchange, tag: str | None, task_in: TaskIn) -> GatewayCaller:
    """The caller of this request."""
    known = exchange.memo.get(_MEMO)
    if isinstance(known, GatewayCaller) and known.identity.tag == tag:
        return known
    header = exchange.header
    identity = identify(header, tag, task_in)
    headers = [pair for pair in exchange.headers if _PASSES[pair[0]]]
    headers.append(_UNCOMPRESSED)
    key = header(b"x-api-key")
    caller = GatewayCaller(
        identity=identity,
        who=identity.who,
        headers=headers,
        lines=request_lines(headers),
        credential=key or header(b"authorization") or b"",
        bearer=key is None,
        afk=header(b"x-jackline-hold") == b"until-reset",
        accounts={},
        places={},
    )
    exchange.memo[_MEMO] = caller
    return caller


def openai_caller(exchange: Exchange, tag: str | None, task_in: TaskIn) -> GatewayCaller:
    """The caller of a request in one of OpenAI's dialects; Codex names its session and thread."""
    caller = caller_of(exchange, tag, task_in)
    session, thread = named(exchange.header(b"session-id")), named(exchange.header(b"thread-id"))
    if session is None:
        return caller
    agent = thread if thread != session else None
    identity = replace(caller.identity, session=session, agent=agent)
    return caller._replace(identity=identity, who=identity.who)


def credential_of(headers: Headers) -> bytes:
    """The credential in forwarded headers, as in `GatewayCaller`; empty where there is none."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name.lower(), value)
    return found.get(b"x-api-key") or found.get(b"authorization") or b""


_LETTERS_PER_TOKEN = 4
_MARK = b'"cache_control"'
# So much of the first message is read, and so much of it distinguishes conversations: marks in the
# first that are left out, whole or cut in two, must not change the second.
_BEGINNING = 2048
_DISTINCT_BY = 1700
_MARK_WRITTEN = re.compile(rb',?"cache_control"\s*:\s*\{[^{}]*\}')
# Claude Code writes this anew for each conversation; reports differ on whether its vendor's cache
# leaves it out, too.
_BILLING = re.compile(rb'x-anthropic-billing-header:[^"]*')
_MESSAGES = re.compile(rb'"messages"\s*:\s*\[')
_SPOKEN = b'"assistant"'
_ANSWERED = re.compile(rb'"role"\s*:\s*"assistant"')
_HEADS = (b'"system":[', b'"system": [', b'"tools":[', b'"tools": [')
_BEHIND = re.compile(rb'"(?:messages|metadata)"\s*:')
_first_of = json.JSONDecoder().raw_decode


class Prefix(NamedTuple):
    """The tools and instructions of a request; no name where they are not to be cached."""

    name: str = ""
    tokens: int = 0


NO_PREFIX = Prefix()


def conversation_of(who: Who | None, body: bytes | bytearray) -> str:
    """The conversation that the request continues; empty where its client wants no caching.

    A session sends more under its id than its conversation: prompts of hooks, titles, summaries.
    What a cache has of one does not help the other; their first messages distinguish them.
    """
    if who is None and body.rfind(_MARK) < 0:
        return ""
    first, found = "", _MESSAGES.search(body)
    if found is not None:
        beginning = bytes(body[found.end() : found.end() + _BEGINNING])
        # The mark moves on with each turn; the first message stays.
        if _MARK in beginning:
            beginning = _MARK_WRITTEN.sub(b"", beginning)
        # One letter for each byte, whatever they mean: so a cut falls where it was counted.
        text = beginning.decode("latin-1")
        try:
            _, end = _first_of(text)
        except (ValueError, RecursionError):
            end = len(text)  # it is longer than what is read
        first = _digest(text[: min(end, _DISTINCT_BY)].encode("latin-1"))
    if who is None:
        return first
    return f"{who[0]}/{who[1] or ''}/{first}"


def begins_conversation(body: bytes | bytearray) -> bool:
    """Whether the model has not answered yet; where it has, that is near the beginning."""
    # Finding a word takes half the time of matching a pattern in a long first message.
    return body.find(_SPOKEN) < 0 or _ANSWERED.search(body) is None


def prefix_of(body: bytes | bytearray) -> Prefix:
    """What the request shares with others that have the same tools and instructions."""
    starts = [at for head in _HEADS if (at := body.rfind(head)) >= 0]
    if not starts:
        return NO_PREFIX
    behind = _BEHIND.search(body, min(starts))
    part = bytes(body[min(starts) : behind.start() if behind else len(body)])
    tokens = len(part) // _LETTERS_PER_TOKEN
    if _MARK not in part or tokens < SMALLEST_PREFIX:
        return NO_PREFIX
    return Prefix(_digest(_BILLING.sub(b"", part)), tokens)


def _digest(part: bytes) -> str:
    return hashlib.blake2b(part, digest_size=12).hexdigest()
