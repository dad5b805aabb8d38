"""Check what a model wants to start, and turn it into orders that any process can run.

Rules: (1) whatever makes no sense, does not exist or is not allowed is refused before anything
starts; (2) an earlier agent is continued once: one that works, or that was continued already, is
named instead; (3) a dead sub-agent or session of Claude Code is only read, and one that may be
alive is left alone; the agent that continues it learns what was finished and what may or may not
have run; (4) an order is plain data: everything that it depends on is looked up now.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from jackline.agents.claude_code.tool_rules import base_of as base_name
from jackline.agents.prices import is_alias
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
from jackline.mcp_server.agent_manager import CONTINUED_FROM, AgentManager, RunSnapshot
from jackline.mcp_server.model_tool import JsonObject, ToolCaller
from jackline.mcp_server.permissions import Sight, ToolSettings, check_nested, offered, offered_to
from jackline.outside_names import printable
from jackline.transcripts.saved_conversation import DeadAgent, folder_of_thread, read_dead_agent
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
    """What is left of an agent or session of Claude Code, as far as going on needs it."""

    prompt: str
    """With which another goes on."""
    cwd: str | None
    model: str | None
    agent_type: str | None = None

    @classmethod
    def of_agent(
        cls, agent_id: str, environ: Mapping[str, str], now: float, sees: Sight
    ) -> ResumePoint | None:
        """That of a sub-agent; None when there is no such transcript, or it is not seen."""
        if not _ID.fullmatch(agent_id):
            return None
        agent_id = agent_id.removeprefix("agent-")
        name = f"agent-{agent_id}.jsonl"
        projects = ClientFolders.of_process(environ).claude / "projects"
        found = [*projects.glob(f"*/*/subagents/**/{name}"), *projects.glob(f"*/{name}")]
        if len(found) > 1:
            raise UnreadableError(f"Several sub-agents have the id {agent_id}.")
        if not found:
            return None
        dead = read_dead_agent(found[0])
        story = dead.story
        if not sees(story.cwd):
            return None
        _check_dead(story, found[0], now, f"The sub-agent {dead.agent_id}")
        return cls(_prompt_after(dead), story.cwd, story.model, story.agent_type)

    @classmethod
    def of_session(
        cls, session_id: str, environ: Mapping[str, str], now: float, sees: Sight
    ) -> ResumePoint | None:
        """That of a session; None when none of that id is seen."""
        path = ClientFolders.of_process(environ).claude_transcript(session_id)
        if path is None:
            return None
        story = read_dead_agent(path).story
        if not sees(story.cwd):
            return None
        _check_dead(story, path, now, f"The session {session_id}")
        prompt = "Go on with your task from where you were cut off, to its end."
        return cls(prompt, story.cwd, story.model)

    def order(self) -> JsonObject:
        """The order that goes on with it."""
        # The client's own texts name no model: `<synthetic>`.
        model = None if self.model is None or self.model.startswith("<") else self.model
        known = {"cwd": self.cwd, "model": model, "agent_type": self.agent_type}
        order: JsonObject = {"prompt": self.prompt, "runner": "claude-code"}
        return order | {name: value for name, value in known.items() if value}


class MaybeAliveError(UsageError):
    """The transcript has not ended, and was written to a moment ago."""


async def _read_aside(read: Callable[..., _T], *of: object) -> _T:
    """What it read, in a thread that does not hold the end of the service."""
    return await in_own_thread(partial(read, *of), "jackline-read")


def _check_dead(story: AgentStory, path: Path, now: float, named: str) -> None:
    """Only what was cut off is gone on with: a session that finished waits for its user."""
    if story.ending is TranscriptEnd.CUT and now - path.stat().st_mtime < _FRESH:
        raise MaybeAliveError(
            f"{path.stem} was at work a moment ago, and may be alive.",
            hint="Try again a minute after its last activity.",
        )
    if story.ending is TranscriptEnd.FINISHED:
        raise UsageError(
            f"{named} finished; nothing was cut off.",
            hint="Use its result, or start a new agent.",
        )


def _prompt_after(dead: DeadAgent) -> str:
    calls = [(call, dead.results[call.id]) for turn in dead.turns for call in turn.calls]
    # Every call is listed; how much of what each gave depends on how many there are.
    room = max(_LEAST_TOLD, _MOST_TOLD // max(1, len(calls)))
    finished = [(call, result[:room]) for call, result in calls]
    texts = [turn.text for turn in dead.turns if turn.text]
    fatal = [seen.text for seen in dead.story.failures if seen.fatal]
    cut = f": {fatal[-1]}" if fatal else "."
    happened = f"Another agent had this task before you and was cut off{cut}"
    if texts:
        happened += "\n\nWhat it said on its way, the latest last:\n" + "\n".join(
            f"- {text[:room]}" for text in texts
        )
    return resume_prompt(happened, dead.lost, finished=finished, task=dead.prompt)


_WRITTEN_WITHIN = 8.0
_LOOK_AGAIN = 0.25


@dataclass(frozen=True, slots=True)
class _Claim:
    """An earlier agent that an order goes on with, and nobody else may."""

    names: frozenset[str]
    """Its ids."""
    past: tuple[RunState, ...]
    """The states of an earlier continuation that is not in the way."""


@dataclass(frozen=True, slots=True)
class _Continued:
    """What an order takes over from an earlier agent."""

    order: JsonObject
    claim: _Claim | None = None


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """An order for a new run, or an earlier run to be taken up as it is."""

    order: JsonObject
    folder: Path
    earlier: RunSnapshot | None = None
    claim: _Claim | None = None
    notes: tuple[str, ...] = ()
    """What was not done as asked."""


class OrderIntake:
    """Takes orders."""

    def __init__(
        self,
        manager: AgentManager,
        settings: Callable[[], ToolSettings],
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._manager = manager
        self._settings = settings
        self._environ = environ
        self._clock = clock

    async def take(
        self,
        arguments: Mapping[str, Any],
        caller: ToolCaller,
        label: str = "",
        together: int = 0,
    ) -> CheckedOrder:
        """The order, checked; `label` is for one that was given none, `together` as in
        `build_validator`.
        """
        resume, continued = arguments.get("resume"), arguments.get("continue_from_task_id")
        if resume and continued:
            raise BadArgumentError(
                "An agent goes on from one place.",
                hint="Give resume or continue_from_task_id, not both.",
            )
        if not arguments.get("prompt") and not (resume or continued):
            raise BadArgumentError("An agent needs a prompt.", hint="Say what it should do.")
        settings = self._settings().agents
        settings.check_runner(arguments.get("runner") or settings.runner)
        found: _Continued | RunSnapshot = _Continued({})
        if caller.session and caller.session in (resume, continued):
            raise BadArgumentError(
                "That is the id of this very session, which is alive.",
                hint="Give the id of an agent that was cut off.",
            )
        if resume or continued:
            found = await self._earlier(arguments, settings.sight_of(caller.folder))
        if isinstance(found, RunSnapshot):
            return CheckedOrder({}, Path(found.record.cwd), found)
        before = found.order
        cwd = cast("str | None", arguments.get("cwd") or before.get("cwd"))
        folder = await asyncio.to_thread(settings.working_folder, cwd, caller.folder)
        project = await self._manager.project_of(caller)
        definition = await self._definition(arguments, before, project or folder)
        order: dict[str, Any] = {**before, "cwd": str(folder)}
        order["depth"] = await self._depth(caller, settings.depth)
        order["prompt"] = arguments.get("prompt") or order["prompt"]
        order["label"] = arguments.get("label") or label or definition.name or "agent"
        order["runner"] = arguments.get("runner") or order.get("runner") or settings.runner
        settings.check_runner(order["runner"])
        if order["runner"] != "messages":
            trusted = settings.base_of(folder, project)
            await check_nested(folder, trusted)
            order["trusted"] = str(trusted)
        earlier = order.pop("tools", None)
        if arguments.get("tools") is not None:
            tools = offered(arguments["tools"], order["runner"], settings)
        else:
            if definition.tools is None and earlier is not None:
                definition = replace(definition, tools=tuple(map(base_name, earlier)))
            tools = offered_to(definition, order["runner"], settings)
        model = arguments.get("model") or definition.model or order.get("model") or settings.model
        if model and model != settings.model:
            await self._check_model(str(model), order["runner"])
        if arguments.get("schema") is not None:
            build_validator(arguments["schema"], together)
        chosen: dict[str, Any] = {
            "model": model,
            "system": definition.system or order.get("system"),
            "schema": arguments.get("schema"),
            "budget": _budget(arguments.get("budget")),
            "release": arguments.get("release"),
            "resources": list(arguments.get("resources", ())),
            "project": None if project is None else str(project),
            "allowed_by": await self._allow_releases(arguments, folder, project),
        }
        order |= {name: value for name, value in chosen.items() if value}
        # Also an empty list: to leave that out would offer every tool.
        order |= {} if tools.tools is None else {"tools": tools.tools}
        return CheckedOrder(order, folder, notes=tools.notes, claim=found.claim)

    async def check_again(self, checked: CheckedOrder, caller: ToolCaller) -> CheckedOrder:
        """The same order; UsageError when somebody has gone on with its earlier agent meanwhile.

        It waits for nobody, so that orders can be checked again and begun one by one.
        """
        if checked.claim is not None:
            await self._check_first(checked.claim)
        if checked.earlier is None:
            return checked
        sees = self._settings().agents.sight_of(caller.folder)
        now = await self._manager.snapshot(checked.earlier.record.run_id, sees)
        now = replace(now, label=checked.earlier.label)
        await self._from_ours(now, has_prompt=False)
        return replace(checked, earlier=now)

    async def _check_model(self, model: str, runner: str) -> None:
        if model.startswith("-"):
            raise BadArgumentError(
                "A model's name does not begin with a dash: the agent's program would take it for"
                " a flag.",
                hint="Give the name of a model, or leave it out.",
            )
        if runner == "claude-code" and is_alias(model):
            return
        if not await self._manager.can_count(model):
            raise BadArgumentError(
                f"The price of {printable(model)} is not known, and a limit in dollars holds here,"
                " which would not count it.",
                hint="Leave the model out, or name one with a known price. The user can give it one"
                " under [prices] in their own jackline.toml.",
            )

    # --- going on -------------------------------------------------------------------------------

    async def _earlier(self, arguments: Mapping[str, Any], sees: Sight) -> _Continued | RunSnapshot:
        """What an order takes over from an earlier agent; or the run to be taken up as it is."""
        named = str(arguments.get("resume") or arguments.get("continue_from_task_id"))
        if named.startswith("-") or not named.isprintable():
            raise BadArgumentError(
                "No id begins with a dash or holds control characters: the agent's program would"
                " take it for a flag.",
                hint="Give the id as agent_status or `why` names it.",
            )
        try:
            snapshot: RunSnapshot | None = await self._manager.snapshot(named, sees)
        except UnreadableError:
            snapshot = None
        if snapshot is not None:
            return await self._from_ours(snapshot, has_prompt=bool(arguments.get("prompt")))
        if arguments.get("resume"):
            if arguments.get("runner") == "codex":
                if sees(await _read_aside(folder_of_thread, named, self._environ)):
                    prompt = "Go on from where you were cut off."
                    return _Continued({"resume": named, "prompt": prompt})
                raise _unknown(named)
            point = await self._resume_point(ResumePoint.of_session, named, sees)
            more: JsonObject = {"resume": named}
        else:
            point = await self._resume_point(ResumePoint.of_agent, named, sees)
            more = {"continues": named}
        if point is None:
            raise _unknown(named)
        claim = _Claim(frozenset({named}), (RunState.FAILED, RunState.CANCELLED))
        await self._check_first(claim)
        return _Continued(point.order() | more, claim)

    async def _resume_point(
        self,
        find: Callable[[str, Mapping[str, str], float, Sight], ResumePoint | None],
        named: str,
        sees: Sight,
    ) -> ResumePoint | None:
        """What is left of it; the client writes the end a moment after it has reported it."""
        until = self._clock.monotonic() + _WRITTEN_WITHIN
        while True:
            now = self._clock.wall()
            try:
                return await _read_aside(find, named, self._environ, now, sees)
            except MaybeAliveError:
                if self._clock.monotonic() >= until:
                    raise
            await self._clock.sleep(_LOOK_AGAIN)

    async def _from_ours(
        self, snapshot: RunSnapshot, *, has_prompt: bool
    ) -> _Continued | RunSnapshot:
        record = snapshot.record
        named = record.run_id
        if not has_prompt or record.state not in ENDED:
            snapshot.check_of_models("resume")
        if not snapshot.settled and self._manager.is_running(snapshot):
            if record.state is not RunState.PARKED:
                raise UsageError(
                    f"The run {named} is at work: going on with it now would do its work twice.",
                    hint=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
                )
            raise UsageError(
                f"The run {named} is parked ({record.why}) and goes on by itself.",
                hint=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
            )
        calls = snapshot.chosen
        completed = bool(calls) and all(call.state is CallState.DONE for call in calls)
        if not has_prompt:
            if completed:
                raise BadArgumentError(
                    f"It has completed (run {named}).",
                    hint="Give a prompt that says what it should do next.",
                )
            return snapshot
        if record.state not in ENDED:
            raise UsageError(
                f"The run {named} has not ended: it is {record.state.value}.",
                hint="Leave the prompt out to go on with its own task, or agent_cancel it first.",
            )
        if len(calls) != 1:
            raise BadArgumentError(
                f"The run {named} has {len(calls)} agents.",
                hint="Give the task id of the one to go on with; agent_status lists them.",
            )
        claim = _Claim(frozenset({calls[0].task_id, session_of(calls[0])}), tuple(ENDED))
        await self._check_first(claim)
        same = ("runner", "cwd", "model", "system", "tools")
        order = snapshot.order_of(calls[0].label)
        order = {name: order[name] for name in same if name in order}
        return _Continued(order | {"continue_from": calls[0].task_id}, claim)

    async def _check_first(self, claim: _Claim) -> None:
        """UsageError while somebody else is at the same work."""
        for record in await self._manager.continuations_of(claim.names):
            if record.state not in claim.past:
                raise UsageError(
                    f"The run {record.run_id} goes on with it already, and is"
                    f" {record.state.value}.",
                    hint=f'agent_status(ids=["{record.run_id}"]) shows its state.',
                )

    async def _depth(self, caller: ToolCaller, deepest: int) -> int:
        """How deep the agent would be; RefusedError when that is too deep."""
        depth = await self._manager.depth_of(caller.session, caller.parent_task) + 1
        if depth > deepest:
            raise RefusedError(
                f"An agent that was started {deepest} deep may start no further ones.",
                hint="Do the work yourself. The user may allow more in their own jackline.toml:"
                f" agents.depth = {depth}",
            )
        return depth

    async def _definition(
        self, arguments: Mapping[str, Any], before: JsonObject, project: Path
    ) -> AgentDefinition:
        claude = ClientFolders.of_process(self._environ).claude

        def found(name: str) -> AgentDefinition:
            folders = definition_folders(project, claude)
            return definition_of(name, folders, definitions_of_plugins(project, claude))

        if name := arguments.get("subagent_type"):
            return await _read_aside(found, str(name))
        earlier = before.pop("agent_type", None)
        if earlier is None:
            return AgentDefinition("")
        try:
            return await _read_aside(found, str(earlier))
        except BadArgumentError:
            # Gone since, or the client's own: its conversation holds enough to go on.
            return AgentDefinition("")

    # --- single arguments -----------------------------------------------------------------------

    async def _allow_releases(
        self, arguments: Mapping[str, Any], folder: Path, project: Path | None
    ) -> list[str]:
        """What permits the order's clean-up commands, to be asked again when they run."""
        releases = (each.get("release") for each in (arguments, *arguments.get("resources", ())))
        commands = [str(command) for command in releases if command]
        allow = self._settings().batch.allow
        trusted = self._settings().agents.chosen_folders(project)
        for command in commands:
            if denied := await denial(command, folder, allow, trusted):
                raise RefusedError(
                    f"The release command may not run: {denied.why}.",
                    hint=f"{denied.hint}: batch.allow in the user's own jackline.toml.",
                )
        return list(allow) if commands else []


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
    """Make the labels of a group distinguish its agents; no two go on with the same one."""
    names = [order[part] for order in orders for part in CONTINUED_FROM if part in order]
    if len(names) > len(set(map(str, names))):
        raise BadArgumentError("Two of these agents would go on with the same one.")
    seen: dict[str, int] = {}
    for order in orders:
        label = str(order["label"])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            order["label"] = f"{label} {seen[label]}"


def _budget(arguments: Mapping[str, Any] | None) -> JsonObject | None:
    if not arguments:
        return None
    budget = {name: value for name, value in arguments.items() if name != "minutes"}
    if "minutes" in arguments:
        budget["seconds"] = arguments["minutes"] * 60.0
    return budget
