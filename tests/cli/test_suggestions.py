"""Every command that Jackline suggests changes something where it is suggested.

The commands about runs are collected from the source; each has the scene in which it is suggested
and carried out as it stands there. One that no scene carries out fails the build.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.flows.settings import decode_settings, limits_in_words
from jackline.flows.store import open_run_store, run_store_url
from jackline.simulator.reply_script import Fail, Say
from jackline.testing import Rule
from tests.cli.flow_world import PATIENCE, World, flow_world, wait_for

HERE = "tests/cli/test_suggestions.py::"
SOURCE = Path(__file__).parents[2] / "src" / "jackline"
ROOT = SOURCE.parents[1]
_VERBS = "resume|fork|cancel|show|logs|ls|rm|resources"
_PART = r"--[\w-]+|-f|\{\}|%s|ID\b|LABEL\b|…"
SUGGESTION = re.compile(rf"jackline (?:{_VERBS})(?![\w-])(?: (?:{_PART}))*")

FLOW = """
from jackline import Budget, agent, ctx, flow, parallel, step

LIMIT = Budget(turns=0)

@flow
async def in_turn() -> str:
    return " ".join([await agent(f"say {word}", label=word) for word in ("one", "two", "three")])

@flow
async def at_once() -> str:
    words = ("one", "two", "three")
    return (await parallel(agent(f"say {word}", label=word) for word in words)).summary

@flow
async def limited() -> str:
    return await agent("say one", label="one", budget=LIMIT)

@flow
async def broken() -> str:
    return await agent("say one", label="one") + 1

@flow
async def fragile() -> str:
    await agent("say one", label="one").outcome()
    return await step(fetch)

def fetch() -> str:
    raise OSError("not today")

def give_back(name: str) -> None:
    raise OSError("not today")

@flow
async def renting() -> str:
    await ctx.resource("box", release=give_back)
    return "done"

@flow
async def continuing() -> str:
    return await agent("say one", label="one", continue_from="t-nobody")
"""
REFUSED = Fail(400, "invalid_request_error", "no")
ANSWERS = Rule(lambda request: Say(request.prompt.split()[-1]))
NEVER = Rule(Say("too late", delay=3600), prompt="two")
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        (tmp_path / "flow.py").write_text(FLOW)
        yield there


def suggested(text: str) -> list[str]:
    """The words of the first command that a text suggests, after "next:" or "hint:" if it can."""
    after = re.split(r"(?:next|hint|said): ", text)[-1]
    found = re.search(r"jackline ([^`\n]*?)(?:   \(|[`\n]|\.? *$)", after, re.MULTILINE)
    assert found is not None, text
    return shlex.split(found[1])


def only_run(world: World) -> str:
    return state(world)[0]


def state(world: World) -> tuple[str, ...]:
    """What a suggestion should change: the only run, what it may use, and its calls."""

    async def read() -> tuple[str, ...]:
        store = open_run_store(run_store_url(world.folder / "state"))
        try:
            (run,) = await store.runs()
            calls = await store.calls(run.run_id)
        finally:
            await store.close()
        each = (f"{call.label} {call.state} {call.attempts}" for call in calls)
        return run.run_id, run.state, limits_in_words(decode_settings(run.settings).budgets), *each

    return event_loop.run(read())


def follow(world: World, text: str) -> tuple[list[str], tuple[int, str, str]]:
    """Carry out what a text suggests; it changes the run."""
    words, before = suggested(text), state(world)
    done = world.jackline(*words)
    assert state(world) != before, (words, done)
    return words, done


def test_a_limit_that_ended_a_run_is_raised_for_good_by_the_suggested_command(
    world: World,
) -> None:
    code, _, err = world.jackline("run", "flow.py:in_turn", "--budget", "agents=1,strict,tokens=1")
    assert (code, "never more (strict)" in err) == (1, True), err
    words, (code, _, err) = follow(world, err)
    assert words[0] == "resume"
    assert words[2] == "--budget"
    assert words[3].startswith("tokens=")
    assert (code, "ended by budget" in err) == (1, True), err
    assert "1 of 2 agents ok" in err, "the raised limit let the first agent go on"
    allowed = f"{int(words[3].partition('=')[2]):,} tokens"
    assert f"may use 1 agent, {allowed}" in world.jackline("ls")[1]
    words, (code, _, err) = follow(world, err)
    assert words[3] == "agents=2"
    words, (code, out, err) = follow(world, err)
    assert (code, out.strip(), words[3]) == (0, "one two three", "agents=4"), err
    assert "the run may use" in world.jackline("logs", only_run(world))[1]
    code, _, err = world.jackline("resume", only_run(world), "--budget", "agents=9")
    assert (code, "no limit holds it" in err, "hint" in err) == (2, True, False), err


def test_what_a_limit_ended_in_a_finished_run_goes_on_by_the_suggested_command(
    world: World,
) -> None:
    code, out, err = world.jackline("run", "flow.py:at_once", "--budget", "agents=1")
    assert (code, out.startswith("1 of 3 ok")) == (3, True), err
    for allowed, ok in ((2, 2), (4, 3)):
        if allowed == 4:
            code, _, err = world.jackline("resume", only_run(world), "--budget", "agents=4")
            assert (code, "no limit holds it" in err) == (2, True), err
        words, (code, out, err) = follow(world, err)
        assert (words[2], words[4]) == ("--failed", f"agents={allowed}")
        assert out.startswith(f"{ok} of 3 ok")
    assert "next:" not in err


def test_a_limit_in_the_flows_file_is_raised_there(world: World) -> None:
    code, _, err = world.jackline("run", "flow.py:limited")
    assert (code, "once you have raised the limit in flow.py" in err) == (1, True), err
    (world.folder / "flow.py").write_text(FLOW.replace("turns=0", "turns=5"))
    words, (code, out, err) = follow(world, err)
    assert (words, code, out) == (["resume", only_run(world)], 0, "one\n"), err


def test_what_only_the_flow_gets_wrong_is_mended_first(world: World) -> None:
    code, _, err = world.jackline("run", "flow.py:broken")
    assert (code, "after mending flow.py" in err) == (1, True), err
    shown = world.jackline(*suggested(err.partition("said:  ")[2].partition("\n")[0]))
    assert "can only concatenate str" in shown[1]
    (world.folder / "flow.py").write_text(FLOW.replace(" + 1\n", ' + "!"\n'))
    words, (code, out, err) = follow(world, err)
    assert (words, code, out) == (["resume", only_run(world)], 0, "one!\n"), err


def test_a_failed_agent_runs_again_by_the_suggested_command(world: World) -> None:
    world.provider.says(Rule(REFUSED, prompt="two"), ANSWERS)
    code, _, err = world.jackline("run", "flow.py:at_once")
    assert code == 3, err
    world.provider.says(ANSWERS)
    words, (code, out, err) = follow(world, err)
    assert (words, code) == (["resume", only_run(world), "--failed"], 0), err
    assert out.startswith("3 of 3 ok")
    for words in (["--failed"], ["--only", "two"]):
        code, _, err = world.jackline("resume", only_run(world), *words)
        assert code == 2, err
        assert suggested(err)[:3] == ["fork", only_run(world), "--from"]
    code, out, err = world.jackline(*suggested(err))
    assert (code, len(world.json("ls")["runs"])) == (0, 2), err


def test_a_step_that_failed_before_runs_again_by_the_suggested_command(world: World) -> None:
    world.provider.says(Rule(REFUSED), ANSWERS)
    code, _, err = world.jackline("run", "flow.py:fragile")
    assert code == 1, err
    world.provider.says(ANSWERS)
    code, _, err = world.jackline("resume", only_run(world), "--only", "one")
    assert "The step fetch failed before with OSError" in err
    step = suggested(err.partition("again.")[0] + "`")
    assert step == ["resume", only_run(world), "--failed", "--only", "fetch"]
    mended = FLOW.replace('def fetch() -> str:\n    raise OSError("not today")', FETCHED)
    (world.folder / "flow.py").write_text(mended)
    code, out, err = world.jackline(*step)
    assert (code, out) == (0, "fetched\n"), err


FETCHED = 'def fetch() -> str:\n    return "fetched"'


def test_what_was_not_given_back_is_by_the_suggested_commands(world: World) -> None:
    code, _, err = world.jackline("run", "flow.py:renting")
    assert code == 0, err
    run = only_run(world)
    code, out, _ = world.jackline("resources")
    assert (code, suggested(out.partition("(")[2].replace(")", "")[-99:])) == (1, ["logs", run])
    assert "not today" in world.jackline("logs", run)[1]
    code, _, err = world.jackline("rm", run, "--yes")
    words = suggested(err)
    assert words == ["resources", "--retry"], err
    (world.folder / "flow.py").write_text(FLOW.replace('raise OSError("not today")', "return None"))
    code, out, err = world.jackline(*words)
    assert (code, world.jackline("resources")[0]) == (0, 0), err


@POSIX
@pytest.mark.parametrize("flow", ["in_turn", "at_once"])
def test_an_agent_that_a_person_cancelled_goes_on_by_the_suggested_command(
    world: World, flow: str
) -> None:
    world.provider.says(NEVER, ANSWERS)
    with world.start("run", f"flow.py:{flow}") as process:
        wait_for(process, "two began")
        run = only_run(world)
        code, _, err = world.jackline("cancel", run, "--only", "two")
        assert code == 0, err
        assert suggested(err)[:3] == ["resume", run, "--only"]
        _, err = process.communicate(timeout=PATIENCE)
    code, _, refused = world.jackline("cancel", run, "--only", "two")
    assert (code, suggested(refused)[:2]) == (2, ["show", run]), refused
    assert "A person cancelled it" in world.jackline("show", run)[1]
    code, _, refused = world.jackline("resume", run, "--failed")
    assert (code, suggested(refused)) == (2, ["resume", run, "--only", "two"]), refused
    world.provider.says(ANSWERS)
    words, (code, out, err) = follow(world, err)
    assert (words, code) == (["resume", run, "--only", "two"], 0), err
    assert out in ("one two three\n", "3 of 3 ok\n")


@POSIX
def test_a_parked_a_stopped_and_a_cut_off_run_go_on_by_the_suggested_commands(
    world: World,
) -> None:
    world.provider.quota_wall(resets_in=3600)
    with world.start("run", "flow.py:in_turn") as process:
        wait_for(process, "parked until")
        run = only_run(world)
        code, _, err = world.jackline("resume", run)
        assert (code, suggested(err)) == (2, ["resume", run, "--now"]), err
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    code, _, refused = world.jackline("rm", run, "--yes")
    assert suggested(refused) == ["cancel", run], refused
    world.provider.heal()
    words = suggested(err.partition("at once: ")[2])
    assert words == ["resume", run, "--now"]
    world.provider.says(NEVER, ANSWERS)
    with world.start(*words) as process:
        wait_for(process, "two began")
        code, _, err = world.jackline("resume", run)
        assert suggested(err) == ["logs", run, "-f"], err
        with world.start(*suggested(err)) as following:
            assert following.stdout is not None
            assert following.stdout.readline()
            process.send_signal(signal.SIGINT)
            wait_for(process, "stopping")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
            following.kill()
    words = suggested(err)
    assert words == ["resume", run]
    with world.start(*words) as process:
        wait_for(process, "two began")
        process.kill()
    assert "cut off" in world.jackline("ls")[1]
    world.provider.says(ANSWERS)
    code, out, err = world.jackline(*suggested(world.jackline("show", run)[1]))
    assert (code, out) == (0, "one two three\n"), err


def test_a_run_that_waits_for_a_person_goes_on_by_the_suggested_command(world: World) -> None:
    empty = "Your credit balance is too low to access the Anthropic API."
    world.provider.says(Rule(Fail(400, "invalid_request_error", empty)))
    process = world.start("run", "flow.py:in_turn")
    with process:
        wait_for(process, "parked")
        run = only_run(world)
        while f"jackline resume {run}" not in (said := world.jackline("status")[1]):
            assert process.poll() is None  # the service reads the runs now and then
        found = said, world.jackline("ls", "--parked")[1]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    for text in (*found, err):
        assert f"jackline resume {run}" in text
    world.provider.says(ANSWERS)
    code, out, err = world.jackline("resume", run)
    assert (code, out) == (0, "one two three\n"), err


def test_a_name_that_no_run_or_agent_has_leads_to_those_that_there_are(world: World) -> None:
    code, _, err = world.jackline("run", "flow.py:continuing")
    assert (code, "There is no earlier agent" in err) == (1, True), err
    run = only_run(world)
    assert f"`jackline show {run}` lists" in err
    for words in (["show", "nobody"], ["rm", "nobody", "--yes"], ["resume", "nobody"]):
        code, _, err = world.jackline(*words)
        assert suggested(err)[:1] == ["ls"], err
    assert run in world.jackline("ls")[1]


# --- all of them are known ------------------------------------------------------------------------


def test_every_suggestion_has_its_scene() -> None:
    found = set(collected())
    assert found == set(SCENES), (found - set(SCENES), set(SCENES) - found)
    for scene in SCENES.values():
        path, _, name = scene.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), scene


def collected() -> Iterator[tuple[str, str]]:
    """The file and the command of every suggestion about runs in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        for text in texts(ast.parse(path.read_text())):
            for found in SUGGESTION.finditer(text):
                yield path.relative_to(SOURCE).as_posix(), found[0]
    for path in sorted(SOURCE.rglob("*.js")):
        text = re.sub(r"\$\{(?:[^{}]|\{[^}]*\})*\}", "{}", path.read_text())
        for found in SUGGESTION.finditer(text):
            yield path.relative_to(SOURCE).as_posix(), found[0]


def texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module but its docstrings; what is filled in is {}."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    skipped: set[Any] = set(statements)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            parts = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.value


def _scenes() -> dict[tuple[str, str], str]:
    limit = f"{HERE}test_a_limit_that_ended_a_run_is_raised_for_good_by_the_suggested_command"
    raised = f"{HERE}test_what_a_limit_ended_in_a_finished_run_goes_on_by_the_suggested_command"
    failed = f"{HERE}test_a_failed_agent_runs_again_by_the_suggested_command"
    step = f"{HERE}test_a_step_that_failed_before_runs_again_by_the_suggested_command"
    mended = f"{HERE}test_what_only_the_flow_gets_wrong_is_mended_first"
    rented = f"{HERE}test_what_was_not_given_back_is_by_the_suggested_commands"
    by_hand = f"{HERE}test_an_agent_that_a_person_cancelled_goes_on_by_the_suggested_command"
    parked = f"{HERE}test_a_parked_a_stopped_and_a_cut_off_run_go_on_by_the_suggested_commands"
    waits = f"{HERE}test_a_run_that_waits_for_a_person_goes_on_by_the_suggested_command"
    unknown = f"{HERE}test_a_name_that_no_run_or_agent_has_leads_to_those_that_there_are"
    orders = "tests/cli/test_runs_agents.py::"
    named = f"{orders}test_an_agent_is_cancelled_from_another_process_and_begun_again_only_by_name"
    idle = f"{orders}test_an_agent_of_a_parked_run_is_cancelled_at_once_and_the_run_stays_parked"
    planted = "tests/attacks/test_planted_store.py::"
    accepted = f"{planted}test_a_person_may_accept_a_run_after_having_seen_it"
    deleted = f"{planted}test_a_planted_run_can_be_deleted"
    edited = "tests/attacks/test_edited_flow.py::"
    released = (
        f"{edited}test_what_an_overdue_release_calls_is_not_run_unattended_once_it_was_edited"
    )
    by_person = f"{edited}test_a_run_that_was_resumed_by_hand_wakes_with_what_that_has_run"
    live = "tests/cli/test_removal.py::test_a_run_with_a_live_process_is_not_deleted_even_by_force"
    listed = (
        "tests/cli/test_promise_wake.py::test_ls_parked_says_what_would_wake_when_and_at_what_cost"
    )
    session = (
        "tests/mcp_server/test_session_resume.py::test_a_session_that_is_still_open_is_left_alone"
    )
    page = "tests/dashboard/test_orders_to_runs.py::test_what_is_left_over_is_released_by_order"
    found = {
        "cli/main.py": {"resume ID --failed": failed},
        "cli/resume.py": {"resume {} --now": parked, "resume {} --only {}": named}
        | {"resume {} --failed --budget {}": raised},
        "cli/run.py": {"logs {} -f": parked, "resume {}": parked, "show {}": mended}
        | {"resume {} --now": parked},
        "cli/run_text.py": {"logs {}": rented, "resume {}": waits, "rm {} --force": deleted}
        | {"resume {} --only {}": by_hand},
        "cli/runs.py": {"resume {}": parked, "show {} --trust --yes": accepted},
        "control/run_view.py": {"resume {}": mended, "resume {} --failed": failed}
        | {"resume {} --only {}": by_hand}
        | {"resume {} --budget {}": limit, "resume {} --failed --budget {}": raised},
        "control/needs.py": {"resources --retry": rented, "resume {}": waits, "show {}": mended}
        | {"show {} --trust": accepted},
        "control/stored_runs.py": {"resume {}": parked},
        "dashboard/handler.py": {"ls": unknown},
        "dashboard/page/details.js": {"resume {}": parked, "show {}": mended},
        "dashboard/page/flows.js": {"resources --retry": page},
        "flows/authoring/calls.py": {"resume {} --failed --only {}": step},
        "flows/execution/agent_cancellation.py": {"cancel {} --only {}": by_hand},
        "flows/execution/agent_execution.py": {"show {}": unknown},
        "flows/flow_sources.py": {"resources --retry": rented, "resume {}": by_person},
        "flows/lifecycle.py": {"cancel {}": parked, "cancel {} --only {}": idle}
        | {"fork {} --from {}": failed, "logs {} -f": parked, "ls": unknown}
        | {"resources --retry": released, "resume {} --only {}": by_hand, "show {}": by_hand},
        "flows/run_processes.py": {"ls": unknown},
        "flows/settings.py": {"resume ID": waits, "resume {}": waits},
        "flows/store/agent_log.py": {"rm {} --force": deleted},
        "flows/store/run_store.py": {"cancel {}": parked, "logs {} -f": live, "ls": unknown}
        | {"resources --retry": rented, "show {} --trust": accepted},
        "flows/store/sqlite/database.py": {"ls": unknown, "show {}": mended},
        "flows/store/sqlite/run_rows.py": {"ls --parked": listed, "resume {}": parked}
        | {"show {} --trust": accepted},
        "flows/store/sqlite/store_file.py": {"ls": unknown, "resume ID": parked},
        "mcp_server/agent_manager.py": {"resume %s": parked, "show ID": mended},
        "mcp_server/agent_orders.py": {"show ID": mended},
        "mcp_server/flow/started_agents.py": {"resume {}": session},
        "states.py": {"resources --retry": rented, "resume ID": parked},
    }
    return {(f, f"jackline {c}"): scene for f, each in found.items() for c, scene in each.items()}


SCENES = _scenes()
"""By file and command: who carries it out. What names no run (ID) does so for any run."""
