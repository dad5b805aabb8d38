"""Turn what a model asks for into orders that any process can carry out.

Laws: (1) what cannot be meant, found or allowed is said before anything starts; (2) whoever goes on
with an earlier agent does so once: one that is at work, or that was gone on with, is named instead;
(3) an order is plain data: whatever its meaning depends on is looked up now.
Not here: the schema of the arguments (tools/agents.py), carrying orders (agent_desk.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from jackline.agents.claude_code.tool_rules import base_of as base_name
from jackline.agents.claude_code.transcript import config_folder
from jackline.agents.codex.rollout import folder_of_thread
from jackline.agents.json_schema import build_validator
from jackline.clock import Clock
from jackline.errors import BadArgumentError, RefusedError, UnreadableError, UsageError
from jackline.flows.cleanup.allowed_commands import denial
from jackline.flows.keys import session_id_of
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import ENDED, CallRecord, CallState, RunState
from jackline.mcp_server.agent_definitions import (
    AgentDefinition,
    definition_folders,
    definition_of,
)
from jackline.mcp_server.agent_desk import GOING_ON, AgentDesk
from jackline.mcp_server.dead_agents import (
    MaybeAliveError,
    Remains,
    remains_of_agent,
    remains_of_session,
)
from jackline.mcp_server.model_tool import Caller, JsonObject
from jackline.mcp_server.nested_folders import check_nested
from jackline.mcp_server.offered_tools import offered, offered_to
from jackline.mcp_server.places import (
    Sight,
    base_of,
    chosen_folders,
    sight_of,
    working_folder,
)
from jackline.mcp_server.plugin_definitions import definitions_of_plugins
from jackline.mcp_server.run_look import Look, must_be_of_models
from jackline.mcp_server.settings import AgentSettings, ToolSettings

_CLAUDE, _CODEX, _MESSAGES = "claude-code", "codex", "messages"
_WRITTEN_WITHIN = 8.0
_LOOK_AGAIN = 0.25


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order for a new run, or an earlier run to be taken up as it is."""

    order: JsonObject
    folder: Path
    earlier: Look | None = None
    notes: tuple[str, ...] = ()
    """What was not done as asked."""


@dataclass(frozen=True, slots=True)
class _From:
    """What an order takes over from an earlier agent."""

    order: JsonObject
    look: Look | None = None


class OrderDesk:
    """Takes orders."""

    def __init__(
        self,
        desk: AgentDesk,
        settings: Callable[[], ToolSettings],
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._settings = settings
        self._environ = environ
        self._clock = clock

    async def take(self, given: Mapping[str, Any], caller: Caller, label: str = "") -> Ordered:
        """The order, checked; `label` is for one that was given none."""
        resume, continued = given.get("resume"), given.get("continue_from_task_id")
        if resume and continued:
            raise BadArgumentError(
                "An agent goes on from one place.",
                next="Give resume or continue_from_task_id, not both.",
            )
        if not given.get("prompt") and not (resume or continued):
            raise BadArgumentError("An agent needs a prompt.", next="Say what it is to do.")
        settings = self._settings().agents
        _check_runner(given.get("runner") or settings.runner, settings)
        before = _From({})
        if caller.session and caller.session in (resume, continued):
            raise BadArgumentError(
                "That is the id of this very session, which is alive.",
                next="Give the id of an agent that was cut off.",
            )
        if resume or continued:
            before = await self._earlier(given, sight_of(caller.folder, settings))
        if before.look is not None:
            return Ordered({}, Path(before.look.record.cwd), before.look)
        asked = given.get("cwd") or before.order.get("cwd")
        folder = working_folder(cast("str | None", asked), caller.folder, settings)
        definition = await self._definition(given, before.order, caller.folder or folder)
        order: dict[str, Any] = {**before.order, "cwd": str(folder)}
        order["depth"] = await self._depth(caller, settings.depth)
        order["prompt"] = given.get("prompt") or order["prompt"]
        order["label"] = given.get("label") or label or definition.name or "agent"
        order["runner"] = given.get("runner") or order.get("runner") or settings.runner
        _check_runner(order["runner"], settings)
        if order["runner"] != _MESSAGES:
            trusted = base_of(folder, caller.folder, settings) or folder
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
                next="Give the name of a model, or leave it out.",
            )
        chosen: dict[str, Any] = {
            "model": model,
            "system": definition.system or order.get("system"),
            "schema": self._schema(given.get("schema")),
            "budget": _budget(given.get("budget")),
            "release": given.get("release"),
            "resources": list(given.get("resources", ())),
            "allowed_by": await self._allow_releases(given, folder, caller.folder),
        }
        order |= {name: value for name, value in chosen.items() if value}
        # Also an empty list: to leave that out would offer every tool.
        order |= {} if tools.tools is None else {"tools": tools.tools}
        return Ordered(order, folder, notes=tools.notes)

    # --- going on -------------------------------------------------------------------------------

    async def _earlier(self, given: Mapping[str, Any], sees: Sight) -> _From:
        named = str(given.get("resume") or given.get("continue_from_task_id"))
        if named.startswith("-") or not named.isprintable():
            raise BadArgumentError(
                "No id begins with a dash or holds control characters: the agent's program would"
                " take it for a flag.",
                next="Give the id as agent_status or `why` names it.",
            )
        try:
            look: Look | None = await self._desk.look(named, sees)
        except UnreadableError:
            look = None
        if look is not None:
            return await self._from_ours(look, has_prompt=bool(given.get("prompt")))
        if given.get("resume"):
            if given.get("runner") == _CODEX:
                if sees(await asyncio.to_thread(folder_of_thread, named, self._environ)):
                    return _From({"resume": named, "prompt": "Go on from where you were cut off."})
                raise _unknown(named)
            remains = await self._remains(remains_of_session, named, sees)
            more: JsonObject = {"resume": named}
        else:
            remains = await self._remains(remains_of_agent, named, sees)
            more = {"continues": named}
        if remains is None:
            raise _unknown(named)
        await self._check_first({named}, (RunState.FAILED, RunState.CANCELLED))
        return _From(_order_of(remains) | more)

    async def _remains(
        self,
        find: Callable[[str, Mapping[str, str], float, Sight], Remains | None],
        named: str,
        sees: Sight,
    ) -> Remains | None:
        """What is left of it; the client writes the end a moment after it has told of it."""
        until = self._clock.monotonic() + _WRITTEN_WITHIN
        while True:
            now = self._clock.wall()
            try:
                return await asyncio.to_thread(find, named, self._environ, now, sees)
            except MaybeAliveError:
                if self._clock.monotonic() >= until:
                    raise
            await self._clock.sleep(_LOOK_AGAIN)

    async def _from_ours(self, look: Look, *, has_prompt: bool) -> _From:
        record = look.record
        named = record.run_id
        if not has_prompt or record.state not in ENDED:
            must_be_of_models(record, "resume")
        if not look.settled and self._desk.is_carried(look):
            if record.state is not RunState.PARKED:
                raise UsageError(
                    f"The run {named} is at work: going on with it now would do its work twice.",
                    next=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
                )
            raise UsageError(
                f"The run {named} is parked ({record.why}) and goes on by itself.",
                next=f'agent_wait(ids=["{named}"]) waits for it, agent_cancel ends it.',
            )
        calls = look.chosen
        completed = bool(calls) and all(call.state is CallState.DONE for call in calls)
        if not has_prompt:
            if completed:
                raise BadArgumentError(
                    f"It has completed (run {named}).",
                    next="Give a prompt that says what it is to do next.",
                )
            return _From({}, look)
        if record.state not in ENDED:
            raise UsageError(
                f"The run {named} has not ended: it is {record.state.value}.",
                next="Leave the prompt out to go on with its own task, or agent_cancel it first.",
            )
        if len(calls) != 1:
            raise BadArgumentError(
                f"The run {named} has {len(calls)} agents.",
                next="Give the task id of the one to go on with; agent_status tells them.",
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
                    next=f'agent_status(ids=["{record.run_id}"]) tells how it stands.',
                )

    async def _depth(self, caller: Caller, deepest: int) -> int:
        """How deep the agent would be; RefusedError when that is too deep."""
        depth = await self._desk.depth_of(caller.session) + 1
        if depth > deepest:
            raise RefusedError(
                f"An agent that was started {deepest} deep may start no further ones.",
                next="Do the work yourself. The user may allow more in their own jackline.toml:"
                f" agents.depth = {depth}",
            )
        return depth

    async def _definition(
        self, given: Mapping[str, Any], before: JsonObject, project: Path
    ) -> AgentDefinition:
        claude = config_folder(self._environ)

        def found(name: str) -> AgentDefinition:
            folders = definition_folders(project, claude)
            return definition_of(name, folders, definitions_of_plugins(project, claude))

        if name := given.get("subagent_type"):
            return await asyncio.to_thread(found, str(name))
        earlier = before.pop("agent_type", None)
        if earlier is None:
            return AgentDefinition("")
        try:
            return await asyncio.to_thread(found, str(earlier))
        except BadArgumentError:
            # Gone since, or the client's own: its conversation tells enough to go on.
            return AgentDefinition("")

    # --- single arguments -----------------------------------------------------------------------

    def _schema(self, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            build_validator(schema)
        return schema

    async def _allow_releases(
        self, given: Mapping[str, Any], folder: Path, client: Path | None
    ) -> list[str]:
        """What permits the order's clean-up commands, to be asked again when they run."""
        asked = (each.get("release") for each in (given, *given.get("resources", ())))
        commands = [str(command) for command in asked if command]
        allow = self._settings().batch.allow
        trusted = chosen_folders(client, self._settings().agents)
        for command in commands:
            if denied := await denial(command, folder, allow, trusted):
                raise RefusedError(
                    f"The release command may not run: {denied.why}.",
                    next=f"{denied.next}: batch.allow in the user's own jackline.toml.",
                )
        return list(allow) if commands else []


def _check_runner(runner: str, settings: AgentSettings) -> None:
    """RefusedError unless the user named it: each has permissions and costs of its own."""
    if runner not in (settings.runner, *settings.runners):
        raise RefusedError(
            f"The user has not allowed models the runner {runner}.",
            next=f"Leave `runner` out: agents are carried by {settings.runner}. The user may allow"
            f' it in their own jackline.toml: agents.runners = ["{runner}"]',
        )


def _unknown(named: str) -> UnreadableError:
    return UnreadableError(
        f"No agent, sub-agent or session of this project has the id {named!r}.",
        next="agent_status lists ours; `why` finds those of Claude Code. The user can look at other"
        " projects' in a terminal: jackline show ID, jackline why ID",
    )


def session_of(call: CallRecord) -> str:
    """The session in which an agent worked."""
    kept = decode_outcome(call.outcome).session_id if call.outcome else ""
    return kept or session_id_of(call.task_id)


def check_group(orders: Sequence[JsonObject]) -> None:
    """Make the labels of a group tell its agents apart; no two go on with the same one."""
    names = [order[part] for order in orders for part in GOING_ON if part in order]
    if len(names) > len(set(map(str, names))):
        raise BadArgumentError("Two of these agents would go on with the same one.")
    seen: dict[str, int] = {}
    for order in orders:
        label = str(order["label"])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            order["label"] = f"{label} {seen[label]}"


def _order_of(remains: Remains) -> JsonObject:
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
