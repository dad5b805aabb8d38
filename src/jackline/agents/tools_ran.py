"""Tell the gateway which tools an agent has run since its last call, for whoever traces it.

Laws: (1) names, times and whether it went well: never what a tool was given or gave back; (2)
bounded: the latest count; (3) what cannot be read is no tool at all.
Not here: running them (messages/tool_turn.py), spans (telemetry/).
"""

from __future__ import annotations

import json
from collections import deque
from typing import NamedTuple

HEADER = "x-jackline-tools"
_MOST = 32
_LONGEST = 64


class RanTool(NamedTuple):
    """One tool that has ended; `ended_by` is a kind such as `timed out`, or empty."""

    name: str
    begins: float
    seconds: float
    ok: bool
    ended_by: str = ""


class ToolsRan:
    """The tools of one agent that nobody was told of yet."""

    def __init__(self) -> None:
        self._ran: deque[RanTool] = deque(maxlen=_MOST)

    def add(self, tool: RanTool) -> None:
        """One more has ended."""
        words = (tool.name[:_LONGEST], tool.ended_by[:_LONGEST])
        times = (round(tool.begins, 3), round(tool.seconds, 3))
        self._ran.append(RanTool(words[0], *times, tool.ok, words[1]))

    def taken(self) -> str:
        """The header's value, once; empty when nothing ran."""
        told, self._ran = self._ran, deque(maxlen=_MOST)
        return json.dumps(list(told), separators=(",", ":")) if told else ""


def tools_in(value: bytes) -> list[RanTool]:
    """The tools that a header tells."""
    try:
        told = json.loads(value)
        return [
            RanTool(str(name)[:_LONGEST], float(begins), float(took), bool(ok), str(by)[:_LONGEST])
            for name, begins, took, ok, by in told[:_MOST]
        ]
    except (ValueError, TypeError, RecursionError):
        return []
