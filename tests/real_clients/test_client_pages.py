"""What the pages of docs/clients/ tell a user to do works with the real client, under a throttle.

Rules: (1) configuration, commands and programs are taken from the page, with the gateway's port and
the vendor's address replaced; (2) every page has its test, and every test its page; (3) the
provider refuses what comes first, so that a client that went past the gateway would show it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Fail, Rule, Say
from jackline.testing import SimulatedProvider
from tests.cli.gateways import Place
from tests.docs.pages import DOCS, FENCE, shell_lines
from tests.real_clients.clients import claude_binary
from tests.real_clients.codex import codex_binary
from tests.real_clients.npm_packages import platform_name, unpacked
from tests.real_clients.python_packages import installed

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(sys.platform == "win32", reason="commands of POSIX shells"),
]

HELLO = "Hello from the simulated model."
# A throttle, for the first request of every client, however long it takes to start.
REFUSED = Rule(Fail(429, "rate_limit_error", "Too many requests"), call=0)
PATIENCE = 300
PAGES = ("agent-sdk", "aider", "codex", "langchain", "openai-sdk", "opencode")


def text_of(page: str) -> str:
    return (DOCS / "clients" / f"{page}.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text_of(page)) if kind == language]


class FilePlace(Place):
    """A place whose upstreams are those of its file, as users have them."""

    @property
    def env(self) -> dict[str, str]:
        return {name: value for name, value in super().env.items() if name != "JACKLINE_UPSTREAM"}


@dataclass
class World:
    """A gateway before a provider that throttles, and an empty home for the client."""

    place: Place
    provider: SimulatedProvider

    @property
    def home(self) -> Path:
        return self.place.folder / "client"

    def follow(self, page: str) -> None:
        """Run the page's own commands of ours, but for the start of the gateway."""
        for line in shell_lines(text_of(page)):
            words = shlex.split(line)
            if words[0] == "jackline" and words[1] == "upstream":
                answer = self.place.jackline(*words[1:])
                assert answer.code == 0, answer.err
                self._redirect()

    def _redirect(self) -> None:
        """Let an upstream that was added have its vendor at the provider."""
        path = Path(self.place.more["JACKLINE_CONFIG"])
        lines: list[str] = []
        for line in path.read_text("utf-8").splitlines():
            lines.append(line)
            if line.startswith('preset = "openai'):
                lines.append(f'url = "{self.provider.url}/v1"')
        path.write_text("\n".join(lines), "utf-8")

    def run(self, words: list[str], environ: Mapping[str, str]) -> str:
        """What a client prints that knows nothing of the developer's home."""
        self.home.mkdir(exist_ok=True)
        done = subprocess.run(
            words,
            cwd=self.home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "ANTHROPIC_API_KEY": "sk-ant-dummy",
                "OPENAI_API_KEY": "sk-dummy",
                **environ,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def program(self, page: str, number: int, packages: Path | str, **environ: str) -> str:
        """What a Python program of the page prints."""
        code = self.here(blocks(page, "python")[number])
        return self.run([sys.executable, "-c", code], {"PYTHONPATH": str(packages), **environ})

    def here(self, text: str) -> str:
        """The page's text with this gateway's port."""
        assert "127.0.0.1:8766" in text
        return text.replace("127.0.0.1:8766", f"127.0.0.1:{self.place.port}")

    def was_carried(self, said: str) -> None:
        """The client got the answer, and the provider had refused it before."""
        assert HELLO in " ".join(said.split()), said
        outcomes = [entry.outcome for entry in self.provider.ledger]
        assert RequestOutcome.REJECTED in outcomes
        assert RequestOutcome.COMPLETED in outcomes
        self.provider.reset_all()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SimulatedProvider() as provider:
        provider.says(REFUSED, Say(HELLO))
        place = FilePlace(tmp_path, provider.url)
        # As after an installation: one upstream, Anthropic's, which passes credentials through.
        place.more["JACKLINE_CONFIG"] = str(tmp_path / "jackline.toml")
        anthropic = f'[[upstream]]\nurl = "{provider.url}"\ncredential = "pass-through"\n'
        (tmp_path / "jackline.toml").write_text(anthropic, "utf-8")
        yield World(place, provider)


def test_every_page_is_tested_here() -> None:
    assert sorted(path.stem for path in (DOCS / "clients").glob("*.md")) == sorted(PAGES)
    source = Path(__file__).read_text("utf-8")
    for page in PAGES:
        assert source.count(f'"{page}"') >= 2
        assert "Tested: " in text_of(page)


def test_openai_sdk(world: World) -> None:
    world.follow("openai-sdk")
    packages = installed("openai==3.51.0")
    with world.place.up():
        world.was_carried(world.program("openai-sdk", 0, packages))


def test_langchain(world: World) -> None:
    world.follow("langchain")
    packages = installed("langchain-openai==1.7.3", "langchain-anthropic==1.7.7")
    with world.place.up():
        for number in range(2):
            world.was_carried(world.program("langchain", number, packages))


def test_agent_sdk(world: World) -> None:
    # The wheel is there without what it needs; all but this the tests have themselves.
    packages = f"{claude_binary().parents[2]}{os.pathsep}{installed('sniffio==1.3.1')}"
    with world.place.up():
        said = world.program("agent-sdk", 0, packages, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
        world.was_carried(said)


@pytest.mark.soak
def test_aider(world: World) -> None:
    """Apart from the quick ones: it brings half a gigabyte."""
    world.follow("aider")
    packages = installed("aider-chat==0.86.2")
    exports = [line for line in shell_lines(text_of("aider")) if line.startswith("export ")]
    commands = [line for line in shell_lines(text_of("aider")) if line.startswith("aider ")]
    assert len(exports) == len(commands) == 2
    # Questions and looks at the network that a person would answer.
    quiet = "--yes-always --no-check-update --no-show-model-warnings --analytics-disable --no-git"
    with world.place.up():
        for export, command in zip(exports, commands, strict=True):
            name, _, value = world.here(export).removeprefix("export ").partition("=")
            words = [sys.executable, "-m", *shlex.split(f"{command} {quiet}")]
            said = world.run(
                [*words, "--message", "Say hello."], {name: value, "PYTHONPATH": str(packages)}
            )
            world.was_carried(said)


def test_opencode(world: World) -> None:
    version = "1.18.33"
    package = f"opencode-{platform_name()}@{version}"
    folder = unpacked(package, f"opencode-{version}", keep="package/bin/opencode")
    program = next(path for path in folder.rglob("opencode") if path.is_file())
    world.home.mkdir()
    (configuration,) = blocks("opencode", "json")
    (world.home / "opencode.json").write_text(world.here(configuration), "utf-8")
    (command,) = [line for line in shell_lines(text_of("opencode")) if line.startswith("opencode")]
    # It would ask the network for news of itself and of models.
    quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    with world.place.up():
        world.was_carried(world.run([str(program), *shlex.split(command)[1:]], quiet))


def test_codex(world: World) -> None:
    world.follow("codex")
    home = world.home / ".codex"
    home.mkdir(parents=True)
    world.place.more |= {"CODEX_HOME": str(home), "OPENAI_API_KEY": "sk-dummy"}
    connected = world.place.jackline("connect", "codex")
    assert connected.code == 0, connected.err
    (command,) = [line for line in shell_lines(text_of("codex")) if line.startswith("codex")]
    words = [str(codex_binary()), *shlex.split(command)[1:], "--skip-git-repo-check"]
    with world.place.up():
        said = world.run([*words, "--model", "gpt-5.5"], {"CODEX_HOME": str(home)})
        world.was_carried(said)
