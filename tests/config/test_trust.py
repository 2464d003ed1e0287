"""The changes of a config that need a new question, and the record of a person's acceptance."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.exposed import EXPOSED

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.config.loader import load_accepted, load_config
from casual_mcp_nb.config.trust import Trust, TrustEntry, TrustStore, store_folder
from casual_mcp_nb.errors import ConfigError, TrustRequiredError, UsageError
from casual_mcp_nb.notebook.consent import TrustGate

LOCAL = {
    "command": "shop-server",
    "args": ["--port", "1"],
    "env": {"SHOP_TOKEN": "${SECRET}", "NODE_OPTIONS": "--no-warnings"},
    "cwd": "shop",
}
REMOTE = {"url": "https://shop.example/mcp", "headers": {"Authorization": "Bearer ${SECRET}"}}
CLIENT = {"provider": "openai", "base_url": "https://models.example/v1"}
ENVIRON = {
    "SECRET": "a-secret-0123456789",
    "OTHER": "another-0123456789",
    "OPENAI_API_KEY": "sk-0123456789abcdef",
}


def written(
    file: Path,
    local: Mapping[str, Any] = LOCAL,
    remote: Mapping[str, Any] = REMOTE,
    client: Mapping[str, Any] = CLIENT,
) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        json.dumps({"servers": {"local": local, "remote": remote}, "clients": {"models": client}})
    )
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "project" / "config.json")


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "trust")


def read(file: Path, **environ: str) -> Config:
    return load_config(file, environ={**ENVIRON, **environ})


def states(store: TrustStore, config: Config, typed_in: str) -> dict[str, str]:
    entries = store.entries(config, "the session", typed_in)
    return {entry.name: entry.state for entry in entries if entry.kind == "server"}


INPUTS: dict[str, Any] = {
    "inputs": [
        {"id": "region", "type": "promptString", "description": "Region", "default": "eu"},
        {"id": "token", "type": "promptString", "password": True},
    ],
    "servers": {
        "local": {
            "command": "shop-server",
            "args": ["--region=${input:region}", "--as=${USER_NAME}-${input:token}", "${PASS}"],
            "env": {"PASS": "${input:token}", "MODE": "x"},
        }
    },
}


class Answers:
    """What a person types at the prompts, in order, and whether it was asked for before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.left = list(answers)
        monkeypatch.setattr("builtins.input", lambda question: self.left.pop(0))
        monkeypatch.setattr("getpass.getpass", lambda question: self.left.pop(0))


def test_a_config_is_accepted_before_anything_is_typed_and_whatever_is(
    tmp_path: Path, store: TrustStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER_NAME", "anna")

    def opened(config: Mapping[str, Any], *typed: str) -> TrustEntry:
        """Open a file, and return what its server was before anything was typed, and after."""
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps(config))
        answers = Answers(monkeypatch, *typed)
        seen: list[TrustEntry] = []

        def see(config: Config) -> None:
            assert len(answers.left) in (0, len(typed))
            seen.extend(entry for entry in store.entries(config) if entry.kind == "server")

        loaded = load_accepted(file, see)
        assert answers.left == []
        see(loaded)
        assert seen[0] == seen[1]
        store.accept(loaded)
        return seen[0]

    new = opened(INPUTS, "us", "a-secret-0123456789")
    assert new.state == "new"
    arguments = dict(new.facts)["arguments"]
    assert "--region=${input:region [eu]}" in arguments
    assert "a-secret" not in arguments
    assert opened(INPUTS, "asia", "another-0123456789").state == "trusted"
    # What a config decides about an answer is a part of it.
    region, token = INPUTS["inputs"]
    other = {**INPUTS, "inputs": [{**region, "default": "--other"}, token]}
    assert opened(other, "", "another-0123456789").changed == ("arguments",)
    monkeypatch.setenv("USER_NAME", "bert")
    assert opened(other, "", "another-0123456789").changed == ("arguments",)
    # A config of ours has no such definitions.
    ours = {"servers": INPUTS["servers"]}
    assert opened(ours, "us", "a-secret-0123456789").changed == ("arguments", "asks for")
    assert opened(ours, "asia", "another-0123456789").state == "trusted"


def test_what_is_typed_is_left_open_wherever_it_is(
    tmp_path: Path, store: TrustStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = {
        "url": "https://shop.example/${input:path}",
        "headers": {"X-Shop": "${input:shop}"},
        "auth": "oauth",
        "sign_in": {"client_id": "${input:client}", "client_secret": "${input:secret}"},
    }
    client = {"provider": "openai", "base_url": "https://models.example/${input:version}"}
    model = {"client": "c", "model": "m", "extra_body": {"user": ["${input:user}"]}}
    file = tmp_path / "config.json"
    sections = {"servers": {"remote": remote}, "clients": {"c": client}, "models": {"m": model}}
    file.write_text(json.dumps(sections))
    wanted = ("path", "shop", "client", "secret", "version", "user")
    for number in range(2):
        Answers(monkeypatch, *(f"{name}{number}" for name in wanted))
        loaded = load_accepted(file, ignore)
        state = "trusted" if number else "new"
        assert [entry.state for entry in store.entries(loaded)] == [state] * 2
        store.accept(loaded)


def test_nothing_is_typed_into_a_config_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(INPUTS))
    monkeypatch.setenv("USER_NAME", "anna")
    answers = Answers(monkeypatch, "us", "token")

    def refuse(config: Config) -> None:
        raise TrustRequiredError("No.")

    with pytest.raises(TrustRequiredError):
        load_accepted(file, refuse)
    assert len(answers.left) == 2


def asking(*inputs: Mapping[str, Any], **server: Any) -> dict[str, Any]:
    """A host's config with a server and what it asks for."""
    prompts = [{"type": "promptString", **each} for each in inputs]
    return {"inputs": prompts, "servers": {"local": {"command": "sh", **server}}}


def sending(description: str, other: str, header: str = "${input:token}") -> dict[str, Any]:
    """A host's config that asks for a token and a name, which go to two servers."""
    url = "https://{}.example/mcp"
    return {
        "inputs": [
            {"id": "token", "type": "promptString", "description": description},
            {"id": "name", "type": "promptString", "description": other},
        ],
        "servers": {
            "shop": {"url": url.format("shop"), "headers": {"X-Key": header}},
            "local": {"url": url.format("other"), "headers": {"X-Key": "${input:name}"}},
        },
    }


def client_with(**fields: Any) -> dict[str, Any]:
    """A config of ours with a client whose key is typed."""
    client = {"provider": "openai", "base_url": "https://models.example/v1", **fields}
    return {"clients": {"desk": client}, "models": {"m": {"client": "desk", "model": "m-1"}}}


@pytest.fixture
def typing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Load a file, typing the same at every prompt."""

    def load(config: Mapping[str, Any], typed: str = "as-typed") -> Config:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps(config))
        Answers(monkeypatch, *[typed] * 10)
        return load_accepted(file, lambda config: None)

    return load


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sending("Token", "Name", "fixed"), sending("Token", "Name")),
        (sending("Token", "Name", "${input:token}"), sending("Token", "Name", "${input:name}")),
        (sending("Token", "Name"), sending("Name", "Token")),
        (asking(env={"A_TOKEN": "${input:a}"}), asking(env={"A_TOKEN": "${input:b}"})),
        (
            asking({"id": "a", "password": True}, args=["${input:a}"]),
            asking({"id": "a"}, args=["${input:a}"]),
        ),
        (client_with(api_key="fixed-0123456789"), client_with(api_key="${input:key}")),
        (client_with(api_key="${input:own}"), client_with(api_key="${input:key}")),
        (
            asking({"id": "a [x]"}, args=["${input:a [x]}"]),
            asking({"id": "a", "default": "x"}, args=["${input:a}"]),
        ),
        (
            asking({"id": "a"}, args=["-c", "$${input:a [x]}", "${input:a}"]),
            asking({"id": "a", "default": "x"}, args=["-c", "${input:a}", "$${input:a}"]),
        ),
        (
            asking({"id": "a", "options": ["as-typed", "a / b"]}, args=["${input:a}"]),
            asking({"id": "a", "options": ["as-typed", "a", "b"]}, args=["${input:a}"]),
        ),
        (
            asking({"id": "a"}, env={"A": "${input:a}"}, args=["-c", "${A:-x}"]),
            asking({"id": "a"}, env={"A": "${input:a}"}, args=["-c", "${A:-$(run)}"]),
        ),
    ],
)
def test_what_a_file_decides_about_what_is_typed_is_a_part_of_what_is_accepted(
    before: dict[str, Any], after: dict[str, Any], store: TrustStore, typing: Callable[..., Config]
) -> None:
    store.accept(typing(before))
    assert {entry.state for entry in store.entries(typing(before))} == {"trusted"}
    assert "changed" in {entry.state for entry in store.entries(typing(after))}


@pytest.mark.parametrize(
    "config",
    [
        {"registry": "https://registry.example/${input:secret}", "servers": {}},
        {
            "servers": {
                "local": {
                    "url": "https://a.example/mcp",
                    "auth": "oauth",
                    "sign_in": {"client_id": "${input:secret}"},
                }
            }
        },
        {"servers": {"local": {"bundled": "math", "exclude_tools": ["${input:secret}"]}}},
        {"servers": {"local": {"url": "${input:secret}"}}},
        client_with(base_url="${input:secret}"),
        client_with(base_url="http://127.0.0.1:1/v1", api_key="${input:secret}"),
        client_with(api_key="${input:secret}"),
    ],
)
def test_what_is_typed_anywhere_is_in_no_question_and_not_remembered(
    config: dict[str, Any], store: TrustStore, typing: Callable[..., Config]
) -> None:
    secret = "https://typed-0123456789.example"
    loaded = typing(config, secret)
    entries = store.entries(loaded)
    assert secret not in Trust("", entries).text
    assert {entry.state for entry in entries} == {"new"}
    store.accept(loaded)
    again = store.entries(typing(config, f"{secret}/another"))
    assert {entry.state for entry in again} == {"trusted"}


@pytest.mark.parametrize("host", [True, False])
def test_nothing_is_typed_where_a_config_is_not_whole_without_it(
    host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"command": "shop", "call_timeout": "${input:patience}"}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"inputs": [], "mcpServers" if host else "servers": {"a": entry}}))
    if not host:
        file = file.rename(tmp_path / "config.json")
        file.write_text(json.dumps({"servers": {"a": entry}}))
    answers = Answers(monkeypatch, "30")
    if host:
        assert "PATIENCE" in load_config(file).unusable["a"]
    else:
        with pytest.raises(ConfigError, match="PATIENCE"):
            load_config(file)
    assert answers.left == ["30"]
    monkeypatch.setenv("PATIENCE", "30")
    assert load_config(file).servers["a"].call_timeout == 30


def test_a_price_file_that_would_be_typed_is_an_error(file: Path) -> None:
    file.write_text(json.dumps({"prices": "${input:tariff}"}))
    with pytest.raises(ConfigError, match="TARIFF") as caught:
        load_config(file)
    assert caught.value.key == "prices"


def test_an_address_of_a_host_is_typed_after_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"servers": {"a": {"type": "http", "url": "${input:address}"}}}))
    answers = Answers(monkeypatch, "https://shop.example/mcp")
    seen: list[str] = []

    def see(config: Config) -> None:
        seen.extend(config.servers)
        assert len(answers.left) == 1

    assert load_accepted(file, see).servers["a"].url == "https://shop.example/mcp"
    assert seen == ["a"]


def test_an_input_is_asked_for_once_whatever_its_id_and_only_if_it_is_used(
    typing: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mcp.json"
    args = ["${input:région}", "${input:région}", "$${input:other}"]
    file.write_text(json.dumps(asking(args=args)))
    answers = Answers(monkeypatch, "eu")
    loaded = load_config(file)
    assert loaded.servers["local"].args == ("eu", "eu", "${input:other}")
    assert answers.left == []


@pytest.mark.parametrize(
    "server",
    [
        {"command": "sh", "args": ["-c", "touch harm"], "env": {"X": "touch harm"}},
        {"command": "sh", "args": ["-c", "${X}"], "env": {"X": "touch harm"}},
        {"command": "harm", "args": ["--password", "harm"], "env": {"API_TOKEN": "harm"}},
        {"command": "npx", "args": ["-y", "harm-0123456789"], "env": {"X": "harm-0123456789"}},
        {"command": "npx", "args": ["-y", "harm"], "env": {"X": "${HARM}"}},
        {"url": "https://harm.example/mcp", "headers": {"X-Key": "harm.example"}},
        {"url": "https://harm.example/mcp", "auth": "harm.example"},
    ],
)
def test_a_config_hides_nothing_of_what_it_starts_by_repeating_it(
    server: dict[str, Any], file: Path, store: TrustStore
) -> None:
    file.write_text(json.dumps({"servers": {"local": server}}))
    text = Trust("", store.entries(read(file, HARM="harm"))).text
    assert "harm" in text
    assert "***" not in text


@pytest.mark.parametrize(
    "server",
    [
        {"command": "sh", "args": ["--password", "hunter2"]},
        {"command": "sh", "args": ["${SECRET}"], "env": {"X": "1"}},
        {"command": "sh", "args": ["${X}"], "env": {"X": "a ${SECRET}"}},
        {"url": "https://user:hunter2@shop.example/mcp"},
    ],
)
def test_secrets_are_hidden_in_the_question(
    server: dict[str, Any], file: Path, store: TrustStore
) -> None:
    environ = {**ENVIRON, "SECRET": "hunter2 hunter"}
    file.write_text(json.dumps({"servers": {"local": server}}))
    text = Trust("", store.entries(load_config(file, environ=environ))).text
    assert "hunter" not in text
    assert "***" in text


def test_what_was_typed_is_accepted_where_it_was_typed(file: Path, store: TrustStore) -> None:
    typed = load_config(
        {"servers": {"local": LOCAL, "tides": {"command": "tides"}}}, environ=ENVIRON
    )
    store.accept_typed(typed, "here")
    other = load_config({"servers": {"notes": {"command": "notes"}}})
    store.accept_typed(other, "here")
    assert set(states(store, typed, "here").values()) == {"trusted"}
    assert set(states(store, other, "here").values()) == {"trusted"}
    for place in ("there", ""):
        assert set(states(store, typed, place).values()) == {"new"}
    changed = load_config(
        {"servers": {"local": LOCAL, "tides": {"command": "evil"}}}, environ=ENVIRON
    )
    assert states(store, changed, "here") == {"local": "trusted", "tides": "new"}
    # What a file says is not what was typed, although it is the same.
    assert states(store, read(file), "here") == {"local": "new", "remote": "new"}


@pytest.mark.parametrize(
    ("changes", "entry", "changed"),
    [
        ({"local": {**LOCAL, "command": "other-server"}}, "local", ("command",)),
        ({"local": {**LOCAL, "args": ["--port", "2"]}}, "local", ("arguments",)),
        ({"local": {**LOCAL, "env": {**LOCAL["env"], "MORE": "1"}}}, "local", ("environment",)),
        (
            {"local": {**LOCAL, "env": {**LOCAL["env"], "NODE_OPTIONS": "--require ./x.js"}}},
            "local",
            ("environment",),
        ),
        (
            {"local": {**LOCAL, "env": {**LOCAL["env"], "SHOP_TOKEN": "${OTHER}"}}},
            "local",
            ("variables",),
        ),
        ({"local": {**LOCAL, "cwd": "elsewhere"}}, "local", ("folder",)),
        ({"local": {**LOCAL, "approval": "never"}}, "local", ("approval",)),
        ({"local": {**LOCAL, "enabled": False}}, "local", ("enabled",)),
        ({"local": {**LOCAL, "roots": ["data"]}}, "local", ("shared folders",)),
        ({"local": {**LOCAL, "sampling": True}}, "local", ("sampling",)),
        ({"remote": {**REMOTE, "url": "https://evil.example/mcp"}}, "remote", ("address",)),
        (
            {"remote": {**REMOTE, "headers": {**REMOTE["headers"], "X-More": "1"}}},
            "remote",
            ("headers",),
        ),
        (
            {"remote": {"url": REMOTE["url"], "auth": "oauth"}},
            "remote",
            ("headers", "sign-in", "variables"),
        ),
        ({"remote": LOCAL}, "remote", None),
        ({"client": {**CLIENT, "base_url": "https://evil.example/v1"}}, "models", ("address",)),
        ({"client": {**CLIENT, "api_key": "${OTHER}"}}, "models", ("key", "variables")),
        ({"client": {**CLIENT, "headers": {"X-App": "1"}}}, "models", ("headers",)),
    ],
)
def test_changed_commands_and_key_destinations_are_named(
    file: Path,
    store: TrustStore,
    changes: dict[str, Any],
    entry: str,
    changed: tuple[str, ...] | None,
) -> None:
    store.accept(read(file))
    assert {each.state for each in store.entries(read(file))} == {"trusted"}
    written(file, **changes)
    entries = {each.name: each for each in store.entries(read(file))}
    assert entries[entry].state == "changed"
    if changed is not None:
        assert entries[entry].changed == changed
    assert {each.state for name, each in entries.items() if name != entry} == {"trusted"}


def test_a_new_value_of_a_token_and_a_new_toolset_are_not_a_change(
    file: Path, store: TrustStore
) -> None:
    store.accept(read(file))
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "tool_sets": {"all": {"servers": {"local": True}}}}))
    entries = store.entries(read(file, SECRET="a-newer-secret-987"))
    assert {entry.state for entry in entries} == {"trusted"}


def test_the_facts_name_where_keys_go_and_hold_no_value(file: Path, store: TrustStore) -> None:
    entries = {entry.name: dict(entry.facts) for entry in store.entries(read(file))}
    assert entries["local"]["environment"] == "SHOP_TOKEN, NODE_OPTIONS"
    assert entries["local"]["variables"] == "SECRET"
    assert (entries["remote"]["address"], entries["remote"]["headers"]) == (
        REMOTE["url"],
        "Authorization",
    )
    assert (entries["models"]["address"], entries["models"]["key"]) == (
        CLIENT["base_url"],
        "OPENAI_API_KEY",
    )
    store.accept(read(file))
    (record,) = store.folder.iterdir()
    for text in (str(entries), record.read_text()):
        assert not any(value in text for value in ENVIRON.values())
    assert "--port" not in record.read_text()


def test_a_neighbouring_file_cannot_rename_a_variable_unnoticed(
    file: Path, store: TrustStore
) -> None:
    written(
        file,
        local={**LOCAL, "envFile": "server.env"},
        remote={**REMOTE, "headers": {"X-Debug": "${DEBUG}"}},
    )
    (file.parent / "server.env").write_text("LEVEL=${OTHER}\n")
    (file.parent / ".env").write_text("STEP=${SECRET}\nDEBUG=${STEP}\n")
    entries = {entry.name: dict(entry.facts) for entry in store.entries(read(file))}
    assert entries["remote"]["variables"] == "DEBUG, STEP, SECRET"
    assert entries["local"]["variables"] == "SECRET, OTHER"
    # What is set outside wins, and refers to nothing.
    assert dict(store.entries(read(file, DEBUG="1"))[1].facts)["variables"] == "DEBUG"
    store.accept(read(file))
    (file.parent / ".env").write_text("STEP=1\nDEBUG=${OTHER}\n")
    assert {entry.name: entry.changed for entry in store.entries(read(file))}["remote"] == (
        "variables",
    )


def test_bundled_servers_and_providers_at_their_usual_address_are_harmless(
    tmp_path: Path, store: TrustStore
) -> None:
    file = tmp_path / "config.json"
    clients = {
        "openai": {"provider": "openai"},
        "here": {"provider": "ollama", "base_url": "http://localhost:11434"},
    }
    servers = {
        "math": {"bundled": "math"},
        "gmail": {"bundled": "gmail"},
        "shell": {"bundled": "shell", "approval": "never"},
        "all": {"bundled": "files", "args": ["/"]},
    }
    file.write_text(json.dumps({"clients": clients, "servers": servers}))
    states = {entry.name: entry.state for entry in store.entries(read(file))}
    yours = dict.fromkeys(("gmail", "shell", "all"), "new")
    assert states == {**yours, "math": "harmless", "openai": "harmless", "here": "harmless"}
    # Who is asked reads about the others, and of these only the names.
    trust = Trust("config.json", tuple(store.entries(read(file))))
    first, *others = trust.text.splitlines()
    assert all(name in first for name in ("math", "openai", "here"))
    assert [line.split()[1] for line in others if line.startswith("server")] == [
        "gmail",
        "shell",
        "all",
    ]
    assert not any("localhost" in line for line in others)


@pytest.mark.skipif(os.name != "posix", reason="needs the permissions of POSIX")
def test_the_name_of_a_harmless_server_is_not_read_as_that_of_another_one(
    tmp_path: Path, store: TrustStore
) -> None:
    path = tmp_path / "config.json"
    servers = {"math, server local": {"bundled": "math"}, "local": LOCAL}
    path.write_text(json.dumps({"servers": servers}))
    first, *_ = Trust(str(path), store.entries(read(path))).text.splitlines()
    assert first.endswith('server "math, server local"')


def test_tools_that_a_provider_runs_are_accepted_too(tmp_path: Path, store: TrustStore) -> None:
    file = tmp_path / "config.json"

    def states(hosted: Any) -> list[tuple[str, tuple[str, ...], str | None]]:
        model = {"client": "claude", "model": "m", **({"hosted_tools": hosted} if hosted else {})}
        file.write_text(
            json.dumps({"clients": {"claude": {"provider": "anthropic"}}, "models": {"m": model}})
        )
        entries = store.entries(read(file))
        return [
            (entry.state, entry.changed, dict(entry.facts).get("hosted tools")) for entry in entries
        ]

    assert states([]) == [("harmless", (), None)]
    assert states(["web_search"]) == [("new", (), "web_search")]
    store.accept(read(file))
    assert states(["web_search"]) == [("trusted", (), "web_search")]
    assert states({"web_search": {}, "web_fetch": {}}) == [
        ("changed", ("hosted tools",), "web_search, web_fetch")
    ]


def test_only_the_user_can_read_and_write_the_trust_store(file: Path, store: TrustStore) -> None:
    store.accept(read(file))
    (record,) = store.folder.iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    record.chmod(0o666)
    assert {entry.state for entry in store.entries(read(file))} == {"new"}


@pytest.mark.defect("F9")
@pytest.mark.parametrize("exposed", [name for name in EXPOSED if "read" not in name])
def test_a_store_that_others_could_have_written_counts_as_absent(
    file: Path, store: TrustStore, exposed: str
) -> None:
    store.accept(read(file))
    (record,) = store.folder.iterdir()
    EXPOSED[exposed](record)
    assert {entry.state for entry in store.entries(read(file))} == {"new"}


BAD: list[Callable[[Path], object]] = [
    lambda record: record.write_text(""),
    lambda record: record.write_text("[" * 100_000),
    lambda record: record.write_bytes(b"\xff\x00"),
    lambda record: record.write_text("[]"),
    lambda record: record.write_text('{"version": 1, "accepted": [], "salt": 5}'),
    lambda record: record.write_text(
        '{"version": 1, "accepted": {"server local": []}, "salt": ""}'
    ),
    lambda record: record.write_text(record.read_text()[:-50]),
    lambda record: record.write_text(record.read_text().replace('"version": 1', '"version": 2')),
    lambda record: (record.unlink(), record.mkdir()),
]


@pytest.mark.parametrize("spoil", BAD)
def test_a_record_that_is_damaged_counts_as_absent(
    file: Path, store: TrustStore, spoil: Callable[[Path], object]
) -> None:
    store.accept(read(file))
    (record,) = store.folder.iterdir()
    spoil(record)
    assert {entry.state for entry in store.entries(read(file))} == {"new"}


def test_programs_that_accept_at_the_same_time_lose_nothing(
    tmp_path: Path, store: TrustStore
) -> None:
    files = [written(tmp_path / str(number) / "config.json") for number in range(8)]
    configs = [read(file) for file in files]
    with ThreadPoolExecutor(16) as executor:
        list(executor.map(store.accept, configs * 8))
    assert {entry.state for config in configs for entry in store.entries(config)} == {"trusted"}
    assert len(list(store.folder.iterdir())) == len(files)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, file: Path) -> None:
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises(UsageError, match="trust=True"):
        TrustStore(tmp_path / "blocked").accept(read(file))


def test_the_exemptions_from_acceptance_and_their_limits_in_strict_mode(
    file: Path, tmp_path: Path, asks_first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read(file)
    assert store_folder() == asks_first

    def required(strict: bool = False, **options: Any) -> bool:
        return TrustGate(config, strict=strict, **options).report().required

    assert required()
    assert not required(trusted=True)
    assert (
        not TrustGate(load_config(json.loads(file.read_text()), environ=ENVIRON)).report().required
    )
    monkeypatch.setenv("MCP_TRUST_CONFIGS", "1")
    assert (required(), required(strict=True)) == (False, True)
    # A file beside the config cannot vouch for it.
    monkeypatch.setenv("MCP_TRUST_CONFIGS", "0")
    (file.parent / ".env").write_text("MCP_TRUST_CONFIGS=1\n")
    assert required()
    TrustStore().accept_folder(tmp_path)
    assert (required(), required(strict=True)) == (False, True)
    TrustGate(config).report().accept()
    assert (required(), required(strict=True)) == (False, False)
