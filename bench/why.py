"""Measure `jackline why` against what people do today: jq over all transcripts.

Rules: (1) both read the same files in the same run, after one warming pass over them; (2) both must
find the same number of API errors, or the figures are void; (3) the tree is the same every time.
Not here: whether the verdict is right (tests/autopsy/).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MEGABYTE = 1_000_000
FILES = 1_400
AGENTS_PER_SESSION = 34
TURNS = 3
JQ_FILTER = "select(.isApiErrorMessage)"
WALL = "You've hit your session limit · resets 10:10pm (Europe/Kiev)"
ERROR_MARKS = b'"error":"rate_limit","isApiErrorMessage":true,"apiErrorStatus":429,'
WORDS = [
    *("def", "class", "return", "import", "self", "value", "None", "error", "request", "async"),
    *("await", "config", "client", "session", "limit", "retry", "window", "token", "the", "of"),
    *('"name":', '{"id": 17},', "path/to/module.py:42", "->", "list[str]", "`jackline`", "—"),
    *("naïve", "12ms\t", "\n    if x != y:\n", "\n        raise ValueError(x)\n\n", "\n\n## "),
]


@dataclass(frozen=True)
class Measured:
    """One tool's run over the tree."""

    tool: str
    seconds: float
    peak_mb: float | None
    errors_found: int


def main() -> int:
    """Build the tree, run both tools over it, print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 MB instead of 1 GB")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if shutil.which("jq") is None:
        print("jq is not installed: apt-get install jq (or brew install jq)", file=sys.stderr)
        return 2
    size = (100 if arguments.quick else 1_000) * MEGABYTE
    files = FILES // 10 if arguments.quick else FILES
    with tempfile.TemporaryDirectory(prefix="jackline-bench-") as folder:
        root = Path(folder)
        errors = build_tree(root, size, files)
        transcripts = sorted(root.rglob("*.jsonl"))
        total = sum(len(path.read_bytes()) for path in transcripts)
        run_jackline(root)
        # In turns, so that a busy moment of the machine hits both; the best of each counts.
        turns = [(run_jackline(root), run_jq(transcripts, processes=1)) for _ in range(TURNS)]
        best = [min(runs, key=lambda run: run.seconds) for runs in zip(*turns, strict=True)]
        runs = [*best, run_jq(transcripts, processes=2)]
    show(runs, total, len(transcripts), errors, as_json=arguments.json)
    agreed = all(run.errors_found == errors for run in runs)
    return 0 if agreed else 1


def show(runs: Sequence[Measured], size: int, files: int, errors: int, *, as_json: bool) -> None:
    """Print the figures, as a table or as JSON."""
    ours = runs[0].seconds
    if as_json:
        figures = [{**asdict(run), "times_slower": run.seconds / ours} for run in runs]
        print(json.dumps({"bytes": size, "files": files, "errors": errors, "runs": figures}))
        return
    print(f"{files:,} transcripts, {size / MEGABYTE:,.0f} MB, {errors:,} API errors in them")
    print(f"{'':34}{'seconds':>9}{'MB/s':>8}{'peak MB':>9}{'errors':>8}{'ratio':>8}")
    for run in runs:
        peak = "?" if run.peak_mb is None else f"{run.peak_mb:,.0f}"
        print(
            f"{run.tool:34}{run.seconds:9.2f}{size / MEGABYTE / run.seconds:8,.0f}{peak:>9}"
            f"{run.errors_found:8,}{run.seconds / ours:7.1f}x"
        )


def run_jackline(root: Path) -> Measured:
    """Time the command as a user would run it, from start to exit."""
    command = [sys.executable, "-m", "jackline", "why", str(root), "--json"]
    # An installed package has its bytecode beside it, whatever this shell's settings are.
    kept = {"PYTHONPYCACHEPREFIX": str(root / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    seconds, peak, output = timed(command, environment={**os.environ, **kept})
    agents = json.loads(output)["agents"]
    found = sum(len(agent["failures"]) for agent in agents)
    return Measured("jackline why --json", seconds, peak, found)


def run_jq(transcripts: Sequence[Path], *, processes: int) -> Measured:
    """Time jq over the same files: one jq for all, or several side by side."""
    names = "\0".join(map(str, transcripts)).encode()
    each = -(-len(transcripts) // processes)
    command = ["xargs", "-0", f"-P{processes}", f"-n{each}", "jq", "-c", JQ_FILTER]
    seconds, peak, output = timed(command, names)
    found = sum(1 for line in output.splitlines() if line)
    name = f"jq -c '{JQ_FILTER}'" if processes == 1 else f"the same, {processes} at a time"
    return Measured(name, seconds, peak, found)


def timed(
    command: list[str], stdin: bytes = b"", *, environment: Mapping[str, str] = os.environ
) -> tuple[float, float | None, bytes]:
    """Wall time, peak memory of the largest process in megabytes where known, and the output."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
        given.write(stdin)
        given.seek(0)
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=given, stdout=output, env=environment)
        peak: float | None = None
        if sys.platform == "win32":
            process.wait()
        else:
            _, _, usage = os.wait4(process.pid, 0)
            # Linux counts in kilobytes, macOS in bytes.
            peak = usage.ru_maxrss / (1_000 if sys.platform == "linux" else MEGABYTE)
            process.returncode = 0
        seconds = time.perf_counter() - start
        output.seek(0)
        return seconds, peak, output.read()


def build_tree(root: Path, size: int, files: int) -> int:
    """Write transcripts like those of a busy week; the value is how many API errors they hold."""
    rng = random.Random(20_261_115)  # noqa: S311 -- the same tree every time, no secrets
    texts = [encoded_text(rng) for _ in range(400)]
    errors = 0
    for number in range(files):
        session = f"{number // (AGENTS_PER_SESSION + 1):08x}-0000-4000-8000-000000000000"
        place = number % (AGENTS_PER_SESSION + 1)
        project = root / "projects" / f"-home-user-project-{number // 350}"
        agent = Agent(rng, session, f"a{number:016x}" if place else None, newer=number % 2 == 1)
        path = project / f"{session}.jsonl"
        if agent.agent_id is not None:
            path = project / session / "subagents" / f"agent-{agent.agent_id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        dies = rng.random() < 0.27
        errors += dies
        quota = int(size / files * rng.uniform(0.4, 1.6))
        with path.open("wb") as file:
            for line in transcript(agent, texts, quota, dies=dies):
                file.write(line)
        if agent.agent_id is not None:
            meta = {"agentType": "general-purpose", "description": f"part {place}"}
            path.with_suffix(".meta.json").write_text(json.dumps(meta))
    return errors


def encoded_text(rng: random.Random) -> bytes:
    """Something like a tool's output, as a JSON string: 300 bytes to 200 kB, median 4 kB."""
    length = int(min(200_000, max(300, rng.lognormvariate(8.3, 1.4))))
    words: list[str] = []
    while length > 0:
        words.append(rng.choice(WORDS))
        length -= len(words[-1]) + 1
    return json.dumps(" ".join(words), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Agent:
    """Whose lines are written, and how they begin and end; every second one has a newer client."""

    rng: random.Random
    session: str
    agent_id: str | None
    newer: bool

    def line(self, middle: bytes) -> bytes:
        """One line with the fields that all lines of this agent share."""
        who = b'"agentId":"%s",' % self.agent_id.encode() if self.agent_id else b""
        side = b"true" if self.agent_id else b"false"
        version = b"2.1.325" if self.newer else b"2.1.197"
        return (
            b'{"parentUuid":"%s","isSidechain":%s,%s%s"userType":"external","entrypoint":"cli",'
            b'"cwd":"/home/user/project","sessionId":"%s","version":"%s","gitBranch":"main"}\n'
            % (self.uuid(), side, who, middle, self.session.encode(), version)
        )

    def uuid(self) -> bytes:
        """A made-up UUID."""
        digits = b"%032x" % self.rng.getrandbits(128)
        return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def when(self, clock: int) -> bytes:
        """The pair of fields that follows every message."""
        hour, minute, second = clock // 3600 % 24, clock // 60 % 60, clock % 60
        return b'"uuid":"%s","timestamp":"2026-11-15T%02d:%02d:%02d.%03dZ",' % (
            self.uuid(),
            hour,
            minute,
            second,
            self.rng.randrange(1_000),
        )


def transcript(agent: Agent, texts: Sequence[bytes], quota: int, *, dies: bool) -> Iterator[bytes]:
    """The lines of one agent, with their keys in the order in which the client writes them."""
    rng = agent.rng
    clock = rng.randrange(86_000)
    yield agent.line(
        b'"promptId":"%s","type":"user","message":{"role":"user","content":"Review this part."},%s'
        % (agent.uuid(), agent.when(clock))
    )
    yield agent.line(
        b'"attachment":{"type":"skill_listing","content":%s,"skillCount":13},"type":"attachment",%s'
        % (texts[0], agent.when(clock))
    )
    if agent.newer:
        shape = request_shape(agent, texts)
        quota -= len(shape)
        yield shape
    while quota > 0:
        clock += rng.randrange(2, 40)
        call = b"toolu_%020x" % rng.getrandbits(80)
        result = rng.choice(texts)
        for line in (
            answer(agent, call, clock),
            tool_result(agent, call, result, clock),
            *(kept_request(agent, result, clock) if agent.newer else ()),
        ):
            quota -= len(line)
            yield line
    yield last_line(agent, clock + 3, dies=dies)


def answer(agent: Agent, call: bytes, clock: int) -> bytes:
    """One tool call of the model, with its usage."""
    rng = agent.rng
    command = json.dumps(" ".join(rng.choices(WORDS, k=rng.randrange(5, 120)))).encode()
    written, cached, output = rng.choices(range(9_000), k=3)
    return agent.line(
        b'"message":{"id":"msg_%016x","type":"message","role":"assistant","model":"claude-opus-4-8",'
        b'"content":[{"type":"tool_use","id":"%s","name":"Bash","input":{"command":%s}}],'
        b'"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,'
        b'"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d,'
        b'"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0},"service_tier":'
        b'"standard","cache_creation":{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":0},'
        b'"inference_geo":"","iterations":[],"speed":"standard"},"stop_details":null},'
        b'"requestId":"req_%016x","type":"assistant",%s'
        % (
            rng.getrandbits(64),
            call,
            command,
            written,
            cached,
            output,
            rng.getrandbits(64),
            agent.when(clock),
        )
    )


def tool_result(agent: Agent, call: bytes, text: bytes, clock: int) -> bytes:
    """What the tool gave back; the main transcript keeps it twice, as the client does."""
    twice = b""
    if agent.agent_id is None:
        twice = b'"toolUseResult":{"stdout":%s,"stderr":"","interrupted":false},' % text
    return agent.line(
        b'"promptId":"%s","type":"user","message":{"role":"user","content":[{"tool_use_id":"%s",'
        b'"type":"tool_result","content":%s,"is_error":false}]},%s%s"sourceToolAssistantUUID":"%s",'
        % (agent.uuid(), call, text, agent.when(clock), twice, agent.uuid())
    )


def request_shape(agent: Agent, texts: Sequence[bytes]) -> bytes:
    """The system prompt and the tools, which newer clients keep once for each agent."""
    parameter = b'{"type":"string","description":"What to look for, and where."}'
    tool = (
        b'{"name":"Tool%d","description":%s,"input_schema":{"type":"object","properties":'
        b'{"pattern":%s,"path":%s,"limit":{"type":"number"}},"required":["pattern"]}}'
    )
    tools = b",".join(tool % (n, texts[n], parameter, parameter) for n in range(12))
    return b'{"type":"api-request-shape","sessionId":"%s","shape":{"tools":[%s]}}\n' % (
        agent.session.encode(),
        tools,
    )


def kept_request(agent: Agent, text: bytes, clock: int) -> Iterator[bytes]:
    """What newer clients keep of each request: the new message once more, and its parameters."""
    session = agent.session.encode()
    digest = b"%064x" % agent.rng.getrandbits(256)
    yield (
        b'{"type":"api-request-blob","sessionId":"%s","hash":"%s","message":{"role":"user",'
        b'"content":[{"type":"tool_result","content":%s}]}}\n' % (session, digest, text)
    )
    yield (
        b'{"type":"api-request","sessionId":"%s",%s"version":"2.1.325","params":{"model":'
        b'"claude-opus-4-8","max_tokens":128000,"betas":["interleaved-thinking-2025-05-14",'
        b'"context-management-2025-06-27"],"output_config":{"effort":"medium"}},"tail":["%s"],'
        b'"requestDigest":"%s"}\n' % (session, agent.when(clock), digest, digest)
    )


def last_line(agent: Agent, clock: int, *, dies: bool) -> bytes:
    """The end: an API error in place of an answer, or an answer."""
    model, stop, text, marks = (
        (b"<synthetic>", b"stop_sequence", WALL, ERROR_MARKS)
        if dies
        else (b"claude-opus-4-8", b"end_turn", "This part is reviewed.", b"")
    )
    return agent.line(
        b'"type":"assistant",%s"message":{"id":"%s","model":"%s","role":"assistant",'
        b'"stop_reason":"%s","type":"message","usage":{"input_tokens":0,"output_tokens":0},'
        b'"content":[{"type":"text","text":%s}]},%s'
        % (
            agent.when(clock),
            agent.uuid(),
            model,
            stop,
            json.dumps(text, ensure_ascii=False).encode(),
            marks,
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
