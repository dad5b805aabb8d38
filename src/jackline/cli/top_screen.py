"""Draw the fleet for a terminal: the verdict first, then lanes, agents, burn, runs, forecast.

Rules: (1) pure: a document, the time and the size come in; (2) no line is longer than the terminal
is wide, and no picture is taller; (3) a state is a glyph and a word, colour only repeats it; (4)
everything that waits has its reason and its time.
Not here: fetching the document, keys (status.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jackline.control.fleet import WAITS
from jackline.control.text import counted, lane_state, whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
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
# A verdict of more lines than this is cut: the lanes below say the same in detail.
_MOST_VERDICT = 4
_MOST_LANES = 8
_MOST_RUNS = 6
_FEWEST_AGENTS = 3
# Longer ones are machine-made, and told apart by their beginning.
_LONGEST_NAME = 24


def frame(
    told: Mapping[str, Any], now: datetime, width: int, height: int, *, hint: str = ""
) -> Text:
    """The whole picture, `height` lines at most; `hint` says how to leave it."""
    head = [_head(told, now, hint), *_wrapped(str(told["verdict"]), width, _MOST_VERDICT)]
    lanes = _part("lanes", list(_lanes(told, now)), _MOST_LANES)
    below = [*_burn(told), *_forecast(told, now)]
    runs = _part("runs", list(_runs(told, now)), _MOST_RUNS)
    taken = len(head) + len(lanes) + len(runs) + len(below) + 3
    agents = _part("fleet", _agents(told, now), max(_FEWEST_AGENTS, height - taken), _sums(told))
    lines = [*head, *lanes, *agents, *runs, *below]
    return Text("\n").join([_cut(line, width) for line in lines[:height]])


def _head(told: Mapping[str, Any], now: datetime, hint: str) -> Text:
    return Text.assemble(
        ("jackline top", "bold"), f"  {told['url']}  {now:%H:%M:%S}  ", (hint, "dim")
    )


def _part(name: str, lines: Sequence[Text], most: int, summary: str = "") -> list[Text]:
    if not lines and not summary:
        return []
    title = Text.assemble((name, "bold"), f"  {summary}" if summary else "")
    shown = list(lines[:most])
    if len(lines) > most:
        shown = [*lines[: most - 1], Text(f"  and {len(lines) - most + 1} more", style="dim")]
    return [Text(""), title, *shown]


# --- lanes ------------------------------------------------------------------------------------


def _lanes(told: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    for lane in told["lanes"]:
        line = _stated(lane_state(lane), f"{lane['name']}  ")
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


# --- the fleet --------------------------------------------------------------------------------


def _sums(told: Mapping[str, Any]) -> str:
    counted = [f"{count} {word}" for word, count in told["agents_by_state"].items() if count]
    return " · ".join(counted) or "no agent was heard of lately"


def _agents(told: Mapping[str, Any], now: datetime) -> list[Text]:
    lines: list[Text] = []
    session = None
    for agent in told["agents"]:
        if agent["session"] != session:
            session = agent["session"]
            tag = f"  {agent['tag']}" if agent["tag"] else ""
            lines.append(Text(f"  session {_short(session) or '–'}{tag}", style="dim"))
        lines.append(_agent(agent, now))
    if told["more_agents"]:
        lines.append(Text(f"  and {told['more_agents']} more: --json tells 500", style="dim"))
    return lines


def _agent(agent: Mapping[str, Any], now: datetime) -> Text:
    name = agent["label"] or _short(agent["agent"]) or "main"
    state = str(agent["state"])
    line = _stated(state, f"{set_cell_size(name, 18)} ", indent="    ")
    if state in WAITS:
        line.append(_until(agent["until"], now).removeprefix(","), style="bold")
        line.append(f" for {_since(agent['since'], now)}", style="dim")
    elif state == AgentState.ANSWERING:
        line.append(f" for {_since(agent['since'], now)}", style="dim")
    failed = f", {agent['failed']} failed" if agent["failed"] else ""
    if agent["calls"]:
        line.append(
            f"  {counted(agent['calls'], 'call')}{failed}, {_tokens(agent['tokens'])} tokens"
        )
    if agent["why"]:
        line.append(f"; {agent['why']}", style="dim")
    return line


# --- burn, runs, forecast -----------------------------------------------------------------------


def _burn(told: Mapping[str, Any]) -> Iterator[Text]:
    spend = told["spend"]
    words = (
        f"  ${spend['dollars_today']:,.2f} and {_tokens(spend['tokens_today'])} tokens today,"
        f" ${spend['dollars_per_hour']:,.2f} an hour now"
    )
    if spend["unpriced_tokens_today"]:
        words += f"; {_tokens(spend['unpriced_tokens_today'])} tokens have no known price"
    yield Text("")
    yield Text.assemble(("burn", "bold"), words)


def _runs(told: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    for run in told["runs"]:
        line = _stated(str(run["state"]), f"{run['run']}  {run['flow']}  ")
        if run["state"] == RunState.PARKED:
            line.append(_until(run["wake_at"], now) or ", until you say so", style="bold")
        failed = f", {run['failed']} failed" if run["failed"] else ""
        line.append(f"  {run['done']} done{failed}, ${run['cost']:,.2f}")
        if run["why"]:
            line.append(f"; {run['why']}", style="dim")
        yield line


def _forecast(told: Mapping[str, Any], now: datetime) -> Iterator[Text]:
    for each in told["forecast"]:
        words = f"  {each['window']} window {each['used']:.0%} used"
        words += f", refills {_moment(each['resets_at'], now)}"
        if each["ends_at"] is not None and each["used"] < 1.0:
            words += f"; at this pace it ends at {_moment(each['ends_at'], now)}"
        yield Text.assemble(("forecast", "bold"), words)


# --- words ------------------------------------------------------------------------------------


def _stated(state: str, name: str, indent: str = "  ") -> Text:
    glyph, tone = _LOOKS.get(state, ("·", ""))
    style = _STYLES.get(tone, "")
    return Text.assemble(indent, (glyph, style), f" {name}", (state, style))


def _until(until: object, now: datetime) -> str:
    if not isinstance(until, int | float):
        return ""
    left = timedelta(seconds=max(0, round(until - now.timestamp())))
    return f", until {_moment(until, now)} (in {duration_in_words(left)})"


def _moment(at: float, now: datetime) -> str:
    return moment_in_words(datetime.fromtimestamp(whole_second(at), now.tzinfo), now)


def _since(at: float, now: datetime) -> str:
    return duration_in_words(timedelta(seconds=max(0, round(now.timestamp() - at))))


def _tokens(count: float) -> str:
    if count < 10_000:
        return f"{count:,.0f}"
    return f"{count / 1000:,.0f} k" if count < 1e6 else f"{count / 1e6:,.1f} M"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:8]


def _wrapped(words: str, width: int, most: int) -> list[Text]:
    lines: list[str] = []
    for word in words.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: width - 2]} …"]
    return [Text(line) for line in lines]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
