"""Several upstreams: what is filled in, what is refused, and who is told where credentials go."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.config import Config, HomeFolders, toml_writer
from jackline.config.files import FileText
from jackline.config.loader import load_alone
from jackline.errors import BadConfigError
from jackline.providers.settings import PRESETS, Credential, UpstreamKind
from tests.config.places import Machine

THREE = """
[[upstream]]

[[upstream]]
name = "aws"
kind = "bedrock"
region = "eu-central-1"

[[upstream]]
preset = "openai"
models = { "claude-opus-*" = "gpt-5.5" }
"""


def faults_of(machine: Machine, text: str, **env: str) -> list[str]:
    path = machine.write_own(text)
    with pytest.raises(BadConfigError) as caught:
        machine.load(environ=env)
    return [fault.removeprefix(str(path)) for fault in caught.value.faults]


def own(machine: Machine, text: str, **env: str) -> Config:
    machine.write_own(text)
    return machine.load(environ=env)


def test_upstreams_keep_their_order_and_each_gets_what_its_kind_needs(machine: Machine) -> None:
    config = own(machine, THREE, OPENAI_API_KEY="a-key")
    first, second, third = config.gateway.upstreams
    assert (first.name, first.kind, first.credential) == (
        "anthropic",
        UpstreamKind.ANTHROPIC,
        Credential.PASS_THROUGH,
    )
    assert second.url == "https://bedrock-runtime.eu-central-1.amazonaws.com"
    assert (second.credential, second.secret) == (Credential.VENDOR, None)
    assert (third.name, third.kind) == ("openai", UpstreamKind.OPENAI_RESPONSES)
    assert third.url == "https://api.openai.com/v1"
    assert (third.credential, third.secret) == (Credential.BEARER, "a-key")
    assert third.models == {"claude-opus-*": "gpt-5.5"}
    assert config.gateway.upstream == first
    assert config.warnings == ()
    told = config.origins
    assert told["upstream[2].kind"] == "preset openai"
    assert told["upstream[1].region"].endswith("jackline.toml:7")
    assert told["upstream.url"] == "default"


def test_what_is_shown_of_several_reads_back_as_the_same(machine: Machine) -> None:
    config = own(machine, THREE + 'limits = { parallel = 3 }\n[upstream.headers]\nx-a = "b"\n',
                 OPENAI_API_KEY="a-key")  # fmt: skip
    text = toml_writer.as_toml(config, origins=True)
    assert "a-key" not in text
    shown = machine.write(text, "shown.toml")
    again = machine.load(JACKLINE_CONFIG=str(shown), OPENAI_API_KEY="a-key")
    assert again.gateway == config.gateway
    values = toml_writer.as_json(config)
    assert values["upstream[2].credential"] == "env:OPENAI_API_KEY"
    assert values['upstream[2].models."claude-opus-*"'] == "gpt-5.5"


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_loads_once_its_needs_are_met(machine: Machine, preset: object) -> None:
    known = PRESETS[getattr(preset, "name", "")]
    lines = [f'preset = "{known.name}"']
    if known.kind in (UpstreamKind.BEDROCK, UpstreamKind.VERTEX):
        region = "us-east-1" if known.kind is UpstreamKind.BEDROCK else "us-east5"
        lines.append(f'region = "{region}"')
    if known.kind is UpstreamKind.VERTEX:
        lines.append('project = "p"')
    if known.url_example:
        lines.append(f'url = "{known.url_example}"')
    if known.kind in (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES):
        lines.append('models = { "*" = "m" }')
    machine.write_own("[[upstream]]\n" + "\n".join(lines))
    config = machine.load(with_secrets=False)
    (upstream,) = config.gateway.upstreams
    assert (upstream.name, upstream.kind) == (known.name, known.kind)
    assert upstream.url.startswith("http")
    assert config.warnings == ()


def test_what_is_written_wins_over_the_preset(machine: Machine) -> None:
    config = own(
        machine,
        '[[upstream]]\npreset = "openai"\nname = "gpt"\nkind = "openai-chat"\n'
        'url = "https://eu.api.openai.com/v1"\ncredential = "env:EU"\nauth = "api-key"\n'
        'models = { "*" = "m" }\n',
        EU="eu-key",
    )
    (upstream,) = config.gateway.upstreams
    assert (upstream.name, upstream.kind) == ("gpt", UpstreamKind.OPENAI_CHAT)
    assert upstream.url == "https://eu.api.openai.com/v1"
    assert (upstream.credential, upstream.secret) == (Credential.API_KEY, "eu-key")


@pytest.mark.parametrize(
    ("lines", "credential"),
    [
        ("", Credential.NONE),
        ('credential = "pass-through"', Credential.PASS_THROUGH),
        ('credential = "none"', Credential.NONE),
        ('credential = "env:K"', Credential.API_KEY),
        ('credential = "env:K"\nauth = "bearer"', Credential.BEARER),
        ('kind = "bedrock"\nregion = "us-east-1"', Credential.VENDOR),
        ('kind = "bedrock"\nregion = "us-east-1"\nauth = "vendor"', Credential.VENDOR),
        ('kind = "bedrock"\nregion = "us-east-1"\ncredential = "env:K"', Credential.BEARER),
        ('preset = "bedrock"\nregion = "us-east-1"\ncredential = "env:K"', Credential.BEARER),
        ('kind = "openai-chat"\nmodels = { "*" = "m" }', Credential.NONE),
        ('kind = "openai-chat"\nmodels = { "*" = "m" }\ncredential = "env:K"', Credential.BEARER),
    ],
)
def test_only_the_first_of_anthropics_dialect_passes_through_unasked(
    machine: Machine, lines: str, credential: Credential
) -> None:
    text = f'[[upstream]]\n[[upstream]]\nname = "b"\nurl = "https://b.example"\n{lines}\n'
    first, second = own(machine, text, K="none").gateway.upstreams
    assert (first.credential, second.credential) == (Credential.PASS_THROUGH, credential)
    expected = "none" if credential in (Credential.API_KEY, Credential.BEARER) else None
    assert second.secret == expected


def test_the_first_of_anthropics_dialect_need_not_be_the_first_of_all(machine: Machine) -> None:
    upstreams = own(
        machine, '[[upstream]]\npreset = "ollama"\nmodels = { "*" = "m" }\n[[upstream]]\n'
    ).gateway.upstreams
    assert [each.credential for each in upstreams] == [Credential.NONE, Credential.PASS_THROUGH]


def test_a_stronger_files_list_replaces_the_weaker_ones_whole(machine: Machine) -> None:
    machine.write_own(THREE)
    machine.trust(machine.write('[[upstream]]\nname = "mine"\nlimits = { parallel = 2 }\n'))
    config = machine.load()
    (only,) = config.gateway.upstreams
    assert (only.name, only.limits.parallel, only.region) == ("mine", 2, None)
    machine.write("upstream = []\n")
    assert len(machine.load(OPENAI_API_KEY="k").gateway.upstreams) == 3


def test_an_address_from_a_variable_or_flag_means_exactly_one(machine: Machine) -> None:
    machine.write_own(THREE)
    local = "http://127.0.0.1:1234"
    for config in (machine.load(JACKLINE_UPSTREAM=local), machine.load(flags={"upstream": local})):
        (only,) = config.gateway.upstreams
        assert (only.name, only.url, only.credential) == (
            "anthropic",
            local,
            Credential.PASS_THROUGH,
        )
    (bedrock,) = machine.load(
        JACKLINE_UPSTREAM_PRESET="bedrock", JACKLINE_UPSTREAM_REGION="us-east-1"
    ).gateway.upstreams
    assert bedrock.kind is UpstreamKind.BEDROCK


def test_any_other_variable_speaks_of_the_first_upstream(machine: Machine) -> None:
    machine.write_own(THREE)
    config = machine.load(JACKLINE_UPSTREAM_LIMITS_PARALLEL="7", OPENAI_API_KEY="k")
    assert [each.limits.parallel for each in config.gateway.upstreams] == [7, None, None]
    assert len(config.gateway.upstreams) == 3


def test_all_faults_of_all_upstreams_are_told_at_once(machine: Machine) -> None:
    assert faults_of(
        machine,
        """
[[upstream]]
models = { "claude-opus-*" = "gpt-5.5" }
[[upstream]]
kind = "bedrok"
url = "https://x.example"
[[upstream]]
kind = "bedrock"
models = { "*" = "llama" }
[[upstream]]
kind = "vertex"
region = "a/b"
[[upstream]]
kind = "openai-chat"
[[upstream]]
name = "openai-chat"
preset = "azure-openai"
models = { "*" = "m" }
""",
    ) == [
        (
            ":5: upstream[1].kind: must be one of 'anthropic', 'bedrock', 'vertex',"
            " 'openai-chat' or 'openai-responses'"
        ),
        ":12: upstream[3].region: is no region of Google's, such as global",
        (
            ':3: upstream.models."claude-opus-*": gpt-5.5 is no Claude model, and nothing else is'
            " served there; it needs an upstream of another kind"
        ),
        ':7: upstream[2].region: kind bedrock needs one, such as region = "us-east-1"',
        (
            ':9: upstream[2].models."*": llama is no Claude model, and nothing else is served'
            " there; it needs an upstream of another kind"
        ),
        (
            ":13: upstream[4].url: kind openai-chat needs one, such as"
            ' url = "https://api.openai.com/v1"'
        ),
        (
            ":16: upstream[5].name: another upstream is called openai-chat already; names must"
            " differ"
        ),
        (
            ":15: upstream[5].url: preset azure-openai needs one, such as"
            ' url = "https://RESOURCE.openai.azure.com/openai/v1"'
        ),
    ]


def test_an_upstream_is_judged_even_where_a_weaker_one_had_faults(machine: Machine) -> None:
    told = faults_of(machine, '[[upstream]]\nkind = "x"\n', JACKLINE_UPSTREAM="http://[::1]:8766")
    assert [fault.partition(": must")[0] for fault in told] == [
        ":2: upstream.kind",
        "JACKLINE_UPSTREAM: upstream.url: is the gateway's own address: it would call itself",
    ]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ('auth = "vendor"', "auth: only kinds bedrock and vertex have a vendor's library"),
        ('auth = "bearer"', "auth: says how a key is sent, and credential names none"),
        (
            'auth = "bearer"\ncredential = "pass-through"',
            "auth: says how a key is sent, and credential names none",
        ),
        (
            'kind = "bedrock"\nregion = "us-east-1"\nauth = "vendor"\ncredential = "env:K"',
            "auth: vendor finds the credential itself",
        ),
        (
            'kind = "vertex"\nregion = "global"\nproject = "p"\ncredential = "pass-through"',
            "credential: what clients send is of no use to a cloud",
        ),
        ('kind = "vertex"\nregion = "global"', "project: kind vertex needs one"),
        ('preset = "opnai"', "preset: must be one of 'anthropic', 'bedrock'"),
        ('credential = "sk-ant-planted"', 'credential: must be "pass-through", "none" or a refe'),
        ('credential = "env:"', 'credential: must be "pass-through", "none" or a reference'),
        ('headers = { Authorization = "planted" }', "the value of Authorization must not be"),
        ('headers = { "a b" = "c" }', "holds a name that no header can have"),
        ('headers = { host = "c" }', "host is written by Jackline itself"),
        ('headers = { x = "a\\nb" }', "the value of x must be plain text on one line"),
        ('url = "http://localhost:8766"', "is the gateway's own address"),
        ("models = { a = 1 }", "must be a text in quotes"),
    ],
)
def test_each_thing_that_cannot_work_is_told(machine: Machine, lines: str, what: str) -> None:
    (told,) = faults_of(machine, f'[[upstream]]\n[[upstream]]\nname = "b"\n{lines}\n', K="k")
    assert what in told
    assert "upstream[1]." in told
    assert "planted" not in told


@pytest.mark.parametrize("text", ["never_degrade = 3", "never_degrade = ['a', '']"])
def test_what_is_never_degraded_is_a_list_of_patterns(machine: Machine, text: str) -> None:
    (told,) = faults_of(machine, text)
    assert "never_degrade" in told
    assert "upstream" not in told


def test_an_upstream_that_stands_in_for_no_claude_is_warned_of_unless_clients_pay(
    machine: Machine,
) -> None:
    text = '[[upstream]]\npreset = "ollama"\n'
    (told,) = own(machine, text).warnings
    assert told.startswith("upstream ollama: only clients that speak OpenAI's dialect are sent")
    assert own(machine, text + 'models = { "claude-*" = "m" }\n').warnings == ()
    codex = '[[upstream]]\npreset = "openai"\ncredential = "pass-through"\n'
    assert own(machine, codex).warnings == ()


ODD: st.SearchStrategy[object] = st.sampled_from(["", "x/y", 1, {}, []])
LIKELY: dict[str, list[object]] = {
    "preset": ["openai", "bedrock", "ollama", "azure-openai", "anthropic"],
    "kind": [kind.value for kind in UpstreamKind],
    "url": ["https://a.example/v1", "http://127.0.0.1:1"],
    "credential": ["pass-through", "none", "env:K"],
    "auth": ["api-key", "bearer", "vendor"],
    "region": ["us-east-1", "global", "us"],
    "project": ["p"],
    "models": [{"claude-*": "gpt-5.5"}, {"*": "claude-b", "url": "claude-c"}],
    "headers": [{"x-a": "b"}, {"x-key": "env:K"}],
    "limits": [{"parallel": 2}],
    "model_limits": [{"b": {"parallel": 2}, "a": {"parallel": 3}}],
}
ONE = st.fixed_dictionaries(
    {"name": st.sampled_from("abcdefgh")},
    optional={
        name: st.sampled_from(values) if number % 4 else st.sampled_from(values) | ODD
        for number, (name, values) in enumerate(LIKELY.items())
    },
)


@given(st.lists(ONE, max_size=3))
@settings(max_examples=200)
def test_any_list_of_upstreams_is_refused_in_words_or_reads_back_as_shown(
    upstreams: list[dict[str, object]],
) -> None:
    folders = HomeFolders(Path("/x"), Path("/x/state"))

    def load(table: dict[str, Any]) -> Config:
        return load_alone(FileText(Path("/x/jackline.toml"), "", table, (), False), folders)

    try:
        config = load({"upstream": upstreams})
    except BadConfigError:
        return
    assert len(config.gateway.upstreams) == max(1, len(upstreams))
    again = load(tomllib.loads(toml_writer.as_toml(config)))
    assert again.gateway == config.gateway


def test_a_bridge_may_stand_in_with_any_family(machine: Machine) -> None:
    config = own(
        machine, '[[upstream]]\npreset = "copilot-bridge"\nmodels = { "claude-opus-*" = "gpt-5" }\n'
    )
    assert config.gateway.upstream.models == {"claude-opus-*": "gpt-5"}


def test_clients_credentials_going_elsewhere_are_warned_of_unless_meant(machine: Machine) -> None:
    path = machine.write_own('[[upstream]]\nname = "b"\nurl = "https://b.example"\n')
    (told,) = machine.load().warnings
    assert told == (
        "upstream b: whatever key or login a client sends is passed through to b.example, as"
        f' {path}:3 says; if you want that, write credential = "pass-through"'
    )
    (told,) = machine.load(JACKLINE_UPSTREAM="https://c.example").warnings
    assert "to c.example, as JACKLINE_UPSTREAM says" in told
    meant = '[[upstream]]\nurl = "https://b.example"\ncredential = "pass-through"\n'
    assert own(machine, meant).warnings == ()
    assert own(machine, meant.replace("pass-through", "none")).warnings == ()
    (told,) = own(machine, meant.replace("https:", "http:")).warnings
    assert "credentials go to b.example unencrypted" in told


def test_anthropics_keys_going_to_another_vendor_are_warned_of_even_if_meant(
    machine: Machine,
) -> None:
    text = (
        '[[upstream]]\npreset = "openai"\ncredential = "pass-through"\nmodels = {{ "{}" = "m" }}\n'
    )
    (told,) = own(machine, text.format("claude-opus-*")).warnings
    assert "keys and logins for Anthropic, too, are passed through to api.openai.com" in told
    (told,) = own(machine, text.format("*")).warnings
    assert "for Anthropic" in told
    assert own(machine, text.format("gpt-*")).warnings == ()


def test_a_project_that_has_a_secret_sent_somewhere_is_warned_of(machine: Machine) -> None:
    path = machine.write(
        '[[upstream]]\nurl = "https://b.example"\ncredential = "env:OPENAI_API_KEY"\n'
        '[[upstream]]\nname = "c"\nurl = "https://c.example"\n'
    )
    machine.trust(path)
    assert machine.load(OPENAI_API_KEY="a-key").warnings == (
        f"calls and what env:OPENAI_API_KEY holds go to https://b.example, as {path}:2 says",
        f"calls go to https://c.example, as {path}:6 says",
    )


def test_a_secret_of_any_upstream_is_looked_up_and_watched(machine: Machine) -> None:
    kept: Path = machine.folders.config / "key"
    kept.write_text("a-key\n")
    kept.chmod(0o600)
    text = '[[upstream]]\n[[upstream]]\nname="b"\ncredential="file:key"\nheaders={x="env:GONE"}\n'
    assert faults_of(machine, text) == [
        ':5: upstream[1].headers.x: the environment variable GONE is not set'
    ]  # fmt: skip
    config = machine.load(GONE="here")
    assert config.gateway.upstreams[1].secret == "a-key"  # noqa: S105 -- made up
    assert config.gateway.upstreams[1].headers == {"x": "here"}
    assert kept in config.watched
