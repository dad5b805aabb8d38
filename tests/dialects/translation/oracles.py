"""Ask programs of other people what they make of our bytes: the official SDKs and llm-rosetta.

Rules: (1) they come from the package index by name and version, and are kept in .cache apart from
the tests' own packages; (2) they run in one process of their own, a question a line; (3) what
cannot be had fails loudly: a skipped test proves nothing.
Not here: what is asserted (test_official_sdks.py, test_rosetta.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

PACKAGES = ("openai==3.49.0", "anthropic==2.8.0", "llm-rosetta==0.13.0")
# Some of what they need is built for one version of Python.
_NAME = [*(package.replace("==", "-") for package in PACKAGES), f"py{sys.version_info.minor}"]
CACHE = Path(__file__).parents[3] / ".cache" / "real_clients" / "-".join(_NAME)

# Types of requests are checked with every field known and every iterable walked through; streams
# are read by the SDK's own client over a transport in memory.
_SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import anthropic, httpx2
from llm_rosetta import ConversionPipeline
from pydantic import TypeAdapter
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParams

KINDS = {
    "chat request": CompletionCreateParams,
    "responses request": ResponseCreateParams,
    "message": Message,
    "chat answer": ChatCompletion,
    "chat chunk": ChatCompletionChunk,
    "responses answer": Response,
    "responses event": ResponseStreamEvent,
}
adapters = {kind: TypeAdapter(type) for kind, type in KINDS.items()}

def walked(value):
    if isinstance(value, dict):
        return {name: walked(inner) for name, inner in value.items()}
    if isinstance(value, (str, bytes, int, float, type(None))) or not hasattr(value, "__iter__"):
        return value
    return [walked(inner) for inner in value]

def typed(kind, document):
    read = adapters[kind].validate_python(document, extra="forbid")
    if kind.endswith("request"):
        return walked(read)
    return read.to_dict(mode="json")

def streamed(stream):
    def answer(request):
        head = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=head, content=stream.encode())
    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(api_key="x", http_client=http, max_retries=0)
    asked = [{"role": "user", "content": "Hi"}]
    with client.messages.stream(model="m", max_tokens=9, messages=asked) as said:
        return said.get_final_message().to_dict(mode="json")

ASKED = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "openai_responses": {"model": "m", "input": "Hi"},
}

def rosetta(verb, source, target, document):
    pipeline = ConversionPipeline(source, target)
    if verb == "request":
        return pipeline.convert_request(document)
    pipeline.convert_request(ASKED[source])
    if verb == "answer":
        return pipeline.convert_response(document)
    processor = pipeline.create_stream_processor()
    return [told for event in document for told in processor.process_chunk(event)]

VERBS = {"typed": typed, "streamed": streamed, "rosetta": rosetta}
for line in sys.stdin:
    verb, *given = json.loads(line)
    try:
        told = {"value": VERBS[verb](*given)}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"[:3000]}
    print(json.dumps(told), flush=True)
"""


class OracleError(AssertionError):
    """The other program does not take it."""


def oracle_folder() -> Path:
    """Where the packages are, downloaded on first use."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fresh = Path(folder) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
            subprocess.run([*command, str(fresh), *PACKAGES], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half.
            with suppress(OSError):
                fresh.rename(CACHE)
    return CACHE


class Oracle:
    """The process that translates; a context manager."""

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONPATH": str(oracle_folder()), "PYTHONUTF8": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()

    def ask(self, verb: str, *value: object) -> Any:
        """What it says; OracleError when it refuses."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([verb, *value]) + "\n")
        process.stdin.flush()
        result = json.loads(process.stdout.readline())
        if "error" in result:
            raise OracleError(result["error"])
        return result["value"]
