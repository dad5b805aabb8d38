"""The tools `agent`, `agents`, `agent_wait`, `agent_status` and `agent_cancel`.

Rules: (1) the answer comes before the client's patience ends, with an id if the work goes on; (2) a
call that the client cancels cancels its agents, unless they run in the background; a lost client
cancels nothing; (3) ids are those of runs, tasks or sessions, whoever started them; (4) an end that
was reported here is not announced again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from jackline.agents.structured_answer import check_group as check_schemas
from jackline.batches.commands import LONGEST_LINE
from jackline.clock import Clock
from jackline.errors import BadArgumentError, RefusedError, UsageError
from jackline.mcp_server.agent_manager import AgentManager, RunSnapshot
from jackline.mcp_server.agent_orders import CheckedOrder, OrderIntake, check_group
from jackline.mcp_server.agent_results import listed, run_reply, runs_reply
from jackline.mcp_server.model_tool import JsonObject, ModelTool, ToolCaller, ToolReply
from jackline.mcp_server.permissions import AgentSettings
from jackline.outside_names import LONGEST_PATH

MOST_AGENTS = 200
_MOST_TOOLS = 500
_MOST_RESOURCES = 20
_TEXT: JsonObject = {"type": "string", "minLength": 1}
_QUIET_PATIENCE = 240.0
"""Claude Code's patience for servers that send it nothing, less a minute."""
_SHARE_OF_PATIENCE = 0.8


def text(description: str, longest: int | None = LONGEST_PATH) -> JsonObject:
    """The schema of an argument that is text; by default a name or a path."""
    bound = {} if longest is None else {"maxLength": longest}
    return {**_TEXT, **bound, "description": description}


def object_schema(properties: dict[str, JsonObject], *required: str) -> JsonObject:
    """The schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_ORDER: dict[str, JsonObject] = {
    "prompt": text(
        "What the agent is to do, with all it needs to know: it sees nothing else.", None
    ),
    "subagent_type": text(
        "One of the user's or the project's agent definitions (.claude/agents/NAME.md), or of an"
        " enabled plugin's (PLUGIN:NAME)."
    ),
    "schema": {
        "type": "object",
        "description": "JSON Schema that the answer must fit; without one the answer is text.",
    },
    "model": text("The model; by default the definition's, or the configured one."),
    "runner": {
        "enum": ["claude-code", "codex", "messages"],
        "description": "Who carries it: Claude Code or Codex with their tools, or a bare"
        " conversation (messages). By default the configured one; others only if the user allowed"
        " them.",
    },
    "cwd": text(
        "Where it works: a folder at or below the project's that brings no settings of its own."
    ),
    "tools": {
        "type": "array",
        "items": {**_TEXT, "maxLength": LONGEST_PATH},
        "maxItems": _MOST_TOOLS,
        "description": "The only tools it is offered, by Claude Code's names without brackets. What"
        " the user did not allow is asked of the user's own settings, and else denied.",
    },
    "budget": {
        "type": "object",
        "description": "What it may use; the next call is refused, not the last one undone.",
        "properties": {
            "tokens": {"type": "integer", "minimum": 1},
            "dollars": {"type": "number", "minimum": 0},
            "turns": {"type": "integer", "minimum": 1},
            "minutes": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Of its own work: waiting does not count.",
            },
            "strict": {
                "type": "boolean",
                "description": "Never pass tokens and dollars: each call reserves the most that it"
                " can use. Only for agents that Jackline runs itself.",
            },
        },
        "additionalProperties": False,
    },
    "label": text("A short name for it in lists."),
    "resume": text(
        "Go on with this session, by its session id: of an earlier agent, or of a session of"
        " Claude Code that died. The prompt may be left out."
    ),
    "continue_from_task_id": text(
        "Go on with an agent that was cut off, by its task id or run id; also by the agent id of"
        " one of Claude Code's own sub-agents that died: it is continued from its transcript, and"
        " given what was finished. Leave the prompt out to go on with its own task."
    ),
    "release": text(
        "A command that gives back what the agent rented; run at every end of it, whatever ended"
        " it, with the variables JACKLINE_TERMINATED_BY, JACKLINE_TASK_ID and JACKLINE_RUN_ID and"
        " no input. A hook runs at least once per ending, each time with the same idempotency key."
        " Only commands that the user allowed.",
        LONGEST_LINE,
    ),
    "resources": {
        "type": "array",
        "maxItems": _MOST_RESOURCES,
        "description": "What is rented for it, and how each is given back when it has ended.",
        "items": {
            "type": "object",
            "properties": {
                "name": text("Such as an instance's id."),
                "release": text("The command that gives it back.", LONGEST_LINE),
                "lease": text('How long it may be held at most, such as "2h".'),
                "release_on_park": {"type": "boolean"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    },
}
_BACKGROUND: JsonObject = {
    "type": "boolean",
    "description": "Answer at once with an id, and go on; its end is reported in a later answer.",
}
_IDS: JsonObject = {
    "type": "array",
    "items": {"type": "string", "minLength": 4, "maxLength": LONGEST_PATH},
    "minItems": 1,
    "maxItems": 200,
    "description": "Run ids, task ids or session ids, as `agent` and `agents` gave them.",
}


def agent_tools(
    manager: AgentManager, orders: OrderIntake, settings: Callable[[], AgentSettings], clock: Clock
) -> list[ModelTool]:
    """All five."""
    tools = _AgentTools(manager, orders, settings, clock)
    return [
        ModelTool(
            "agent",
            "Starts an agent that is not lost at a rate limit, a quota wall, an outage or a crash:"
            " it waits where waiting helps, is kept turn by turn, and can be gone on with by its"
            " id. Gives its answer, or says truly what ended it (`terminated_by`), until when, and"
            " how to go on; if it takes longer than this call may last, an id for agent_wait. Use"
            " it instead of a built-in sub-agent for work that must not be lost, and to go on with"
            " one that died (`resume`, `continue_from_task_id`). Several of these calls in one"
            " message run one after another: for agents side by side call `agents` once, or give"
            " each `background` and then wait for all of them with one agent_wait.",
            object_schema({**_ORDER, "background": _BACKGROUND}),
            tools.start_one,
        ),
        ModelTool(
            "agents",
            "Starts many such agents at once, each with its own result; one's failure touches no"
            ' other. Gives a summary such as "17 of 20 ok, 3 failed: 2 quota, 1 schema" and each'
            " agent's answer or what ended it, with its task id.",
            object_schema(
                {
                    "orders": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MOST_AGENTS,
                        "items": object_schema(_ORDER),
                        "description": "One for each agent, with the arguments of `agent`.",
                    },
                    "background": _BACKGROUND,
                },
                "orders",
            ),
            tools.start_many,
        ),
        ModelTool(
            "agent_wait",
            "Waits for agents that are at work and gives their results. Returns earlier when they"
            " are parked at a wall for longer, and before this call may last no longer: ask again"
            " then.",
            object_schema(
                {
                    "ids": _IDS,
                    "until": {
                        "enum": ["all", "any"],
                        "description": "Wait for all of them (the default), or for any one.",
                    },
                    "seconds": {"type": "number", "minimum": 0},
                },
                "ids",
            ),
            tools.wait,
            read_only=True,
        ),
        ModelTool(
            "agent_status",
            "Tells at once how agents stand: at work, parked until when, or how they ended, with"
            " their answers. Without ids it lists the latest ones of this project, also those of"
            " sessions that are gone.",
            object_schema({"ids": _IDS}),
            tools.status,
            read_only=True,
        ),
        ModelTool(
            "agent_cancel",
            "Ends agents for good, with their clean-up: whole runs by their run id, one agent of a"
            " group by its task id. Runs of the user's own flows are the user's to cancel.",
            object_schema({"ids": _IDS}, "ids"),
            tools.cancel,
        ),
    ]


class _AgentTools:
    """Starts agents, waits for them as long as their client does, inspects and cancels them."""

    def __init__(
        self,
        manager: AgentManager,
        orders: OrderIntake,
        settings: Callable[[], AgentSettings],
        clock: Clock,
    ) -> None:
        self._manager = manager
        self._orders = orders
        self._settings = settings
        self._clock = clock
        # From looking whether somebody goes on with an agent until one has begun to. What may take
        # long is checked before: everybody's agents begin behind it.
        self._one_by_one = asyncio.Lock()

    async def start_one(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        background = bool(arguments.get("background"))
        ordered = await self._orders.take(arguments, caller)
        async with self._one_by_one:
            ordered = await self._orders.check_again(ordered, caller)
            if ordered.earlier is not None:
                run_id = await self._manager.resume(
                    ordered.earlier, say=caller.say, background=background
                )
            else:
                run_id = await self._manager.begin(
                    [ordered.order],
                    folder=str(caller.folder or ordered.folder),
                    background=background,
                    say=caller.say,
                )
        return await self._result(run_id, caller, ordered.notes, background=background)

    async def start_many(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        background = bool(arguments.get("background"))
        checked = []
        wanted = cast("list[dict[str, Any]]", arguments["orders"])
        together = check_schemas(each["schema"] for each in wanted if "schema" in each)
        for number, each in enumerate(wanted, 1):
            checked.append(await self._checked(number, each, caller, together))
        orders = [each.order for each in checked]
        check_group(orders)
        async with self._one_by_one:
            for ordered in checked:
                await self._orders.check_again(ordered, caller)
            run_id = await self._manager.begin(
                orders,
                folder=str(caller.folder or orders[0]["cwd"]),
                background=background,
                say=caller.say,
            )
        notes = dict.fromkeys(note for each in checked for note in each.notes)
        return await self._result(run_id, caller, tuple(notes), background=background)

    async def _checked(
        self, number: int, wanted: JsonObject, caller: ToolCaller, together: int
    ) -> CheckedOrder:
        try:
            ordered = await self._orders.take(wanted, caller, f"agent {number}", together)
        except (UsageError, RefusedError) as error:
            raise BadArgumentError(
                f"Agent {number}: {error.message}", hint=f"{error.hint} None was started."
            ) from error
        if ordered.earlier is not None:
            raise BadArgumentError(
                f"Agent {number} would go on with an earlier run as it is.",
                hint="Do that with `agent`, or give it a prompt.",
            )
        return ordered

    async def _result(
        self, run_id: str, caller: ToolCaller, notes: Sequence[str], *, background: bool
    ) -> ToolReply:
        sees = self._settings().sight_of(caller.folder)
        await caller.progress(f"run {run_id} has begun; agent_wait waits for it by this id")
        if background:
            snapshot = await self._manager.snapshot(run_id, sees)
            return run_reply(snapshot, self._clock.now(), notes)
        try:
            (snapshot,) = await self._manager.wait(
                [run_id],
                sees,
                seconds=longest_wait(caller, self._settings()),
                all_of_them=True,
                progress=caller.progress,
            )
        except asyncio.CancelledError:
            # Nothing can be awaited any more: the SDK's scopes cancel every further wait, too.
            if caller.is_cancelled():
                self._manager.cancel_soon(run_id)
            else:
                self._manager.detach(run_id)
            raise
        if not snapshot.settled and not self._manager.detach(run_id):
            snapshot = await self._manager.snapshot(run_id, sees)
        return run_reply(snapshot, self._clock.now(), notes)

    async def wait(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        longest = longest_wait(caller, self._settings())
        snapshots = await self._manager.wait(
            list(dict.fromkeys(cast("list[str]", arguments["ids"]))),
            self._settings().sight_of(caller.folder),
            seconds=min(longest, float(cast("float", arguments.get("seconds", longest)))),
            all_of_them=arguments.get("until") != "any",
            progress=caller.progress,
        )
        return self._reply(snapshots)

    async def status(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        if "ids" in arguments:
            return self._reply(await self._snapshots(arguments, caller))
        latest = await self._manager.latest(self._settings().sight_of(caller.folder))
        self._manager.forget_news([each.record.run_id for each in latest if each.settled])
        return listed(latest, self._clock.now())

    async def cancel(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        # All are found before the first is ended: a wrong id ends nothing.
        snapshots = await self._snapshots(arguments, caller)
        for each in snapshots:
            each.check_of_models("cancel")
        lines = []
        for each in snapshots:
            await self._manager.cancel(each)
            who = f"run {each.record.run_id}" + (f", agent {each.label}" if each.label else "")
            lines.append(f"{who}: {'had ended before' if each.settled else 'cancelled'}")
        text = "\n".join(lines)
        ids: list[object] = [each.record.run_id for each in snapshots]
        return ToolReply(text, {"says": text, "cancelled": ids})

    async def _snapshots(self, arguments: JsonObject, caller: ToolCaller) -> list[RunSnapshot]:
        sees = self._settings().sight_of(caller.folder)
        ids = list(dict.fromkeys(cast("list[str]", arguments["ids"])))
        return await self._manager.snapshots(ids, sees)

    def _reply(self, snapshots: Sequence[RunSnapshot]) -> ToolReply:
        self._manager.forget_news([each.record.run_id for each in snapshots if each.settled])
        now = self._clock.now()
        return run_reply(snapshots[0], now) if len(snapshots) == 1 else runs_reply(snapshots, now)


def longest_wait(caller: ToolCaller, settings: AgentSettings) -> float:
    """How long this client may be kept waiting for an answer."""
    seconds = settings.wait
    if caller.client == "claude-code":
        seconds = settings.long_wait if caller.hears_progress else _QUIET_PATIENCE
    if caller.patience is not None:
        seconds = min(seconds, caller.patience * _SHARE_OF_PATIENCE)
    return seconds
