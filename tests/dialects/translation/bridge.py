"""A small server that speaks Anthropic's dialect and asks a server of one of OpenAI's.

Rules: (1) all translation is Jackline's own; (2) bytes are passed on as they come, in small pieces;
(3) it keeps what was asked and told, for the tests.
Not here: lanes, holding, repair (the gateway's work).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.dialects.neutral.fields import TranslatedDocument, UntranslatableError
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.neutral.stream import StreamTranslator
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat, to_chat
from jackline.dialects.openai_responses import (
    ResponsesStreamTranslator,
    from_responses,
    to_responses,
)


@dataclass(frozen=True)
class Dialect:
    """One of OpenAI's dialects."""

    path: str
    ask: Callable[[bytes, str], TranslatedDocument]
    answer: Callable[[bytes, AnswerOptions], TranslatedDocument]
    translator: Callable[[AnswerOptions], StreamTranslator]


DIALECTS = {
    "chat": Dialect("/v1/chat/completions", to_chat, from_chat, ChatStreamTranslator),
    "responses": Dialect("/v1/responses", to_responses, from_responses, ResponsesStreamTranslator),
}


@dataclass
class Bridge:
    """The running server; a context manager."""

    dialect: Dialect
    port: int
    asked: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __enter__(self) -> Bridge:
        bridge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                bridge.serve(self, body)

            def log_message(self, *_: object) -> None:
                """Tests read the requests, not a log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def serve(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        asked = json.loads(body)
        self.asked.append(asked)
        try:
            result = self.dialect.ask(body, "gpt-x")
        except UntranslatableError as error:
            self.refused.append(str(error))
            document = to_anthropic_error(400, json.dumps({"error": str(error)}).encode())
            _send(client, 400, "application/json", document)
            return
        face = AnswerOptions(asked["model"], result.tool_names)
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            heads = {"content-type": "application/json", "authorization": "Bearer x"}
            upstream.request("POST", self.dialect.path, result.body, heads)
            response = upstream.getresponse()
            if response.status != 200:
                document = to_anthropic_error(response.status, response.read())
                _send(client, response.status, "application/json", document)
            elif not asked.get("stream"):
                document = self.dialect.answer(response.read(), face).body
                _send(client, 200, "application/json", document)
            else:
                self._stream(client, response, face)
        finally:
            upstream.close()

    def _stream(
        self,
        client: BaseHTTPRequestHandler,
        response: http.client.HTTPResponse,
        face: AnswerOptions,
    ) -> None:
        client.send_response(200)
        client.send_header("content-type", "text/event-stream")
        client.send_header("connection", "close")
        client.end_headers()
        translator = self.dialect.translator(face)
        while piece := response.read(100):
            client.wfile.write(translator.feed(piece))
        client.wfile.write(translator.end())
        client.close_connection = True


def _send(client: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    client.send_response(status)
    client.send_header("content-type", kind)
    client.send_header("content-length", str(len(body)))
    client.end_headers()
    client.wfile.write(body)
