"""Draw the fleet for a terminal: the verdict first, then lanes, agents, burn, runs, forecast.

Rules: (1) pure: a document, the time and the size come in; (2) no line is longer than the terminal
is wide, and no picture is taller; (3) a state is a glyph and a word, colour only repeats it; (4)
everything that waits has its reason and its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jackline.control.fleet import WAITS
from jackline.control.text import counted, lane_state, moment_text
from jackline.failures.sentences import duration_in_words
from jackline.states import AgentState, RunState, looks

# The terminal's style for each tone of jackline.states.
_STYLES = {
    "go": "green",
    "slow": "yellow",
    "park": "magenta",
    "down": "yellow",
    "try": "cyan",
    "tool": "cyan",
    "bad": "bold red",
    "done": "dim",
}
_LOOKS = looks()
# A longer verdict is cut: the lanes below say the same in detail.
_MOST_VERDICT = 4
_MOST_LANES = 8
_MOST_RUNS = 6
_FEWEST_AGENTS = 3
_LONGEST_ID = 24


def frame(
    fleet: Mapping[str, Any], now: datetime, width: int, height: int, *, hint: str = ""
) -> Text:
    """The whole picture, `height` lines at most; `hint` says how to leave it."""
    title = f"  {fleet['url']}  {now:%H:%M:%S}  "
    verdict: list[str] = []
    for word in str(fleet["verdict"]).split():
        if verdict and cell_len(verdict[-1]) + 1 + cell_len(word) <= width:
            verdict[-1] += f" {word}"
        else:
            verdict.append(word)
    if len(verdict) > _MOST_VERDICT:
        verdict[_MOST_VERDICT - 1 :] = [f"{verdict[_MOST_VERDICT - 1][: width - 2]} …"]
    head = [Text.assemble(("jackline status", "bold"), title, (hint, "dim")), *map(Text, verdict)]
    lanes = _section("lanes", list(_lanes(fleet, now)), _MOST_LANES)
    runs = _section("runs", list(_runs(fleet, now)), _MOST_RUNS)
    spend = fleet["spend"]
    text = (
        f"  ${spend['dollars_today']:,.2f} and {_tokens(spend['tokens_today'])} tokens today,"
        f" ${spend['dollars_per_hour']:,.2f} an hour now"
    )
    if spend["unpriced_tokens_today"]:
        text += f"; {_tokens(spend['unpriced_tokens_today'])} tokens have no known price"
    below = [Text(""), Text.assemble(("burn", "bold"), text)]
    for each in fleet["forecast"]:
        text = f"  {each['window']} window {each['used']:.0%} used"
        text += f", refills {moment_text(each['resets_at'], now)}"
        if each["ends_at"] is not None and each["used"] < 1.0:
            text += f"; at this pace it ends at {moment_text(each['ends_at'], now)}"
        below.append(Text.assemble(("forecast", "bold"), text))
    used = len(head) + len(lanes) + len(runs) + len(below) + 3
    counts = [f"{count} {state}" for state, count in fleet["agents_by_state"].items() if count]
    summary = " · ".join(counts) or "no agent was seen lately"
    agents = _section(
        "fleet", list(_agents(fleet, now)), max(_FEWEST_AGENTS, height - used), summary
    )
    lines = [*head, *lanes, *agents, *runs, *below][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _section(name: str, lines: Sequence[Text], most: int, summary: str = "") -> list[Text]:
    if not lines and not summary:
        return []
    title = Text.assemble((name, "bold"), f"  {summary}" if summary else "")
    shown = list(lines[:most])
    if len(lines) > most:
        shown = [*lines[: most - 1], Text(f"  and {len(lines) - most + 1} more", style="dim")]
    return [Text(""), title, *shown]


def _lanes(fleet: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    for lane in fleet["lanes"]:
        line = _state(lane_state(lane), f"{lane['name']}  ")
        line.append(f"  {lane['in_flight']} of {lane['window']} in flight")
        if lane["waiting"]:
            line.append(f", {lane['waiting']} waiting")
        if lane.get("aim", 0) > lane["window"]:
            line.append(f", growing back to {lane['aim']}")
        limits = lane.get("limits") or {}
        if limits:
            line.append("; left: " + ", ".join(f"{n} {share:.0%}" for n, share in limits.items()))
        line.append(_until(lane.get("until"), now), style="bold")
        if lane["why"]:
            line.append(f"; {lane['why']}", style="dim")
        yield line


def _agents(fleet: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    session = None
    for agent in fleet["agents"]:
        # Long ids are machine-made, and differ in their beginning.
        both = (agent["session"], agent["agent"])
        ids = [each if len(each) <= _LONGEST_ID else each[:8] for each in both]
        if agent["session"] != session:
            session = agent["session"]
            tag = f"  {agent['tag']}" if agent["tag"] else ""
            yield Text(f"  session {ids[0] or '–'}{tag}", style="dim")
        name = agent["label"] or ids[1] or "main"
        state = str(agent["state"])
        line = _state(state, f"{set_cell_size(name, 18)} ", indent="    ")
        if state in WAITS:
            line.append(_until(agent["until"], now).removeprefix(","), style="bold")
        if state in WAITS or state == AgentState.ANSWERING:
            since = timedelta(seconds=max(0, round(now.timestamp() - agent["since"])))
            line.append(f" for {duration_in_words(since)}", style="dim")
        if agent["calls"]:
            failed = f", {agent['failed']} failed" if agent["failed"] else ""
            tokens = f"{_tokens(agent['tokens'])} tokens"
            line.append(f"  {counted(agent['calls'], 'call')}{failed}, {tokens}")
        if agent["why"]:
            line.append(f"; {agent['why']}", style="dim")
        yield line
    if fleet["more_agents"]:
        yield Text(f"  and {fleet['more_agents']} more: --json shows 500", style="dim")


def _runs(fleet: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    for run in fleet["runs"]:
        line = _state(str(run["state"]), f"{run['run']}  {run['flow']}  ")
        if run["state"] == RunState.PARKED:
            line.append(_until(run["wake_at"], now) or ", until you resume it", style="bold")
        line.append(f"  {run['counts']}; ${run['cost']:,.2f}")
        if run["why"]:
            line.append(f"; {run['why']}", style="dim")
        yield line


def _state(state: str, name: str, indent: str = "  ") -> Text:
    glyph, tone = _LOOKS.get(state, ("·", ""))
    style = _STYLES.get(tone, "")
    return Text.assemble(indent, (glyph, style), f" {name}", (state, style))


def _until(until: object, now: datetime) -> str:
    if not isinstance(until, int | float):
        return ""
    left = timedelta(seconds=max(0, round(until - now.timestamp())))
    return f", until {moment_text(until, now)} (in {duration_in_words(left)})"


def _tokens(count: float) -> str:
    if count < 10_000:
        return f"{count:,.0f}"
    return f"{count / 1000:,.0f} k" if count < 1e6 else f"{count / 1e6:,.1f} M"
