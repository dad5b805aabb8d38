"""The real clients' calls go to the gateway and are counted, whatever the user's settings say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from jackline import event_loop
from jackline.agents.outcome import Ending
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.doubles import Pages
from tests.agents.process.world import World
from tests.real_clients.codex import codex_binary
from tests.real_clients.test_program_budgets import MeteredLeave
from tests.real_clients.test_runners import CLAUDES, world_of

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="the client's home is found by HOME"),
]
FETCHED = Callable[[], Path]
OWN_HEADER = "x-team: platform"


@dataclass
class Stranger:
    """Whoever has the address that the user's settings name."""

    url: str
    got: list[str]


@contextmanager
def stranger() -> Iterator[Stranger]:
    class Handler(BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            there.got.append(f"{self.command} {self.path}")
            self.send_error(400)

        do_GET = do_HEAD = do_POST = do_CONNECT = _refuse  # noqa: N815 -- names of the library

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there = Stranger(f"http://127.0.0.1:{server.server_port}", [])
        Thread(target=server.serve_forever, daemon=True).start()
        yield there
        server.shutdown()


def write_settings(world: World, variables: dict[str, str]) -> None:
    folder = world.home / ".claude"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps({"env": variables}))


def answer(_asked: ClientRequest) -> Reply:
    return Say("Done.")


def carried(world: World, **more: object) -> None:
    """One agent, to its end."""
    leave = MeteredLeave(world=world)

    async def main() -> None:
        async with world.open():
            outcome = await world.carry(Pages(), leave, **more)
            assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, "Done.")
            reading = await leave.metered(fresh=True)
            assert reading is not None
            assert reading.answers == len(world.received) > 0, "the gateway knows whose calls"

    event_loop.run(main())


@pytest.mark.parametrize("fetched", CLAUDES)
@pytest.mark.parametrize(
    "theirs",
    [
        {"ENABLE_TOOL_SEARCH": "true"},
        {"ANTHROPIC_CUSTOM_HEADERS": f"{OWN_HEADER}\nX-Jackline-Task: other.0"},
        {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "us-east-1"},
        {"HTTP_PROXY": "{url}", "HTTPS_PROXY": "{url}"},
    ],
    ids=["connected", "own header", "a cloud", "a proxy"],
)
def test_no_address_or_header_in_the_users_settings_takes_a_call_from_the_gateway(
    fetched: FETCHED, theirs: dict[str, str], tmp_path: Path
) -> None:
    """`connect` writes the gateway's own address there; it is not the relay's, which proves it."""
    world = world_of(fetched, tmp_path, answer)
    with stranger() as other:
        variables = {"ANTHROPIC_BASE_URL": other.url, "ANTHROPIC_BEDROCK_BASE_URL": other.url}
        variables |= {name: text.format(url=other.url) for name, text in theirs.items()}
        write_settings(world, variables)
        carried(world)
        assert not [each for each in other.got if "127.0.0.1" in each or "/v1/" in each]
        assert not [each for each in other.got if "/model/" in each], "Bedrock's path"


@pytest.mark.parametrize("fetched", CLAUDES)
def test_an_own_header_in_the_users_settings_is_sent_beside_ours(
    fetched: FETCHED, tmp_path: Path
) -> None:
    world = world_of(fetched, tmp_path, answer)
    write_settings(world, {"ANTHROPIC_CUSTOM_HEADERS": OWN_HEADER})
    carried(world)
    for asked in world.received:
        assert asked.headers["x-team"] == "platform"


@pytest.mark.parametrize("fetched", CLAUDES)
def test_no_switch_in_the_users_settings_makes_a_prompt_attach_a_file(
    fetched: FETCHED, tmp_path: Path
) -> None:
    world = world_of(fetched, tmp_path, answer)
    off = {"CLAUDE_CODE_DISABLE_ATTACHMENTS": "0", "ENABLE_TOOL_SEARCH": "true"}
    write_settings(world, off)
    world.project.mkdir()
    (world.project / "notes.txt").write_text("WORDS-OF-THE-FILE")
    carried(world, prompt="Look at @notes.txt and do the work.")
    assert "WORDS-OF-THE-FILE" not in json.dumps([dict(asked.body) for asked in world.received])


CODEX_PROVIDER = """
name = "theirs"
base_url = "{url}/v1"
wire_api = "responses"
"""
CODEX_HEADERS = 'http_headers = {{ "x-jackline-task" = "other.0", "x-team" = "platform" }}\n'


@pytest.mark.parametrize(
    "settings",
    [
        f'model_provider = "theirs"\n[model_providers.theirs]{CODEX_PROVIDER}',
        f'model_provider = "jackline"\n[model_providers.jackline]{CODEX_PROVIDER}{CODEX_HEADERS}',
        'openai_base_url = "{url}/v1"\nchatgpt_base_url = "{url}"\n',
    ],
    ids=["another provider", "one of our name", "addresses"],
)
def test_no_provider_in_the_users_settings_of_codex_takes_a_call_from_the_gateway(
    settings: str, tmp_path: Path
) -> None:
    world = world_of(codex_binary, tmp_path, answer)
    with stranger() as other:
        (world.home / ".codex").mkdir(parents=True)
        (world.home / ".codex" / "config.toml").write_text(settings.format(url=other.url))
        carried(world)
        assert not [each for each in other.got if "/responses" in each]


def test_settings_that_codex_refuses_at_its_start_are_shown_in_its_words(tmp_path: Path) -> None:
    """It ends before it has read its prompt."""
    world = world_of(codex_binary, tmp_path, answer)
    (world.home / ".codex").mkdir(parents=True)
    (world.home / ".codex" / "config.toml").write_text('profile = "work"\n[profiles.work]\n')

    async def main() -> None:
        async with world.open():
            outcome = await world.carry(Pages(), MeteredLeave(world=world))
            assert outcome.terminated_by is Ending.CRASH
            assert "exit 1" in outcome.evidence.says
            assert "profile" in outcome.evidence.private

    event_loop.run(main())
