"""Check what a model wants to start, and turn it into orders that any process can run.

Rules: (1) whatever makes no sense, does not exist or is not allowed is refused before anything
starts; (2) an earlier agent is continued once: one that works, or that was continued already, is
named instead; (3) a dead sub-agent or session of Claude Code is only read, and one that may be
alive is left alone; the agent that continues it learns what was finished and what may or may not
have run; (4) an order is plain data: everything that it depends on is looked up now.
Not here: the schema of the arguments (tools/agents.py), running orders (agent_manager.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from jackline.agents.claude_code.tool_rules import base_of as base_name
from jackline.agents.process.resume import resume_prompt
from jackline.agents.structured_answer import build_validator
from jackline.batches.threads import in_own_thread
from jackline.clock import Clock
from jackline.errors import BadArgumentError, RefusedError, UnreadableError, UsageError
from jackline.flows.cleanup.action_runner import denial
from jackline.flows.records import (
    ENDED,
    CallRecord,
    CallState,
    RunState,
    decode_outcome,
    session_id_of,
)
from jackline.mcp_server.agent_definitions import (
    AgentDefinition,
    definition_folders,
    definition_of,
    definitions_of_plugins,
)
from jackline.mcp_server.agent_manager import (
    CONTINUED_FROM,
    AgentManager,
    RunSnapshot,
    must_be_of_models,
)
from jackline.mcp_server.model_tool import JsonObject, ToolCaller
from jackline.mcp_server.permissions import (
    AgentSettings,
    Sight,
    ToolSettings,
    base_of,
    check_nested,
    chosen_folders,
    offered,
    offered_to,
    sight_of,
    working_folder,
)
from jackline.transcripts.saved_conversation import (
    DeadAgent,
    folder_of_thread,
    read_dead_agent,
)
from jackline.transcripts.sources import ClientFolders
from jackline.transcripts.story import AgentStory, TranscriptEnd

_T = TypeVar("_T")
_ID = re.compile(r"[A-Za-z0-9_-]{4,80}")
_FRESH = 60.0
"""A transcript that was written to since, and does not end, may belong to somebody alive."""
_MOST_TOLD = 60_000
_LEAST_TOLD = 200


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What is left of one, as far as going on needs it."""

    agent_id: str
    prompt: str
    """With which another goes on."""
    cwd: str | None
    model: str | None
    agent_type: str | None = None


def resume_point_of_agent(
    agent_id: str, environ: Mapping[str, str], now: float, sees: Sight
) -> ResumePoint | None:
    """What is left of this sub-agent; None when there is no such transcript, or it is not seen."""
    path = _find(agent_id, ClientFolders.of_process(environ).claude / "projects")
    if path is None:
        return None
    dead = read_dead_agent(path)
    if not sees(dead.story.cwd):
        return None
    _check_dead(dead.story, path, now)
    if dead.story.ending is TranscriptEnd.FINISHED:
        raise UsageError(
            f"The sub-agent {dead.agent_id} finished; nothing was cut off.",
            hint="Use its result, or start a new agent.",
        )
    story = dead.story
    return ResumePoint(
        dead.agent_id, _told(dead), story.cwd, _real_model(story.model), story.agent_type
    )


def resume_point_of_session(
    session_id: str, environ: Mapping[str, str], now: float, sees: Sight
) -> ResumePoint | None:
    """Where a session of Claude Code can be gone on with; None when none of that id is seen."""
    path = ClientFolders.of_process(environ).claude_transcript(session_id)
    if path is None:
        return None
    story = read_dead_agent(path).story
    if not sees(story.cwd):
        return None
    _check_dead(story, path, now)
    prompt = "Go on with your task from where you were cut off, to its end."
    return ResumePoint(session_id, prompt, story.cwd, _real_model(story.model))


async def _read_aside(read: Callable[..., _T], *of: object) -> _T:
    """What it read, in a thread that does not hold the end of the service."""
    return await in_own_thread(partial(read, *of), "jackline-read")


def _find(agent_id: str, projects: Path) -> Path | None:
    if not _ID.fullmatch(agent_id):
        return None
    agent_id = agent_id.removeprefix("agent-")
    name = f"agent-{agent_id}.jsonl"
    found = [*projects.glob(f"*/*/subagents/**/{name}"), *projects.glob(f"*/{name}")]
    if len(found) > 1:
        raise UnreadableError(f"Several sub-agents have the id {agent_id}.")
    return found[0] if found else None


class MaybeAliveError(UsageError):
    """The transcript has not ended, and was written to a moment ago."""


def _check_dead(story: AgentStory, path: Path, now: float) -> None:
    if story.ending is TranscriptEnd.CUT and now - path.stat().st_mtime < _FRESH:
        raise MaybeAliveError(
            f"{path.stem} was at work a moment ago, and may be alive.",
            hint="Ask again a minute after its last sign of life.",
        )


def _real_model(model: str | None) -> str | None:
    return None if model is None or model.startswith("<") else model


def _told(dead: DeadAgent) -> str:
    calls = [(call, dead.results[call.id]) for turn in dead.turns for call in turn.calls]
    # Every call is told; how much of what each gave depends on how many there are.
    room = max(_LEAST_TOLD, _MOST_TOLD // max(1, len(calls)))
    finished = [(call, result[:room]) for call, result in calls]
    said = [turn.text for turn in dead.turns if turn.text]
    fatal = [seen.text for seen in dead.story.failures if seen.fatal]
    cut = f": {fatal[-1]}" if fatal else "."
    happened = f"Another agent had this task before you and was cut off{cut}"
    if said:
        happened += "\n\nWhat it said on its way, the latest last:\n" + "\n".join(
            f"- {text[:room]}" for text in said
        )
    return resume_prompt(happened, dead.lost, finished=finished, task=dead.prompt)


_CLAUDE, _CODEX, _MESSAGES = "claude-code", "codex", "messages"
_WRITTEN_WITHIN = 8.0
_LOOK_AGAIN = 0.25


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """An order for a new run, or an earlier run to be taken up as it is."""

    order: JsonObject
    folder: Path
    earlier: RunSnapshot | None = None
    notes: tuple[str, ...] = ()
    """What was not done as asked."""


@dataclass(frozen=True, slots=True)
class _From:
    """What an order takes over from an earlier agent."""

    order: JsonObject
    look: RunSnapshot | None = None


class OrderIntake:
    """Takes orders."""

    def __init__(
        self,
        desk: AgentManager,
        settings: Callable[[], ToolSettings],
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._settings = settings
        self._environ = environ
        self._clock = clock

    async def take(
        self, given: Mapping[str, Any], caller: ToolCaller, label: str = ""
    ) -> CheckedOrder:
        """The order, checked; `label` is for one that was given none."""
        resume, continued = given.get("resume"), given.get("continue_from_task_id")
        if resume and continued:
            raise BadArgumentError(
                "An agent goes on from one place.",
                hint="Give resume or continue_from_task_id, not both.",
            )
        if not given.get("prompt") and not (resume or continued):
            raise BadArgumentError("An agent needs a prompt.", hint="Say what it is to do.")
        settings = self._settings().agents
        _check_runner(given.get("runner") or settings.runner, settings)
        before = _From({})
        if caller.session and caller.session in (resume, continued):
            raise BadArgumentError(
                "That is the id of this very session, which is alive.",
                hint="Give the id of an agent that was cut off.",
            )
        if resume or continued:
            before = await self._earlier(given, sight_of(caller.folder, settings))
        if before.look is not None:
            return CheckedOrder({}, Path(before.look.record.cwd), before.look)
        asked = given.get("cwd") or before.order.get("cwd")
        folder = working_folder(cast("str | None", asked), caller.folder, settings)
        project = await self._desk.project_of(caller)
        definition = await self._definition(given, before.order, project or folder)
        order: dict[str, Any] = {**before.order, "cwd": str(folder)}
        order["depth"] = await self._depth(caller, settings.depth)
        order["prompt"] = given.get("prompt") or order["prompt"]
        order["label"] = given.get("label") or label or definition.name or "agent"
        order["runner"] = given.get("runner") or order.get("runner") or settings.runner
        _check_runner(order["runner"], settings)
        if order["runner"] != _MESSAGES:
            trusted = base_of(folder, project, settings)
            await check_nested(folder, trusted)
            order["trusted"] = str(trusted)
        earlier = order.pop("tools", None)
        if given.get("tools") is not None:
            tools = offered(given["tools"], order["runner"], settings)
        else:
            if definition.tools is None and earlier is not None:
                definition = replace(definition, tools=tuple(map(base_name, earlier)))
            tools = offered_to(definition, order["runner"], settings)
        model = given.get("model") or definition.model or order.get("model") or settings.model
        if str(model or "").startswith("-"):
            raise BadArgumentError(
                "A model's name does not begin with a dash: the agent's program would take it for"
                " a flag.",
                hint="Give the name of a model, or leave it out.",
            )
        chosen: dict[str, Any] = {
            "model": model,
            "system": definition.system or order.get("system"),
            "schema": self._schema(given.get("schema")),
            "budget": _budget(given.get("budget")),
            "release": given.get("release"),
            "resources": list(given.get("resources", ())),
            "project": None if project is None else str(project),
            "allowed_by": await self._allow_releases(given, folder, project),
        }
        order |= {name: value for name, value in chosen.items() if value}
        # Also an empty list: to leave that out would offer every tool.
        order |= {} if tools.tools is None else {"tools": tools.tools}
        return CheckedOrder(order, folder, notes=tools.notes)

    # --- going on -------------------------------------------------------------------------------

    async def _earlier(self, given: Mapping[str, Any], sees: Sight) -> _From:
        named = str(given.get("resume") or given.get("continue_from_task_id"))
        if named.startswith("-") or not named.isprintable():
            raise BadArgumentError(
                "No id begins with a dash or holds control characters: the agent's program would"
                " take it for a flag.",
                hint="Give the id as agent_status or `why` names it.",
            )
        try:
            look: RunSnapshot | None = await self._desk.look(named, sees)
        except UnreadableError:
            look = None
        if look is not None:
            return await self._from_ours(look, has_prompt=bool(given.get("prompt")))
        if given.get("resume"):
            if given.get("runner") == _CODEX:
                if sees(await _read_aside(folder_of_thread, named, self._environ)):
                    return _From({"resume": named, "prompt": "Go on from where you were cut off."})
                raise _unknown(named)
            remains = await self._remains(resume_point_of_session, named, sees)
            more: JsonObject = {"resume": named}
        else:
            remains = await self._remains(resume_point_of_agent, named, sees)
            more = {"continues": named}
        if remains is None:
            raise _unknown(named)
        await self._check_first({named}, (RunState.FAILED, RunState.CANCELLED))
        return _From(_order_of(remains) | more)

    async def _remains(
        self,
        find: Callable[[str, Mapping[str, str], float, Sight], ResumePoint | None],
        named: str,
        sees: Sight,
    ) -> ResumePoint | None:
        """What is left of it; the client writes the end a moment after it has told of it."""
        until = self._clock.monotonic() + _WRITTEN_WITHIN
        while True:
            now = self._clock.wall()
            try:
                return await _read_aside(find, named, self._environ, now, sees)
            except MaybeAliveError:
                if self._clock.monotonic() >= until:
                    raise
            await self._clock.sleep(_LOOK_AGAIN)

    async def _from_ours(self, look: RunSnapshot, *, has_prompt: bool) -> _From:
        record = look.record
        named = record.run_id
        if not has_prompt or record.state not in ENDED:
            must_be_of_models(record, "resume")
        if not look.settled and self._desk.is_carried(look):
            if record.state is not RunState.PARKED:
                raise UsageError(
                    f"The run {named} is at work: going on with it now would do its work twice.",
                    hint=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
                )
            raise UsageError(
                f"The run {named} is parked ({record.why}) and goes on by itself.",
                hint=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
            )
        calls = look.chosen
        completed = bool(calls) and all(call.state is CallState.DONE for call in calls)
        if not has_prompt:
            if completed:
                raise BadArgumentError(
                    f"It has completed (run {named}).",
                    hint="Give a prompt that says what it is to do next.",
                )
            return _From({}, look)
        if record.state not in ENDED:
            raise UsageError(
                f"The run {named} has not ended: it is {record.state.value}.",
                hint="Leave the prompt out to go on with its own task, or agent_cancel it first.",
            )
        if len(calls) != 1:
            raise BadArgumentError(
                f"The run {named} has {len(calls)} agents.",
                hint="Give the task id of the one to go on with; agent_status tells them.",
            )
        names = {calls[0].task_id, session_of(calls[0])}
        await self._check_first(names, tuple(ENDED))
        theirs = [order for order in look.orders if order["label"] == calls[0].label]
        kept = ("runner", "cwd", "model", "system", "tools")
        order = {name: one[name] for one in theirs for name in kept if name in one}
        return _From(order | {"continue_from": calls[0].task_id})

    async def _check_first(self, names: Collection[str], past: Collection[RunState]) -> None:
        """Nobody else must be at the same work; one whose state is `past` is not in the way."""
        for record in await self._desk.gone_on_with(names):
            if record.state not in past:
                raise UsageError(
                    f"The run {record.run_id} goes on with it already, and is"
                    f" {record.state.value}.",
                    hint=f'agent_status(ids=["{record.run_id}"]) tells how it stands.',
                )

    async def _depth(self, caller: ToolCaller, deepest: int) -> int:
        """How deep the agent would be; RefusedError when that is too deep."""
        depth = await self._desk.depth_of(caller.session, caller.parent_task) + 1
        if depth > deepest:
            raise RefusedError(
                f"An agent that was started {deepest} deep may start no further ones.",
                hint="Do the work yourself. The user may allow more in their own jackline.toml:"
                f" agents.depth = {depth}",
            )
        return depth

    async def _definition(
        self, given: Mapping[str, Any], before: JsonObject, project: Path
    ) -> AgentDefinition:
        claude = ClientFolders.of_process(self._environ).claude

        def found(name: str) -> AgentDefinition:
            folders = definition_folders(project, claude)
            return definition_of(name, folders, definitions_of_plugins(project, claude))

        if name := given.get("subagent_type"):
            return await _read_aside(found, str(name))
        earlier = before.pop("agent_type", None)
        if earlier is None:
            return AgentDefinition("")
        try:
            return await _read_aside(found, str(earlier))
        except BadArgumentError:
            # Gone since, or the client's own: its conversation tells enough to go on.
            return AgentDefinition("")

    # --- single arguments -----------------------------------------------------------------------

    def _schema(self, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            build_validator(schema)
        return schema

    async def _allow_releases(
        self, given: Mapping[str, Any], folder: Path, project: Path | None
    ) -> list[str]:
        """What permits the order's clean-up commands, to be asked again when they run."""
        asked = (each.get("release") for each in (given, *given.get("resources", ())))
        commands = [str(command) for command in asked if command]
        allow = self._settings().batch.allow
        trusted = chosen_folders(project, self._settings().agents)
        for command in commands:
            if denied := await denial(command, folder, allow, trusted):
                raise RefusedError(
                    f"The release command may not run: {denied.why}.",
                    hint=f"{denied.hint}: batch.allow in the user's own jackline.toml.",
                )
        return list(allow) if commands else []


def _check_runner(runner: str, settings: AgentSettings) -> None:
    """RefusedError unless the user named it: each has permissions and costs of its own."""
    if runner not in (settings.runner, *settings.runners):
        raise RefusedError(
            f"The user has not allowed models the runner {runner}.",
            hint=f"Leave `runner` out: agents are carried by {settings.runner}. The user may allow"
            f' it in their own jackline.toml: agents.runners = ["{runner}"]',
        )


def _unknown(named: str) -> UnreadableError:
    return UnreadableError(
        f"No agent, sub-agent or session of this project has the id {named!r}.",
        hint="agent_status lists ours; `why` finds those of Claude Code. The user can look at other"
        " projects' in a terminal: jackline show ID, jackline why ID",
    )


def session_of(call: CallRecord) -> str:
    """The session in which an agent worked."""
    kept = decode_outcome(call.outcome).session_id if call.outcome else ""
    return kept or session_id_of(call.task_id)


def check_group(orders: Sequence[JsonObject]) -> None:
    """Make the labels of a group tell its agents apart; no two go on with the same one."""
    names = [order[part] for order in orders for part in CONTINUED_FROM if part in order]
    if len(names) > len(set(map(str, names))):
        raise BadArgumentError("Two of these agents would go on with the same one.")
    seen: dict[str, int] = {}
    for order in orders:
        label = str(order["label"])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            order["label"] = f"{label} {seen[label]}"


def _order_of(remains: ResumePoint) -> JsonObject:
    order: JsonObject = {"prompt": remains.prompt, "runner": _CLAUDE}
    found = {"cwd": remains.cwd, "model": remains.model, "agent_type": remains.agent_type}
    return order | {name: value for name, value in found.items() if value}


def _budget(given: Mapping[str, Any] | None) -> JsonObject | None:
    if not given:
        return None
    budget = {name: value for name, value in given.items() if name != "minutes"}
    if "minutes" in given:
        budget["seconds"] = given["minutes"] * 60.0
    return budget
