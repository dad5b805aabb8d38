"""What the real Claude Code leaves behind when it fails is explained by its true cause."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.simulator.reply_script import Reply, structured
from jackline.testing import Fail, Rule, Say, Vanish
from tests.claude_turns import workflow
from tests.cli.commands import jackline
from tests.real_clients.clients import Run, run_claude

pytestmark = pytest.mark.real_client

RATE_LIMITED = Fail(
    429,
    "rate_limit_error",
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
)
OVERLOADED = Fail(529, "overloaded_error", "Overloaded")
SCHEMA = json.dumps({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})
WORKFLOW = f"""export const meta = {{ name: 'audit', description: 'x', phases: [{{title:'One'}}] }}
phase('One')
const schema = {SCHEMA}
const r = await parallel([
  () => agent('PART-1: audit', {{schema, label: 'one'}}),
  () => agent('PART-2: audit', {{schema, label: 'two'}}),
  () => agent('PART-3: audit', {{label: 'three'}}),
])
return {{r}}
"""


def quota_wall(reset: int) -> Fail:
    """The answer of a subscription whose five-hour window is used up."""
    prefix = "anthropic-ratelimit-unified"
    return Fail(
        429,
        "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.",
        {
            f"{prefix}-status": "rejected",
            f"{prefix}-reset": str(reset),
            f"{prefix}-representative-claim": "five_hour",
            f"{prefix}-5h-reset": str(reset),
            f"{prefix}-overage-status": "rejected",
        },
    )


def three_agents() -> list[Rule]:
    calls = tuple(
        (
            "Agent",
            {
                "description": f"Review {part}",
                "prompt": f"PART-{part}: review this module.",
                "subagent_type": "general-purpose",
            },
        )
        for part in (1, 2, 3)
    )
    return [
        Rule(Say("Splitting.", calls), sub_agent=False, turn=0),
        Rule(Say("All parts are back."), sub_agent=False),
        Rule(Say("Looking.", (("Bash", {"command": "echo hi", "description": "Look"}),)), turn=0),
        Rule(Say("No defects found."), sub_agent=True),
    ]


def dies(part: int, reply: Reply, *, turn: int | None = 1) -> Rule:
    return Rule(reply, prompt=f"PART-{part}:", sub_agent=True, turn=turn)


def why(run: Run, *, code: int = 0) -> dict[str, Any]:
    answer = jackline("why", run.home, "--json")
    assert (answer.code, answer.err) == (code, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


def causes(document: dict[str, Any]) -> Sequence[tuple[str, str | None, int]]:
    return [
        (cause["failure"]["kind"], cause["failure"]["sub"], len(cause["agents"]))
        for cause in document["causes"]
    ]


def test_one_sub_agent_throttled_to_death_is_found_among_its_finished_siblings(
    tmp_path: Path,
) -> None:
    document = why(run_claude(tmp_path, [dies(2, RATE_LIMITED), *three_agents()]))
    assert causes(document) == [("rate_limit", "itpm", 1)]
    assert document["verdict"] == (
        "1 of 4 agents was stopped by one cause:"
        " the account's limit of input tokens per minute (HTTP 429)."
    )


def test_a_quota_wall_is_named_with_its_reset(tmp_path: Path) -> None:
    reset = int(time.time()) // 60 * 60 + 7200
    wall = quota_wall(reset)
    run = run_claude(
        tmp_path, [dies(2, wall), dies(3, wall, turn=0), *three_agents()], subscription=True
    )
    document = why(run)
    assert causes(document) == [("account_quota", "session", 2)]
    resets_at = datetime.fromisoformat(document["causes"][0]["failure"]["resets_at"])
    assert abs(resets_at - datetime.fromtimestamp(reset, UTC)).total_seconds() <= 60


def test_an_overload_is_not_taken_for_a_limit(tmp_path: Path) -> None:
    document = why(run_claude(tmp_path, [dies(2, OVERLOADED), *three_agents()]))
    assert causes(document) == [("overloaded", None, 1)]


def test_a_connection_refused_from_the_start_stops_the_main_thread(tmp_path: Path) -> None:
    run = run_claude(tmp_path, [], refuse=True)
    assert run.code == 1
    assert causes(why(run)) == [("network_edge", "refused", 1)]
    log = jackline("why", run.log, "--json")
    assert causes(json.loads(log.out)) == [("network_edge", "refused", 1)]


def test_a_server_that_vanishes_is_a_refused_connection(tmp_path: Path) -> None:
    document = why(run_claude(tmp_path, [dies(2, Vanish()), *three_agents()]))
    assert [cause[:2] for cause in causes(document)] == [("network_edge", "refused")]


def test_a_schema_that_the_model_ignores_is_a_genuine_miss(tmp_path: Path) -> None:
    run = run_claude(
        tmp_path, [Rule(Say("Fine, nine points."))], arguments=["--json-schema", SCHEMA]
    )
    assert run.code == 0, "the client itself calls this a success"
    assert causes(why(run)) == [("missing_structured_output", "absent", 1)]
    log = jackline("why", run.log, "--json")
    assert causes(json.loads(log.out)) == [("missing_structured_output", "absent", 1)]


def workflow_rules(second: Reply) -> list[Rule]:
    return [
        dies(1, structured({"x": "fine"}), turn=None),
        dies(2, second, turn=None),
        Rule(workflow(WORKFLOW), sub_agent=False, turn=0),
        *three_agents()[1:],
    ]


def test_a_workflow_agent_that_ends_in_prose_is_a_genuine_miss(tmp_path: Path) -> None:
    document = why(run_claude(tmp_path, workflow_rules(Say("The module is fine."))))
    assert causes(document) == [("missing_structured_output", "absent", 1)]


def test_a_workflow_agent_at_the_wall_is_a_quota_death_not_a_schema_miss(tmp_path: Path) -> None:
    wall = quota_wall(int(time.time()) + 7200)
    document = why(run_claude(tmp_path, workflow_rules(wall), subscription=True))
    assert causes(document) == [("account_quota", "session", 1)]


def test_a_healthy_run_has_no_cause(tmp_path: Path) -> None:
    run = run_claude(tmp_path, three_agents())
    assert run.code == 0
    document = why(run, code=1)
    assert document["causes"] == []
