"""The gateways that are measured: nginx, Jackline, LiteLLM, Portkey, claude-code-router.

Rules: (1) each is set up as its own documents say, with logging to files off and with whatever
makes it faster on; (2) versions are pinned where a newer one is known not to work here.
Not here: starting them in order and measuring them (subjects.py, rounds.py).
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gateway_bench.peer import CACHE, KEY, Launch, MissingError, Peer, run_installer
from gateway_bench.traffic import MODEL


class Nginx(Peer):
    """`proxy_pass` with keep-alive to the upstream, unbuffered, as streams need it."""

    name = "nginx"
    _own = CACHE / "nginx"

    def _program(self) -> Path | None:
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        unpacked = self._own / "root" / "usr" / "sbin" / "nginx"
        return Path(found) if found else unpacked if unpacked.exists() else None

    def installed(self) -> bool:
        """See `Peer`."""
        return self._program() is not None

    def install(self) -> None:
        """See `Peer`."""
        run_installer(["apt-get", "download", "nginx"], self._own)
        for package in self._own.glob("nginx_*.deb"):
            run_installer(["dpkg", "-x", str(package), "root"], self._own)

    def version(self) -> str:
        """See `Peer`."""
        said = subprocess.run(
            [str(self._program()), "-v"], capture_output=True, text=True, check=False
        )
        return (said.stderr + said.stdout).strip().rpartition("/")[2]

    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """See `Peer`."""
        temporary = "\n".join(
            f"  {kind}_temp_path {state}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = state / "nginx.conf"
        config.write_text(
            f"""daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {state}/pid;
error_log {state}/error.log crit;
events {{ worker_connections 16384; }}
http {{
  access_log off;
{temporary}
  client_body_buffer_size 512k;
  client_max_body_size 64m;
  keepalive_requests 1000000000;
  upstream vendor {{
    server 127.0.0.1:{upstream};
    keepalive 512;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://vendor;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
""",
            "utf-8",
        )
        return Launch([str(self._program()), "-e", f"{state}/error.log", "-c", str(config)])


class Jackline(Peer):
    """Ours, as `jackline up` starts it with nothing configured: everything on."""

    name = "jackline"

    def installed(self) -> bool:
        """See `Peer`."""
        asked = [sys.executable, "-m", "jackline", "up", "--help"]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def install(self) -> None:
        """See `Peer`."""
        raise MissingError("this Python has no `jackline up`; run `make setup` first")

    def version(self) -> str:
        """See `Peer`."""
        said = subprocess.run(
            [sys.executable, "-c", "import jackline; print(jackline.__version__)"],
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout.strip()

    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """See `Peer`."""
        nothing = state / "jackline.toml"
        nothing.write_text("", "utf-8")  # so that no configuration of this machine counts
        place = ("--port", str(port), "--upstream", f"http://127.0.0.1:{upstream}")
        own = ("--state", str(state / "state"), "--config", str(nothing))
        return Launch([sys.executable, "-m", "jackline", "up", *place, *own])


class LiteLLM(Peer):
    """With opentelemetry and httptools installed: without them it is slower still."""

    name = "litellm"
    _own = CACHE / "litellm"
    _packages = ("litellm[proxy]>=1.106", "opentelemetry-api", "opentelemetry-sdk", "httptools")

    def installed(self) -> bool:
        """See `Peer`."""
        return (self._own / "bin" / "litellm").exists()

    def install(self) -> None:
        """See `Peer`."""
        run_installer([sys.executable, "-m", "venv", "--clear", str(self._own)], CACHE)
        pip = [str(self._own / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run_installer([*pip, *self._packages], self._own)

    def version(self) -> str:
        """See `Peer`."""
        for found in self._own.glob("lib/python*/site-packages/litellm-*.dist-info"):
            return found.name.removeprefix("litellm-").removesuffix(".dist-info")
        return "?"

    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """See `Peer`."""
        key = f"sk-{secrets.token_hex(24)}"  # it refuses to start with a weak one
        model = {
            "model": f"anthropic/{MODEL}",
            "api_base": f"http://127.0.0.1:{upstream}",
            "api_key": KEY,
        }
        config = {
            "model_list": [{"model_name": MODEL, "litellm_params": model}],
            "litellm_settings": {"telemetry": False},
            "general_settings": {"master_key": key},
        }
        file = state / "config.yaml"
        file.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        command = [str(self._own / "bin" / "litellm"), "--config", str(file)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(state)}
        return Launch(command, env, key=key, seconds=180.0)


class _NodePeer(Peer):
    """One that npm installs."""

    package: str
    pinned: str
    script: str
    # Packages below it that are held at versions which still work, whoever asks for them.
    held: Mapping[str, str] = MappingProxyType({})

    def _own(self) -> Path:
        return CACHE / self.name

    def _script(self) -> Path:
        return self._own() / "node_modules" / self.script

    def installed(self) -> bool:
        """See `Peer`."""
        return self._script().exists() and shutil.which("node") is not None

    def install(self) -> None:
        """See `Peer`."""
        where = self._own()
        where.mkdir(parents=True, exist_ok=True)
        wanted = {
            "private": True,
            "dependencies": {self.package: self.pinned, **self.held},
            "overrides": dict(self.held),
        }
        (where / "package.json").write_text(json.dumps(wanted), "utf-8")
        npm = shutil.which("npm") or "npm"
        run_installer([npm, "install", "--no-audit", "--no-fund", "--loglevel", "error"], where)

    def version(self) -> str:
        """See `Peer`."""
        return self.pinned

    def _node(self, *arguments: str) -> list[str]:
        # Not through npx: that leaves the node child alive when it is ended itself.
        return [shutil.which("node") or "node", str(self._script()), *arguments]


class Portkey(_NodePeer):
    """With the two packages held back that break its streams when they are newer."""

    name = "portkey"
    package = "@portkey-ai/gateway"
    pinned = "1.15.2"
    held = MappingProxyType({"hono": "~4.9", "@hono/node-server": "~1.13"})
    script = "@portkey-ai/gateway/build/start-server.js"

    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """See `Peer`."""
        del state  # it keeps none
        headers = (
            ("x-portkey-provider", "anthropic"),
            ("x-portkey-custom-host", f"http://127.0.0.1:{upstream}/v1"),
        )
        env = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
        return Launch(self._node(f"--port={port}", "--headless"), env, headers=headers)


class ClaudeCodeRouter(_NodePeer):
    """The newest one that Node 20 runs, passing Anthropic's own format through."""

    name = "ccr"
    package = "@musistudio/claude-code-router"
    pinned = "2.0.0"
    script = "@musistudio/claude-code-router/dist/cli.js"

    def launch(self, port: int, upstream: int, state: Path) -> Launch:
        """See `Peer`."""
        provider = {
            "name": "bench",
            "api_base_url": f"http://127.0.0.1:{upstream}/v1/messages",
            "api_key": KEY,
            "models": [MODEL],
            "transformer": {"use": ["Anthropic"]},
        }
        config = {
            "LOG": False,
            "PORT": port,
            "NON_INTERACTIVE_MODE": True,
            "Providers": [provider],
            "Router": {"default": f"bench,{MODEL}"},
        }
        home = state / ".claude-code-router"
        home.mkdir()
        (home / "config.json").write_text(json.dumps(config), "utf-8")
        env = {"HOME": str(state), "SERVICE_PORT": str(port)}
        return Launch(self._node("start"), env)


PEERS: dict[str, Peer] = {
    peer.name: peer for peer in (Nginx(), Jackline(), LiteLLM(), Portkey(), ClaudeCodeRouter())
}
