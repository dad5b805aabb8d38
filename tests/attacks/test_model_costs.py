"""A model that was talked into costing time or memory: small arguments that ask for much work.

Rules: those of this package. Work is counted as steps, sizes and calls, never as seconds.
"""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jackline import event_loop
from jackline.agents.runner import JsonObject
from jackline.agents.structured_answer import StructuredAnswer, build_validator, check_group
from jackline.assembly import StateDir
from jackline.batches.arguments import inside
from jackline.batches.batch import run_batch
from jackline.batches.commands import LONGEST_LINE
from jackline.batches.fetch import FetchTool
from jackline.batches.files import ReadArguments
from jackline.batches.policy import LONGEST_URL, Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, CallResult, ToolContext, ToolFailedError
from jackline.errors import BadArgumentError, UnreadableError
from jackline.flows.records import RunRecord
from jackline.flows.store.run_store import RunStore
from jackline.mcp_server.agent_manager import RunSnapshot
from jackline.mcp_server.batch_tools import LEFT_OUT, ResultRoom, batch_tools
from jackline.mcp_server.endpoint import LARGEST_REQUEST
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from jackline.mcp_server.status_tools import SeenStores
from jackline.outside_names import LONGEST_PATH
from tests.assembly.world import run
from tests.attacks.listener import listening
from tests.mcp_server.agents_world import AgentsWorld, call, refused


def _patterns(*patterns: str) -> dict[str, Any]:
    return {"properties": {f"p{number}": {"pattern": each} for number, each in enumerate(patterns)}}


@pytest.mark.parametrize(
    "schema",
    [
        _patterns(*(rf"\pL{{8}}{number:x}" for number in range(5_500))),
        _patterns(*(f"a{number}" for number in range(10_000))),
        _patterns(r"\W" * 500),
        _patterns(r"\s" * 500),
        _patterns(r"(?i)" + "[ -\uffff]" * 50),
        _patterns(r"(?=a)\pL{8}" * 500),
        _patterns(*([r"\pL{24}"] * 100)),
        {"patternProperties": {rf"\pL{{8}}{number:x}": {} for number in range(5_500)}},
    ],
    ids=["many", "small", "classes", "spaces", "any case", "divided", "same", "names"],
)
def test_all_patterns_of_a_schema_share_one_allowance(schema: dict[str, Any]) -> None:
    with pytest.raises(BadArgumentError):
        build_validator(schema)


def test_usual_patterns_are_within_it() -> None:
    usual = (
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        r"^(?=.*[A-Z])(?=.*\d)(?=.*[^\w]).{8,64}$",
        r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$",
        r"(?i)^(yes|no)$",
        r"^.{1,200}$",
        r"^\pL+$",
    )
    build_validator(_patterns(*usual, *(f"^item-{n}-[a-z]+$" for n in range(40))))


def test_the_schemas_of_a_group_share_one_allowance() -> None:
    schemas = [_patterns(*(f"^{name}{n}$" for n in range(100))) for name in range(200)]
    for each in schemas[:3]:
        build_validator(each)
    with pytest.raises(BadArgumentError, match="together"):
        check_group(schemas)
    assert check_group([schemas[0]] * 200) == 100
    many = check_group(schemas[:40])
    with pytest.raises(BadArgumentError):
        build_validator(_patterns(r"\pL{8}"), many)


def test_a_schema_is_built_once_for_all_agents_that_have_it() -> None:
    schema = _patterns("^once$")
    assert build_validator(schema) is build_validator(dict(schema))


@pytest.mark.parametrize("kind", ["allOf", "anyOf", "oneOf"])
def test_references_that_double_at_each_step_are_refused(kind: str) -> None:
    steps: dict[str, Any] = {
        f"s{n}": {kind: [{"$ref": f"#/$defs/s{n + 1}"}, {"$ref": f"#/$defs/s{n + 1}"}]}
        for n in range(40)
    }
    schema = {"$ref": "#/$defs/s0", "$defs": {**steps, "s40": {"type": "integer"}}}
    with pytest.raises(BadArgumentError, match="references"):
        build_validator(schema)


def test_a_definition_that_many_places_use_is_no_doubling() -> None:
    many = {f"p{n}": {"$ref": "#/$defs/text"} for n in range(3_000)}
    tree = {"anyOf": [{"type": "null"}, {"properties": {"left": {"$ref": "#/$defs/tree"}}}]}
    schema = {"properties": many, "$defs": {"text": {"type": "string"}, "tree": tree}}
    assert build_validator(schema).is_valid({"p1": "x"})


def test_a_value_that_is_to_be_a_pattern_is_read_with_bounded_work() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"}
    validator = build_validator(schema)
    assert validator.is_valid(r"^\d+$")
    assert not validator.is_valid("(")
    assert not validator.is_valid(r"\W" * 500)


def test_an_answer_that_a_schema_reads_again_and_again_is_not_checked() -> None:
    """Each level of the answer doubles the work, and the answer decides how many there are."""
    below = {"properties": {"c": {"$ref": "#/$defs/node"}}}
    node = {"anyOf": [below, dict(below)], "properties": {"v": {"type": "integer"}}}
    schema: JsonObject = {"type": "object", "$ref": "#/$defs/node", "$defs": {"node": node}}
    answer = StructuredAnswer(schema)

    def nested(levels: int, value: object) -> dict[str, object]:
        found: dict[str, object] = {"v": value}
        for _ in range(levels):
            found = {"c": found}
        return found

    assert answer.fault(nested(5, 1)) is None
    assert "is not valid under any" in str(answer.fault(nested(3, "x")))
    assert "too large to say where" in str(answer.fault(nested(15, "x")))
    assert answer.fault(nested(15, 1)) is None
    assert "too much work" in str(answer.fault(nested(60, 1)))
    assert "too much work" in answer.fault_for_people(nested(400, "x"))


def test_an_answer_that_fails_in_many_branches_is_not_described() -> None:
    branches = [{"type": "string", "minLength": n} for n in range(1_000)]
    answer = StructuredAnswer({"type": "array", "items": {"anyOf": branches}})
    assert answer.fault({"value": ["x" * 999] * 5}) is None
    assert "too large to say where" in str(answer.fault({"value": [1] * 500}))
    assert "too much work" in str(answer.fault({"value": [[n] for n in range(5_000)]}))


def test_a_usual_large_answer_is_checked() -> None:
    row = {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(10)}}
    answer = StructuredAnswer(
        {"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": row}}
    )
    rows: list[dict[str, object]] = [{f"f{n}": n for n in range(10)} for _ in range(5_000)]
    assert answer.fault({"value": rows}) is None
    rows[-1]["f3"] = "x"
    assert "too large to say where" in str(answer.fault({"value": rows}))


def test_of_an_answer_with_many_faults_only_the_first_are_looked_for() -> None:
    answer = StructuredAnswer({"type": "object", "additionalProperties": {"type": "integer"}})
    wrong: dict[str, object] = {f"k{n}": "x" for n in range(40_000)}
    fault = answer.fault(wrong)
    assert fault is not None
    assert fault.count("is not of type") == 1
    assert answer.fault_for_people(wrong).count("(type)") == 1
    assert answer.fault(dict(list(wrong.items())[:9])) is not None
    assert str(answer.fault(dict(list(wrong.items())[:9]))).endswith("; and more")


# --- arguments ----------------------------------------------------------------------------------


def test_of_many_wrong_arguments_the_first_are_described(tmp_path: Path) -> None:
    async def main() -> None:
        async with AgentsWorld(tmp_path).open() as client:
            many, _ = await refused(client, "batch", calls=[{}] * 20_000)
            assert many.count("is a required property") <= 1
            assert len(many) < 2_000
            long, _ = await refused(client, "agent", prompt="x", cwd="a/" * LONGEST_PATH)
            assert f"longer than {LONGEST_PATH} characters" in long
            few, _ = await refused(client, "batch", calls=[{}] * 9)
            assert few.count("is a required property") == 3
            assert "(and more)" in few

    run(main())


def test_a_call_that_is_too_large_is_refused_with_the_reason(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            running = StateDir(service.config.state_dir).running()
            assert running is not None
            given = {"name": "agent", "arguments": {"prompt": "x" * LARGEST_REQUEST}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}
            headers = {"x-jackline-control": running.token}
            async with httpx2.AsyncClient(headers=headers) as http:
                answer = await http.post(f"{service.url}/mcp", json=body)
            assert answer.status_code == 413
            assert f"at most {LARGEST_REQUEST:,} bytes" in answer.json()["error"]["message"]

    run(main())


def test_many_unknown_arguments_of_a_tool_are_counted() -> None:
    with pytest.raises(ToolFailedError) as failed:
        ReadArguments.checked({"path": "f", **{f"k{n}": 1 for n in range(5_000)}})
    assert "5,000" in failed.value.says
    assert len(failed.value.says) < 300


# --- paths and addresses ------------------------------------------------------------------------

_LONG = "a/" * LONGEST_PATH


def test_a_path_that_no_system_takes_is_followed_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[str] = []
    plain = os.path.realpath

    def follow(path: str, **how: Any) -> str:
        followed.append(str(path))
        return plain(path, **how)

    monkeypatch.setattr("os.path.realpath", follow)
    with pytest.raises(ToolFailedError, match="at most"):
        inside(tmp_path, _LONG)
    settings = AgentSettings()
    with pytest.raises(BadArgumentError, match="at most"):
        settings.working_folder(_LONG, tmp_path)
    assert not settings.sight_of(tmp_path)(f"/{_LONG}")
    stores = SeenStores.of_user(tmp_path, {}, settings.sight_of(tmp_path))
    with pytest.raises(UnreadableError) as unknown:
        stores.target(_LONG, tmp_path)
    assert len(unknown.value.message) < 400
    tool = FetchTool()
    for name, given in (("read", "path"), ("search", "path"), ("shell", "cwd")):
        tool.name = name
        judged = Policy(tmp_path, ("ls *",)).judge(BatchCall("1", tool, {given: _LONG}))
        assert isinstance(judged, Denied)
        assert "bytes" in judged.why
    assert not [path for path in followed if len(path) > LONGEST_PATH]


def test_a_name_that_is_too_long_is_no_bug(tmp_path: Path) -> None:
    name = "a" * 400
    with pytest.raises(BadArgumentError, match="no folder"):
        AgentSettings().working_folder(name, tmp_path)

    async def main() -> None:
        world = AgentsWorld(tmp_path)
        async with world.open() as client:
            calls = [
                {"id": tool, "tool": tool, "input": {"pattern": "x", "path": name}}
                if tool == "search"
                else {"id": tool, "tool": tool, "input": {"path": name}}
                for tool in ("search", "read")
            ]
            _, data = await refused(client, "batch", calls=calls)
            assert not [each for each in data["results"] if "crashed" in each["error"]]
            for tool, given in (
                ("why", {"id": f"{name}/b"}),
                ("agent", {"prompt": "x", "cwd": name}),
                ("batch", {"calls": calls, "cwd": name}),
            ):
                text, _ = await refused(client, tool, **given)
                assert "a bug in Jackline" not in text

    run(main())


def test_a_long_address_is_not_read() -> None:
    address = "https://docs.example.org/" + "%25" * LONGEST_URL
    allow = "fetch:https://docs.example.org/*"
    judged = Policy(Path("/"), (allow,)).judge(BatchCall("1", FetchTool(), {"url": address}))
    assert isinstance(judged, Denied)
    assert f"{LONGEST_URL:,}" in judged.why
    assert len(judged.why) < 300


def test_a_long_command_is_not_read_for_its_label() -> None:
    tool = ShellTool()
    long = "ls " + "a " * LONGEST_LINE
    assert not tool.read_only({"command": long})
    assert len(tool.words({"command": long}).what) <= LONGEST_LINE + 10
    assert len(tool.words({"argv": ["ls", *["a"] * 100_000]}).what) < 3_000


# --- what is held -------------------------------------------------------------------------------


def test_the_results_of_one_batch_are_held_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(os.urandom(3_000_000))
    (batch,) = batch_tools(ToolSettings)
    calls: list[object] = [
        {"id": str(number), "tool": "read", "input": {"path": "a.png"}} for number in range(60)
    ]

    async def main() -> None:
        reply = await batch.run({"calls": calls}, ToolCaller(folder=tmp_path))
        results = reply.data["results"]
        assert isinstance(results, list)
        assert sum(each["text"] == LEFT_OUT for each in results) == 58

    tracemalloc.start()
    try:
        run(main())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80_000_000


def test_all_batches_share_one_room() -> None:
    from jackline.batches.tool import ToolOutput  # noqa: PLC0415 -- named beside its use

    in_all = ResultRoom(1_000)
    first, second = ResultRoom(800, in_all), ResultRoom(800, in_all)
    assert first.fitted(ToolOutput("x" * 600)).text == "x" * 600
    assert second.fitted(ToolOutput("x" * 600)).text == LEFT_OUT
    assert second.fitted(ToolOutput("x" * 100)).text == "x" * 100
    first.close()
    assert second.fitted(ToolOutput("x" * 500)).text == "x" * 500


# --- pages --------------------------------------------------------------------------------------


def _fetched(url: str) -> CallResult:
    address = BatchCall("0", FetchTool((f"{url}/*",)), {"url": f"{url}/first"})
    return event_loop.run(run_batch([address], context=ToolContext(Path())))["0"]


def test_the_body_of_a_redirect_is_not_read() -> None:
    """It has no end, and comes as fast as it is taken."""
    most, sent = 64 << 20, [0]

    def answer(line: socket.socket, asked: bytes) -> None:
        if b" /next " in asked:
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nthe\n")
            return
        line.sendall(b"HTTP/1.1 302 Found\r\nLocation: /next\r\n\r\n")
        while sent[0] < most:
            sent[0] += line.send(b"x" * 65_536)

    with listening(answer) as server:
        result = _fetched(server.url)
    assert result.text.strip() == "the"
    assert sent[0] < most / 2


def test_a_redirect_is_followed_before_its_body_comes() -> None:
    asked_next = threading.Event()
    in_time: list[bool] = []

    def answer(line: socket.socket, asked: bytes) -> None:
        if b" /next " in asked:
            asked_next.set()
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nthe\n")
            return
        line.sendall(b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 9\r\n\r\n")
        in_time.append(asked_next.wait(10))

    with listening(answer) as server:
        assert _fetched(server.url).text.strip() == "the"
    assert in_time == [True]


def test_an_answer_that_never_begins_is_given_up() -> None:
    """Interim answers follow each other for ever."""
    most, sent = 64 << 20, [0]

    def answer(line: socket.socket, asked: bytes) -> None:
        del asked
        part = b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000
        while sent[0] < most:
            sent[0] += line.send(part)

    with listening(answer) as server:
        result = _fetched(server.url)
    assert not result.ok
    assert sent[0] < most / 2


# --- many ids -----------------------------------------------------------------------------------


def test_a_run_that_many_ids_name_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    plain = RunSnapshot.load

    async def load(engine: RunStore, record: RunRecord) -> RunSnapshot:
        loaded.append(record.run_id)
        return await plain(engine, record)

    async def main() -> None:
        async with AgentsWorld(tmp_path).open() as client:
            _, data = await call(client, "agents", orders=[{"prompt": f"{n}"} for n in range(8)])
            ids = [each["task_id"] for each in data["agents"]]
            monkeypatch.setattr(RunSnapshot, "load", load)
            _, told = await call(client, "agent_status", ids=ids)
            assert [each["task_id"] for each in told["runs"]] == ids
            await call(client, "agent_wait", ids=ids)

    run(main())
    assert len(loaded) == 2
