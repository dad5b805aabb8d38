"""Keep what clients tell of their agents, to be shown beside what the gateway has seen.

Laws: (1) pure: events come in; (2) bounded: the agents that were silent for longest go first; (3)
no words: names of tools, kinds of errors, and figures; names are cut before they are kept.
Not here: reading the events (client_words.py), what the gateway saw (control/fleet.py).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from jackline.outside_names import cut_name
from jackline.telemetry.client_words import (
    API_ERROR,
    API_REQUEST,
    SUB_AGENT,
    TOOL_RESULT,
    ClientEvent,
)

Key: TypeAlias = tuple[str, str]

MOST_AGENTS = 5000
_MOST_TOOLS = 64
_OTHERS = "other-tools"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


@dataclass(slots=True)
class ToolSums:
    """What came of one tool's runs."""

    ok: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ClientTold:
    """What a client told of one agent."""

    name: str = ""
    """The kind of agent, as the client calls it."""
    requests: int = 0
    errors: int = 0
    tokens: int = 0
    dollars: float = 0.0
    ended: bool = False
    last: float = 0.0
    tools: dict[str, ToolSums] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As every face shows it."""
        return {
            "name": self.name,
            "requests": self.requests,
            "errors": self.errors,
            "tokens": self.tokens,
            "dollars": round(self.dollars, 6),
            "ended": self.ended,
            "last": self.last,
            "tools": {
                name: {"ok": each.ok, "failed": each.failed, "seconds": round(each.seconds, 3)}
                for name, each in self.tools.items()
            },
        }


class ClientBook:
    """What clients have told of their agents lately."""

    def __init__(self) -> None:
        self._told: OrderedDict[Key, ClientTold] = OrderedDict()

    def heard(self, event: ClientEvent) -> None:
        """Take in one thing that a client told."""
        told = self._of((cut_name(event.session), cut_name(event.agent)))
        told.last = max(told.last, event.at)
        told.name = event.word("agent.name") or event.word("agent_type") or told.name
        if event.what == API_REQUEST:
            told.requests += 1
            told.tokens += int(sum(event.number(name) for name in _TOKENS))
            told.dollars += event.number("cost_usd")
        elif event.what == API_ERROR:
            told.errors += 1
        elif event.what == SUB_AGENT:
            told.ended = True
        elif event.what == TOOL_RESULT:
            name = event.word("tool_name") or _OTHERS
            if name not in told.tools and len(told.tools) >= _MOST_TOOLS:
                name = _OTHERS
            sums = told.tools.setdefault(name, ToolSums())
            sums.seconds += event.number("duration_ms") / 1000
            if succeeded(event):
                sums.ok += 1
            else:
                sums.failed += 1

    def of_agent(self, session: str, agent: str) -> ClientTold | None:
        """What was told of one agent."""
        return self._told.get((cut_name(session), cut_name(agent)))

    def of_session(self, beginning: str) -> dict[Key, ClientTold]:
        """What was told of the agents of sessions whose ids begin so."""
        return {key: told for key, told in self._told.items() if key[0].startswith(beginning)}

    def _of(self, key: Key) -> ClientTold:
        told = self._told.setdefault(key, ClientTold())
        self._told.move_to_end(key)
        while len(self._told) > MOST_AGENTS:
            self._told.popitem(last=False)
        return told


def succeeded(event: ClientEvent) -> bool:
    """Whether the tool did what it was asked to; clients say it as a word or as a boolean."""
    return event.about.get("success") in (True, "true")
