"""`agent_wait`, `agent_status`, `agent_cancel`: follow agents that are at work, by their ids.

Laws: (1) ids are those of runs, tasks or sessions, whoever started them in the client's project;
others are unknown (places.py); (2) only what models have started is cancelled, never a run of the
user's own; (3) waiting ends before the client's patience does; (4) what was told here is not
announced again.
Not here: starting (agents.py), words (agent_words.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from jackline.clock import Clock
from jackline.mcp_server.agent_desk import AgentDesk
from jackline.mcp_server.agent_words import listed, told_run, told_runs
from jackline.mcp_server.model_tool import Caller, JsonObject, ModelTool, Told
from jackline.mcp_server.places import Sight, sight_of
from jackline.mcp_server.run_look import Look, must_be_of_models
from jackline.mcp_server.settings import AgentSettings
from jackline.mcp_server.tools.agents import longest_wait

_IDS: JsonObject = {
    "type": "array",
    "items": {"type": "string", "minLength": 4},
    "minItems": 1,
    "maxItems": 200,
    "description": "Run ids, task ids or session ids, as `agent` and `agents` gave them.",
}


def following_tools(
    desk: AgentDesk, settings: Callable[[], AgentSettings], clock: Clock
) -> list[ModelTool]:
    """All three."""
    following = _Following(desk, settings, clock)
    return [
        ModelTool(
            "agent_wait",
            "Waits for agents that are at work and gives their results. Returns earlier when they"
            " are parked at a wall for longer, and before this call may last no longer: ask again"
            " then.",
            _object(
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
            following.wait,
            read_only=True,
        ),
        ModelTool(
            "agent_status",
            "Tells at once how agents stand: at work, parked until when, or how they ended, with"
            " their answers. Without ids it lists the latest ones of this project, also those of"
            " sessions that are gone.",
            _object({"ids": _IDS}),
            following.status,
            read_only=True,
        ),
        ModelTool(
            "agent_cancel",
            "Ends agents for good, with their clean-up: whole runs by their run id, one agent of a"
            " group by its task id. Runs of the user's own flows are the user's to cancel.",
            _object({"ids": _IDS}, "ids"),
            following.cancel,
        ),
    ]


class _Following:
    def __init__(
        self, desk: AgentDesk, settings: Callable[[], AgentSettings], clock: Clock
    ) -> None:
        self._desk = desk
        self._settings = settings
        self._clock = clock

    async def wait(self, given: JsonObject, caller: Caller) -> Told:
        """How they stand after waiting."""
        longest = longest_wait(caller, self._settings())
        looks = await self._desk.wait(
            _ids(given),
            self._sight(caller),
            seconds=min(longest, float(cast("float", given.get("seconds", longest)))),
            all_of_them=given.get("until") != "any",
            progress=caller.progress,
        )
        return self._told(looks)

    async def status(self, given: JsonObject, caller: Caller) -> Told:
        """How they stand now."""
        if "ids" not in given:
            looks = await self._desk.latest(self._sight(caller))
            self._desk.forget_news([look.record.run_id for look in looks if look.settled])
            return listed(looks, self._clock.now())
        sees = self._sight(caller)
        return self._told([await self._desk.look(each, sees) for each in _ids(given)])

    async def cancel(self, given: JsonObject, caller: Caller) -> Told:
        """How they stand once cancelled."""
        # All are found before the first is ended: a wrong id ends nothing.
        sees = self._sight(caller)
        looks = [await self._desk.look(each, sees) for each in _ids(given)]
        for look in looks:
            must_be_of_models(look.record, "cancel")
        for look in looks:
            await self._desk.cancel(look)
        said = "\n".join(_cancelled(look) for look in looks)
        ids: list[object] = [look.record.run_id for look in looks]
        return Told(said, {"says": said, "cancelled": ids})

    def _sight(self, caller: Caller) -> Sight:
        return sight_of(caller.folder, self._settings())

    def _told(self, looks: Sequence[Look]) -> Told:
        self._desk.forget_news([look.record.run_id for look in looks if look.settled])
        now = self._clock.now()
        return told_run(looks[0], now) if len(looks) == 1 else told_runs(looks, now)


def _cancelled(look: Look) -> str:
    who = f"run {look.record.run_id}" + (f", agent {look.label}" if look.label else "")
    return f"{who}: had ended before" if look.settled else f"{who}: cancelled"


def _ids(given: JsonObject) -> list[str]:
    return list(dict.fromkeys(cast("list[str]", given["ids"])))


def _object(properties: dict[str, JsonObject], *required: str) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
