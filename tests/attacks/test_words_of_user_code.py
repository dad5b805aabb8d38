"""What code of users raises may quote an answer: its words are shown only with its own run.

Every place where code of a flow's file runs raises words with a planted mark; then all that is
shown without asking for one run is searched: messages, lists, sums, the page, logs and spans.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.assembly import Service
from jackline.cli.run import ProgressLines, summary
from jackline.flows.authoring.flow_definition import load_flow
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_totals import totals_of
from jackline.flows.store import open_run_store, run_store_url
from jackline.notifications.settings import NotifySettings
from jackline.telemetry.settings import OtlpSettings
from jackline.testing.scripted_agents import Play, ScriptedRunner
from tests.assembly.world import answered, ask, config_for, provider, question, request, run
from tests.cli.commands import jackline
from tests.dashboard.test_handler import watching
from tests.notifications.webhooks import receiver
from tests.test_secrets import logged as logged  # noqa: PLC0414 -- a fixture

MARK = "SAID-BY-CODE-9c1e"
"""Not the word of tests/planted.py: the user's own store may hold it, and does."""
FLOWS = f'''
import asyncio
import sys
from typing import Annotated, Literal, Union
from pydantic import AfterValidator, BaseModel, Field
from jackline import agent, ctx, flow, parallel, step
from jackline.errors import StepFailedError

WORD = "{MARK}"

class OwnError(Exception):
    pass

class SilentError(Exception):
    def __str__(self):
        raise RuntimeError(WORD)

def raises(*_):
    raise KeyError(WORD)

def leaves(*_):
    sys.exit(WORD)

def checked(value: str) -> str:
    raise ValueError(f"{{WORD}} is no title: {{value}}")

CHECKED = []

def checked_later(value: str) -> str:
    CHECKED.append(value)
    return value if len(CHECKED) == 1 else checked(value)

def broken(value: str) -> str:
    raise OwnError(WORD)

class Report(BaseModel):
    title: Annotated[str, AfterValidator(checked)]

class Broken(BaseModel):
    title: Annotated[str, AfterValidator(broken)]

class Cat(BaseModel):
    kind: Literal["cat"]

class Dog(BaseModel):
    kind: Literal["dog"]

class Pet(BaseModel):
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]

class Counts(BaseModel):
    of: dict[str, int]

@flow
async def in_flow() -> str:
    raise OwnError(WORD)

@flow
async def in_own_words() -> str:
    raise SilentError

@flow
async def in_our_error() -> str:
    raise StepFailedError(WORD, hint=WORD)

@flow
async def in_step() -> str:
    return await step(raises)

@flow
async def in_leaving_step() -> str:
    return await step(leaves)

async def member():
    raise OwnError(WORD)

@flow
async def in_parallel() -> str:
    batch = await parallel([member(), step(raises)])
    assert WORD in batch.failed[0].evidence.private
    assert WORD not in batch.failed[0].evidence.says
    return str(batch.require())

@flow(on_end=[raises, leaves, 'echo {MARK[:7]}""{MARK[7:]} >&2; exit 4'])
async def in_hook() -> str:
    return "done"

@flow
async def in_release() -> str:
    await ctx.resource("one", release=raises)
    await ctx.resource("two", release='echo {MARK[:7]}""{MARK[7:]} >&2; exit 4')
    return "done"

@flow
async def in_agents_hook() -> str:
    return await agent("say done", label="a", on_end=raises)

@flow
async def in_answer() -> str:
    return str(await agent("say done", label="a", schema=Report))

@flow
async def in_answers_type() -> str:
    return str(await agent("say done", label="a", schema=Broken))

@flow
async def in_answers_tag() -> str:
    return str(await agent("say done", label="a", schema=Pet))

@flow
async def in_answers_key() -> str:
    return str(await agent("say done", label="a", schema=Counts))

@flow
async def in_result() -> Report:
    return Report.model_construct(title="x")

@flow
async def in_results_type() -> Broken:
    return Broken.model_construct(title="x")

@flow
async def in_plain_result():
    class Odd(dict):
        def items(self):
            raise KeyError(WORD)
    return Odd(a=1)

@flow
async def in_call_arguments() -> str:
    class Odd(dict):
        def items(self):
            raise ValueError(WORD)
    return await step(str, Odd(a=1))

@flow
async def in_task() -> str:
    task = asyncio.create_task(member())
    await asyncio.sleep(0)
    del task
    return "done"

@flow
async def in_arguments(title: Annotated[str, AfterValidator(checked_later)]) -> str:
    return title
'''
LOADED = f'raise RuntimeError("{MARK}")\n'
ANSWERS = {
    "in_answer": {"title": "x"},
    "in_answers_type": {"title": "x"},
    "in_answers_tag": {"pet": {"kind": MARK}},
    "in_answers_key": {"of": {MARK: "much"}},
}
PLACES = [
    line.split()[2].partition("(")[0] for line in FLOWS.splitlines() if "async def in_" in line
]
SILENT = ("in_own_words", "in_task")
"""Where the words cannot be had, or nobody keeps them."""


@dataclass
class Scene:
    """A state folder in which every place has raised, and what was shown meanwhile."""

    folder: Path
    shown: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return {"JACKLINE_STATE": str(self.folder / "state"), "JACKLINE_PORT": "0"}

    def play(self) -> None:
        """Run all flows in a process of their own, since the service's runs no code of users."""
        command = [sys.executable, "-m", "tests.attacks.test_words_of_user_code", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.look("progress", done.stderr)
        played = json.loads(done.stdout)
        self.ids = played.pop("ids")
        self.shown |= played

    def look(self, what: str, text: str) -> None:
        self.shown[what] = text

    @property
    def leaks(self) -> list[str]:
        return [
            f"{what}: …{text[max(0, at - 160) : at + 40]}"
            for what, text in self.shown.items()
            if (at := text.find(MARK)) >= 0
        ]


async def play_all(folder: Path) -> dict[str, object]:
    """Run each flow as `jackline run` does, as far as words go; what was shown, and the ids."""
    shown: dict[str, object] = {}
    ids = {}
    engine = open_run_store(run_store_url(folder / "state"))
    for name in PLACES:
        flow, value = load_flow(f"{folder / 'flow.py'}:{name}"), ANSWERS.get(name, "done")
        host = FlowHost(engine, partial(_runners, value))
        arguments = b'{"title": "x"}' if name == "in_arguments" else b"{}"
        begun = await begin_run(host, flow, arguments, listener=ProgressLines().apply)
        outcome = await begun.run()
        record = await engine.run(begun.run_id)
        assert record is not None
        shown[f"the summary of {name}"] = summary(outcome, record, await totals_of(engine, record))
        shown[f"the record of {name}"] = record.why
        ids[name] = begun.run_id
    await engine.close()
    return {**shown, "ids": ids}


def _runners(value: object, _run_id: str) -> dict[str, ScriptedRunner]:
    return {"messages": ScriptedRunner(lambda _task: Play(value=value))}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "flow.py").write_text(FLOWS)
    (tmp_path / "loaded.py").write_text(LOADED)
    found = Scene(tmp_path)
    yield found
    jackline("down", env=found.environ)


def test_words_of_user_code_are_shown_nowhere_but_with_their_run(
    scene: Scene, logged: Path
) -> None:
    async def main(hook: str) -> None:
        async with provider(answered()) as (_, url):
            notify, otlp = NotifySettings(webhook=hook), OtlpSettings(hook.removesuffix("/hook"))
            config = replace(config_for(scene.folder, url), notify=notify, otlp=otlp)
            async with Service(config) as service:
                await service._notifier.look()
                await asyncio.to_thread(scene.play)
                await service._notifier.look()
                await ask(service.url, request(b"POST", b"/v1/messages", question()))
                for path in (b"/_jackline/status", b"/_jackline/fleet", b"/metrics"):
                    got = await ask(service.url, request(b"GET", path))
                    assert got.status == 200, path
                    scene.look(path.decode(), got.body.decode())
                async with watching(service.url) as page:
                    sent = ""
                    while not all(run_id in sent for run_id in scene.ids.values()):
                        sent += json.dumps(await page.received())
                    scene.look("the feed of the page", sent)

    with receiver() as kept:
        run(main(kept.url))
    scene.look("webhook and collector", " ".join(body.decode() for _, body in kept.got))
    assert "run finished" in scene.shown["webhook and collector"]
    assert "resourceSpans" in scene.shown["webhook and collector"]
    scene.look("the gateway's log", logged.read_text())
    assert "KeyError (flow.py, line " in scene.shown["progress"]
    for words in (["ls"], ["ls", "--json"], ["status"], ["resources"], ["resources", "--json"]):
        found = jackline(*words, env=scene.environ)
        scene.look(f"jackline {' '.join(words)}", found.out + found.err)
    assert "OwnError (flow.py, line " in scene.shown["jackline ls"]
    assert scene.leaks == []
    for name in PLACES:
        run_id = scene.ids[name]
        asked = [jackline(verb, run_id, env=scene.environ).out for verb in ("show", "logs")]
        assert (MARK in "".join(asked)) is (name not in SILENT), name


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["flow.py:in_flow"], "OwnError (flow.py, line "),
        (["flow.py:in_flow", "--json"], "OwnError (flow.py, line "),
        (["flow.py:in_step"], "KeyError (flow.py, line "),
        (["flow.py:in_task"], "a task that nobody awaited raised OwnError (flow.py, line "),
        (
            ["flow.py:in_arguments", "--title", "x"],
            "The argument title of in_arguments() takes text",
        ),
        (["loaded.py"], "loaded.py cannot be loaded: RuntimeError (loaded.py, line 1)"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_jackline_run_prints_no_words_into_a_pipe(
    scene: Scene, words: list[str], seen: str
) -> None:
    first = scene.folder / words[0]
    found = jackline("run", first, *words[1:], env=scene.environ)
    assert seen in found.out + found.err
    assert MARK not in found.out + found.err


if __name__ == "__main__":
    logging.getLogger("asyncio").disabled = True  # what a task raises: the command line's part
    print(json.dumps(event_loop.run(play_all(Path(sys.argv[1])))))  # noqa: T201
