"""Which source wins, and what it is worth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jackline.agents.prices import Price
from jackline.budgets.budget import Budget
from jackline.config.files import is_strangers
from jackline.errors import BadConfigError
from jackline.flows.settings import Reserve, RunSettings, WakeSettings
from jackline.gateway.settings import CacheSettings, GatewaySettings, StreamMode
from jackline.journal.store import JournalSettings
from jackline.lanes import CacheTtl, KnownLimits
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from jackline.providers.settings import CostClass, Credential
from tests.config.places import Machine

# Tested where they belong.
_ELSEWHERE = (
    *("notify.webhook", "notify.secret", "notify.apprise"),
    *("otlp.endpoint", "otlp.authorization", "otlp.receive", "otlp.prompts"),
    *("agents.runners", "agents.tools", "agents.folders", "agents.depth", "batch.allow"),
)


def test_without_anything_the_defaults_of_the_settings_hold(machine: Machine) -> None:
    config = machine.load()
    assert config.gateway == GatewaySettings()
    assert config.journal == JournalSettings()
    assert config.runs == RunSettings()
    assert config.log_level == "info"
    assert config.state_dir == machine.folders.state
    assert config.files == ()
    assert config.warnings == ()
    assert set(config.origins.values()) == {"default"}


def test_a_file_sets_everything_it_can_set(machine: Machine) -> None:
    authority = machine.write_own("", "ca.pem")
    path = machine.write_own("""
state = "kept"
stream = "block"
never_degrade = ["claude-opus-*", "tag:night", "agent:review-*"]

[listen]
host = "::1"
port = 9000
read_only = true
names = ["jackline", "LLM.team.example"]

[[upstream]]
name = "team"
preset = "litellm"
kind = "anthropic"
url = "https://gateway.example/prefix/"
credential = "env:TEAM"
auth = "bearer"
region = "unused"
project = "unused"
status_page = "https://status.example"
proxy = "http://proxy.example:3128"
ca_file = "ca.pem"
limits = { requests_per_minute = 50, input_tokens_per_minute = 4e4, parallel = 9 }
model_limits."claude-opus-*" = { output_tokens_per_minute = 8000, parallel = 2 }
model_limits."*" = { parallel = 3 }
models = { "claude-opus-*" = "team-large", "claude-*" = "team-small" }
headers = { x-team = "blue", x-key = "env:TEAM" }
cost_class = "low"
local = true
longest_answer = 8192
cache_ttl = "auto"
counts_cached = true
accept_rejected_clients = true
admin_key = "env:ADMIN"
workspace = "wrkspc_1"

[hold]
quota = "30m"
until_reset = true
other = 60
commit_after = "5s"
ping_every = "2s"
placeholder_every = "3s"

[caps]
session = 4
agent = 1
[caps.tags]
night = 2

[cache]
ttl = "1h"
tags = { night = "auto" }
classes = { careful = "client" }

[limits]
headers = "32KB"
body = "1MB"
unfinished_bodies = "16MB"
held_bodies = "17MB"
answer = "18MB"
held_answers = "21MB"
answer_time = "19m"
connections = 10
waiting_calls = 11
header_time = "12s"
body_pause = "13s"
body_pace = "20KB"
idle = "14s"
drain = "15s"

[journal]
keep = "12h"
size = "1GB"

[run]
runner = "claude-code"
model = "claude-opus-4-8"
on_quota = "abort"
at_once = 7
guard = 5
grace = "5s"

[reserve]
share = 0.9
classes = ["low", "night"]

[resume]
hours = "22:00-07:00 Europe/Kiev"
spend = 12.5
confirm = true
max_wakes = 5
sessions = true

[budget]
tokens = 1000000
dollars = 9.5
agents = 40
turns = 400
time = "2h"
strict = true
[budget.rolling]
per = "5h"
tokens = 5000000
dollars = 20
strict = true

[agents]
runner = "codex"
model = "gpt-5.5"
wait = "20s"
long_wait = "1h"

[notify]
on = ["needs-you"]
desktop = true
quiet = "22:00-07:00"
budget_share = 0.5

[log]
level = "debug"
""")
    config = machine.load(TEAM="a-key")
    gateway = config.gateway
    assert (gateway.listen.host, gateway.listen.port) == ("::1", 9000)
    assert gateway.listen.names == ("jackline", "llm.team.example")
    assert gateway.never_degrade == ("claude-opus-*", "tag:night", "agent:review-*")
    assert gateway.stream is StreamMode.BLOCK
    upstream = gateway.upstream
    assert (upstream.name, upstream.url) == ("team", "https://gateway.example/prefix")
    assert (upstream.proxy, upstream.ca_file) == ("http://proxy.example:3128", str(authority))
    assert upstream.limits == KnownLimits(50, 4e4, None, 9)
    assert list(upstream.model_limits.items()) == [
        ("claude-opus-*", KnownLimits(None, None, 8000, 2)),
        ("*", KnownLimits(parallel=3)),
    ]
    assert (upstream.credential, upstream.secret) == (Credential.BEARER, "a-key")
    assert (upstream.region, upstream.project) == ("unused", "unused")
    assert (upstream.cost_class, upstream.longest_answer) == (CostClass.LOW, 8192)
    assert upstream.local
    assert (upstream.cache_ttl, upstream.counts_cached) == (CacheTtl.AUTO, True)
    assert gateway.cache == CacheSettings(
        CacheTtl.HOUR, {"night": CacheTtl.AUTO}, {"careful": CacheTtl.CLIENT}
    )
    assert upstream.accept_rejected_clients
    assert (upstream.admin_key, upstream.workspace) == ("env:ADMIN", "wrkspc_1")
    assert list(upstream.models.items()) == [
        ("claude-opus-*", "team-large"),
        ("claude-*", "team-small"),
    ]
    assert upstream.headers == {"x-team": "blue", "x-key": "a-key"}
    assert "a-key" not in repr(config)
    hold = gateway.hold
    assert (hold.quota, hold.until_reset, hold.other) == (1800.0, True, 60.0)
    assert (hold.commit_after, hold.ping_every, hold.placeholder_every) == (5.0, 2.0, 3.0)
    caps = gateway.caps
    assert (caps.session, caps.agent, caps.tags) == (4, 1, {"night": 2})
    limits = gateway.limits
    assert (limits.headers, limits.body) == (32 * 1024, 1024**2)
    assert (limits.unfinished_bodies, limits.held_bodies) == (16 * 1024**2, 17 * 1024**2)
    assert (limits.answer, limits.answer_time) == (18 * 1024**2, 19 * 60)
    assert (limits.held_answers, limits.body_pace) == (21 * 1024**2, 20 * 1024)
    assert (limits.connections, limits.waiting_calls) == (10, 11)
    times = (limits.header_time, limits.body_pause, limits.idle)
    assert (*times, limits.drain) == (12.0, 13.0, 14.0, 15.0)
    assert (config.journal.keep, config.journal.size) == (0.5 * 86400, 1024**3)
    assert (config.log_level, config.state_dir) == ("debug", machine.folders.config / "kept")
    assert config.runs == RunSettings(
        budgets=(
            Budget(
                tokens=1_000_000, dollars=9.5, agents=40, turns=400, seconds=7200.0, strict=True
            ),
            Budget(tokens=5_000_000, dollars=20, window=18000.0, strict=True),
        ),
        on_quota="abort",
        wake=WakeSettings("22:00-07:00 Europe/Kiev", 12.5, confirm=True, max_wakes=5),
        reserve=Reserve(0.9, ("low", "night")),
        runner="claude-code",
        model="claude-opus-4-8",
        guard=5,
        at_once=7,
        grace=5.0,
    )
    assert config.tools.agents == AgentSettings("codex", "gpt-5.5", wait=20.0, long_wait=3600.0)
    assert config.continue_sessions
    assert config.files == (path,)
    left = {
        key
        for key, origin in config.origins.items()
        if origin == "default"
        and not key.endswith((".token", "limits.output_tokens_per_minute", *_ELSEWHERE))
    }
    assert left == set()


def test_flag_beats_variable_beats_project_beats_user_beats_default(machine: Machine) -> None:
    own = machine.write_own("[listen]\nport = 1\n[hold]\nquota = 1\nother = 1\nping_every = 1\n")
    project = machine.write("[hold]\nquota = 2\nother = 2\n")
    config = machine.load(
        flags={"port": 4}, JACKLINE_PORT="3", JACKLINE_HOLD_QUOTA="3s", JACKLINE_STATE=""
    )
    hold = config.gateway.hold
    assert (config.gateway.listen.port, hold.quota, hold.other, hold.ping_every) == (4, 3, 2, 1)
    assert config.files == (project, own)
    told = config.origins
    assert told["listen.port"] == "flag --port"
    assert told["hold.quota"] == "JACKLINE_HOLD_QUOTA"
    assert told["hold.other"] == f"{project}:3"
    assert told["hold.ping_every"] == f"{own}:6"
    assert told["hold.until_reset"] == "default"


def test_the_nearest_file_upwards_is_the_projects(machine: Machine) -> None:
    deep = machine.write("", "a/b/file").parent
    machine.write("[hold]\nquota = 1\n")
    assert machine.load(cwd=deep).gateway.hold.quota == 1
    machine.write("[tool.jackline.hold]\nquota = 2\n", "a/pyproject.toml")
    assert machine.load(cwd=deep).gateway.hold.quota == 2
    machine.write("[tool.ruff]\nline-length = 3\n", "a/b/pyproject.toml")
    assert machine.load(cwd=deep).gateway.hold.quota == 2
    nearest = machine.write("[hold]\nquota = 4\n", "a/jackline.toml")
    config = machine.load(cwd=deep)
    assert (config.gateway.hold.quota, config.files) == (4, (nearest,))


def test_a_line_in_pyproject_is_told(machine: Machine) -> None:
    path = machine.write("[project]\nname = 'x'\n\n[tool.jackline]\nstream = 'live'\n")
    path = path.rename(path.with_name("pyproject.toml"))
    assert machine.load().origins["stream"] == f"{path}:5"


def test_someone_elses_broken_pyproject_is_no_fault_of_ours(machine: Machine) -> None:
    machine.write("[project\n", "pyproject.toml")
    assert machine.load().files == ()


def test_a_named_file_is_read_alone(machine: Machine) -> None:
    machine.write_own("[hold]\nquota = 1\n")
    machine.write("[hold]\nother = 2\n")
    named = machine.write("[hold]\nping_every = 3\n", "else/where.toml")
    config = machine.load(JACKLINE_CONFIG="else/where.toml")
    assert config.files == (named,)
    hold = config.gateway.hold
    assert (hold.quota, hold.other, hold.ping_every) == (900, 6 * 3600, 3)
    assert machine.load(flags={"config": named}, JACKLINE_CONFIG="none").files == (named,)


def test_a_named_file_that_is_missing_is_a_fault(machine: Machine) -> None:
    with pytest.raises(BadConfigError, match=r"nowhere\.toml: cannot be read"):
        machine.load(JACKLINE_CONFIG="nowhere.toml")


def test_a_project_inside_the_users_own_folder_is_read_once(machine: Machine) -> None:
    own = machine.write_own("[listen]\nport = 5\n")
    assert machine.load(cwd=own.parent).files == (own,)


def test_who_names_the_address_names_the_upstream_anew(machine: Machine) -> None:
    machine.write_own(
        '[[upstream]]\nname = "team"\nurl = "https://a.example"\nlimits = { parallel = 3 }\n'
    )
    weaker = machine.load().gateway.upstream
    assert (weaker.name, weaker.limits.parallel) == ("team", 3)
    upstream = machine.load(JACKLINE_UPSTREAM="http://127.0.0.1:1234").gateway.upstream
    assert (upstream.name, upstream.url) == ("anthropic", "http://127.0.0.1:1234")
    assert upstream.limits.parallel is None
    extended = machine.load(JACKLINE_UPSTREAM_LIMITS_REQUESTS_PER_MINUTE="7").gateway.upstream
    assert (extended.name, extended.limits) == ("team", KnownLimits(7.0, parallel=3))


def test_every_plain_key_has_a_variable(machine: Machine) -> None:
    config = machine.load(
        JACKLINE_HOST="localhost",
        JACKLINE_STATE="here",
        JACKLINE_STREAM="live",
        JACKLINE_CAPS_SESSION="4",
        JACKLINE_HOLD_UNTIL_RESET="yes",
        JACKLINE_JOURNAL_SIZE="1MB",
        JACKLINE_LOG_LEVEL="error",
        JACKLINE_LIMITS_DRAIN="5",
        JACKLINE_NEVER_DEGRADE="claude-opus-*, tag:night",
    )
    assert config.gateway.never_degrade == ("claude-opus-*", "tag:night")
    assert config.gateway.listen.host == "localhost"
    assert config.state_dir == machine.project / "here"
    assert config.gateway.stream is StreamMode.LIVE
    assert config.gateway.caps.session == 4
    assert config.gateway.hold.until_reset
    assert config.journal.size == 1024**2
    assert config.log_level == "error"
    assert config.gateway.limits.drain == 5


def test_flags_go_by_short_names_or_keys_and_none_is_not_given(machine: Machine) -> None:
    config = machine.load(
        flags={
            "afk": True,
            "state": Path("there"),
            "upstream": None,
            "hold.quota": "1h",
            'upstream.model_limits."claude-*".parallel': 2,
        }
    )
    assert config.gateway.hold.until_reset
    assert config.gateway.hold.quota == 3600
    assert config.state_dir == machine.project / "there"
    assert config.gateway.upstream.model_limits == {"claude-*": KnownLimits(parallel=2)}
    assert config.origins["hold.until_reset"] == "flag --afk"
    assert config.origins["hold.quota"] == "flag hold.quota"


def test_a_variable_of_no_section_is_only_warned_of(machine: Machine) -> None:
    config = machine.load(JACKLINE_PROT="1", JACKLINE_DEBUG="1")
    assert config.warnings == ("JACKLINE_PROT is not a variable that Jackline knows",)


@pytest.mark.skipif(os.name == "nt", reason="owners are not numbers there")
def test_a_strangers_file_in_a_folder_above_is_left_aside(machine: Machine) -> None:
    assert is_strangers(12345, me=1000)
    assert not is_strangers(1000, me=1000)
    assert not is_strangers(0, me=1000)
    if os.getuid() != 0:
        return  # only root can give a file away, for the whole way to be gone
    path = machine.write("[listen]\nport = 5\n")
    os.chown(path, 12345, -1)
    config = machine.load()
    assert (config.gateway.listen.port, config.files) == (8766, ())
    assert "belongs to another user" in config.warnings[0]
    assert machine.load(JACKLINE_CONFIG=str(path)).gateway.listen.port == 5


def test_a_projects_file_that_decides_where_credentials_go_is_warned_of(machine: Machine) -> None:
    path = machine.write('[[upstream]]\nurl = "https://elsewhere.example"\n')
    machine.trust(path)
    (warning,) = machine.load().warnings
    assert warning == f"calls and credentials go to https://elsewhere.example, as {path}:2 says"
    machine.trust(machine.write('[[upstream]]\nurl = "http://127.0.0.1:1234"\n'))
    assert machine.load().warnings == ()


def test_importing_the_room_does_not_load_the_validator() -> None:
    code = "import sys, jackline.config; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_hours_and_rolling_budgets_that_cannot_be_meant_are_told(machine: Machine) -> None:
    machine.write_own('[resume]\nhours = "25:00-07:00"\n[budget.rolling]\nper = "5h"\n')
    with pytest.raises(BadConfigError) as told:
        machine.load()
    hours, rolling = told.value.faults
    assert "resume.hours" in hours
    assert "22:00-07:00" in hours
    assert "tokens or dollars" in rolling


def test_a_strict_budget_that_limits_neither_tokens_nor_dollars_is_a_fault(
    machine: Machine,
) -> None:
    machine.write_own("[budget]\nturns = 3\nstrict = true\n")
    with pytest.raises(BadConfigError) as told:
        machine.load()
    (fault,) = told.value.faults
    assert "budget.strict" in fault
    assert "tokens or dollars" in fault


def test_prices_hold_in_their_order_and_what_is_not_said_counts_in_full(machine: Machine) -> None:
    machine.write_own(
        '[prices."own-*"]\ninput = 2\noutput = 4\n'
        '[prices."*"]\ninput = 1\noutput = 3\ncache_read = 0.1\ncache_write = 1.25\n'
        "cache_write_1h = 1.5\n"
    )
    assert list(machine.load().prices.items()) == [
        ("own-*", Price(2, 4, 2, 2, 4)),
        ("*", Price(1, 3, 0.1, 1.25, 1.5)),
    ]


def test_half_a_price_is_told(machine: Machine) -> None:
    path = machine.write_own('[prices."own-*"]\noutput = 4\n[prices.other]\ninput = -1\n')
    with pytest.raises(BadConfigError) as told:
        machine.load()
    assert any(fault.startswith(f"{path}:4: prices.other.input") for fault in told.value.faults)
    machine.write_own('[prices."own-*"]\noutput = 4\n')
    with pytest.raises(BadConfigError) as told:
        machine.load()
    (half,) = told.value.faults
    assert half.startswith(f'{path}:2: prices."own-*".output: a price needs both')


_PERMITTED = (
    '[agents]\nrunners = ["codex"]\ntools = ["Bash(pytest *)"]\nfolders = ["~/work"]\ndepth = 2\n'
    '[batch]\nallow = ["pytest *"]\n'
)


def test_what_models_may_do_unasked_is_the_users_to_say_and_not_the_projects(
    machine: Machine,
) -> None:
    machine.write(_PERMITTED)
    config = machine.load()
    assert config.tools == ToolSettings()
    (told,) = config.warnings
    for key in ("agents.runners", "agents.tools", "agents.folders", "agents.depth", "batch.allow"):
        assert key in told
    machine.write("")
    machine.write_own(_PERMITTED)
    tools = machine.load().tools
    assert tools.agents.runners == ("codex",)
    assert tools.agents.tools == ("Bash(pytest *)",)
    assert tools.agents.folders == (Path("~/work").expanduser(),)
    assert tools.agents.depth == 2
    assert tools.batch.allow == ("pytest *",)
    machine.write_own('[agents]\nfolders = ["work"]\n')
    with pytest.raises(BadConfigError, match=r"agents\.folders"):
        machine.load()
