"""The files of other hosts are read entry by entry: what cannot be used is shown with its reason,
and the others start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.config.loader import load_config, load_readable
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.notebook.parts import audit_host

GOOD = {"command": "x"}
UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "unset variable": ({"command": "x", "env": {"TOKEN": "${NO_SUCH_TOKEN}"}}, "env.TOKEN"),
    "unset variable in a header": (
        {"url": "https://a.example/mcp", "headers": {"X": "${NO_SUCH_TOKEN}"}},
        "headers.X",
    ),
    "a setting of the editor": ({"command": "${config:python.path}"}, "command"),
    "a command of the editor": ({"command": "x", "args": ["${command:pick}"]}, "args[0]"),
    "an input that runs a command": ({"command": "x", "args": ["${input:runs}"]}, "args[0]"),
    "a missing envFile": ({"command": "x", "envFile": "no-such.env"}, "envFile"),
    "command and url": ({"command": "x", "url": "https://a.example/mcp"}, "command and url"),
    "neither": ({"env": {"A": "b"}}, "none of them"),
    "a Unix socket": ({"url": "unix:///run/mcp.sock"}, "http://"),
    "a file reference": ({"command": "x", "env": {"A": "${file:/etc/passwd}"}}, "env.A"),
    "a misspelt protection": ({"command": "x", "disabeld": True}, "disabeld"),
    "a number for args": ({"command": "x", "args": 5}, "args"),
    "a switch that is a text": ({"command": "x", "disabled": "no"}, "disabled"),
}
NOT_AN_OBJECT: dict[str, Any] = {
    "a text": "npx server",
    "nothing": None,
    "a list": [],
    "a number": 5,
}


def written(folder: Path, data: dict[str, Any], name: str = "claude_desktop_config.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def loaded(
    folder: Path, servers: dict[str, Any], name: str = "claude_desktop_config.json", **more: Any
) -> Config:
    section = (
        "context_servers"
        if "zed" in name
        else "servers"
        if name.endswith("vscode/mcp.json")
        else "mcpServers"
    )
    inputs = (
        {"inputs": [{"type": "command", "id": "runs", "command": "x"}]}
        if section == "servers"
        else {}
    )
    return load_config(written(folder, {section: servers, **inputs, **more}, name), environ={})


@pytest.mark.defect("Q3")
@pytest.mark.parametrize(
    "file",
    ["claude_desktop_config.json", ".cursor/mcp.json", ".vscode/mcp.json", "zed/settings.json"],
)
@pytest.mark.parametrize(("entry", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_one_unusable_entry_leaves_the_others(
    tmp_path: Path, file: str, entry: dict[str, Any], reason: str
) -> None:
    config = loaded(tmp_path, {"good": GOOD, "bad": entry, "too": GOOD}, file)
    assert list(config.servers) == ["good", "too"]
    assert list(config.unusable) == ["bad"]
    assert reason in config.unusable["bad"]


@pytest.mark.defect("Q3")
@pytest.mark.parametrize("entry", NOT_AN_OBJECT.values(), ids=NOT_AN_OBJECT)
def test_an_entry_that_is_no_object_leaves_the_others(tmp_path: Path, entry: Any) -> None:
    config = loaded(tmp_path, {"good": GOOD, "bad": entry})
    assert (list(config.servers), list(config.unusable)) == (["good"], ["bad"])


@pytest.mark.defect("Q3")
def test_the_reason_has_the_variable_and_how_to_set_it(tmp_path: Path) -> None:
    reason = loaded(tmp_path, {"bad": UNUSABLE["unset variable"][0]}).unusable["bad"]
    assert "NO_SUCH_TOKEN is not set" in reason
    assert "export NO_SUCH_TOKEN" in reason
    assert (
        "no such file"
        in loaded(tmp_path, {"bad": UNUSABLE["a missing envFile"][0]}).unusable["bad"]
    )


@pytest.mark.defect("Q3")
def test_the_session_shows_what_cannot_be_used_and_starts_the_rest(tmp_path: Path) -> None:
    servers = {
        "bad": UNUSABLE["unset variable"][0],
        "good": {"command": sys.executable, "args": ["-m", "casual_mcp_nb.bundled", "math"]},
    }
    path = written(tmp_path, {"mcpServers": servers})
    with Session.from_config(path, trust=True, quiet=True) as session:
        bad, good = session.servers["bad"], session.servers["good"]
        assert (good.state, bad.state) == ("ready", "failed")
        assert "NO_SUCH_TOKEN" in (bad.error or "")
        assert "NO_SUCH_TOKEN" in str(session.servers)
        problems = [check for check in session.servers.doctor() if "NO_SUCH_TOKEN" in str(check)]
        assert problems
        assert session.tools.call("good:add", a=1, b=2).result is not None
    failed = {server.server: server.error for server in audit_host(path, trust=True).failed}
    assert list(failed) == ["bad"]
    assert "NO_SUCH_TOKEN" in str(failed["bad"])


@pytest.mark.defect("Q3")
@pytest.mark.parametrize(
    "ours",
    [
        {"models": {}, "clients": {"c": {"provider": "offline"}}},
        {"tool_discovery": {"enabled": True}},
    ],
)
def test_our_own_file_stays_strict_wherever_its_servers_are(
    tmp_path: Path, ours: dict[str, Any]
) -> None:
    for section in ("servers", "mcpServers"):
        path = written(
            tmp_path,
            {**ours, section: {"bad": UNUSABLE["unset variable"][0]}},
            "casual_mcp_config.json",
        )
        with pytest.raises(ConfigError, match="NO_SUCH_TOKEN"):
            load_config(path, environ={})


@pytest.mark.defect("Q3")
def test_a_file_with_our_key_for_servers_alone_is_ours(tmp_path: Path) -> None:
    path = written(
        tmp_path, {"servers": {"bad": UNUSABLE["unset variable"][0]}}, "casual_mcp_config.json"
    )
    with pytest.raises(ConfigError, match="NO_SUCH_TOKEN") as caught:
        load_config(path, environ={})
    assert caught.value.key == "servers.bad.env.TOKEN"
    assert list(load_readable(path, ignore).unusable) == ["bad"]


@pytest.mark.defect("Q3")
def test_what_belongs_to_no_entry_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_config(written(tmp_path, {"mcpServers": "x"}), environ={})


def args_of(folder: Path, entry: dict[str, Any], **environ: str) -> list[str]:
    config = load_config(written(folder, {"mcpServers": {"s": entry}}), environ=environ)
    assert config.unusable == {}
    server = config.servers["s"]
    return [
        *server.args,
        *(f"{name}={value.get_secret_value()}" for name, value in server.env.items()),
    ]


REMOTE = ["mcp-remote", "https://a.example/mcp", "--header", "Authorization:${AUTH}"]
OWN: dict[str, tuple[dict[str, Any], str]] = {
    "a header of a remote proxy": (
        {"command": "npx", "args": REMOTE, "env": {"AUTH": "Bearer t0ken"}},
        "Authorization:Bearer t0ken",
    ),
    "one variable in another": ({"command": "x", "env": {"B": "${A}/b", "A": "/a"}}, "B=/a/b"),
    "three in a row": (
        {"command": "x", "args": ["${C}"], "env": {"C": "${B}c", "B": "${A}b", "A": "a"}},
        "abc",
    ),
    "with a default": ({"command": "x", "args": ["${A:-d}"], "env": {"A": "a"}}, "a"),
    "in VS Code's form": ({"command": "x", "args": ["${env:A}"], "env": {"A": "a"}}, "a"),
    "the outer one wins": (
        {"command": "x", "args": ["${OUTER}"], "env": {"OUTER": "inner"}},
        "outer",
    ),
    "a longer path": ({"command": "x", "env": {"OUTER": "/new:${OUTER}"}}, "OUTER=/new:outer"),
    "a shell's own": (
        {"command": "bash", "args": ["-c", "for f in ${FILES}; do cat $f; done"]},
        "for f in ${FILES}; do cat $f; done",
    ),
    "a shell's expansion": (
        {"command": "/bin/sh", "args": ["-lc", 'echo "${FILES[@]%.*}" ${1}']},
        'echo "${FILES[@]%.*}" ${1}',
    ),
    "a shell's own, set": (
        {"command": "bash", "args": ["-c", "echo ${A}"], "env": {"A": "a; rm x"}},
        "echo ${A}",
    ),
    "for a shell, of the environment": (
        {"command": "bash", "args": ["-c", "echo ${OUTER}"]},
        "echo outer",
    ),
}


@pytest.mark.defect("Q1")
@pytest.mark.parametrize(("entry", "expected"), OWN.values(), ids=OWN)
def test_a_variable_that_the_entry_itself_sets_is_known(
    tmp_path: Path, entry: dict[str, Any], expected: str
) -> None:
    assert expected in args_of(tmp_path, entry, OUTER="outer")


@pytest.mark.defect("Q1")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"A": "${A}"}},
        {"command": "x", "env": {"A": "${B}", "B": "${A}"}},
        {"command": "x", "args": ["${FILES}"]},
        {"command": "bash", "args": ["${FILES}", "-c", "x"]},
        {"command": "bash", "args": ["-c", "x"], "env": {"A": "${FILES}"}},
    ],
)
def test_a_variable_that_nobody_sets_makes_the_entry_unusable(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    assert list(loaded(tmp_path, {"good": GOOD, "bad": entry}).unusable) == ["bad"]


@pytest.mark.defect("Q1")
def test_variables_that_refer_to_each_other_often_take_no_time(tmp_path: Path) -> None:
    env = {f"V{number}": f"${{V{number + 1}}}${{V{number + 1}}}" for number in range(19)}
    entry = {"command": "x", "args": ["${V0}"], "env": {**env, "V19": ""}}
    assert args_of(tmp_path, entry)[0] == ""
    assert list(
        loaded(tmp_path, {"bad": {**entry, "env": {**env, "V19": "long text"}}}).unusable
    ) == ["bad"]
    chain = {f"V{number}": f"${{V{number + 1}}}" for number in range(2_000)}
    assert list(loaded(tmp_path, {"bad": {**entry, "env": {**chain, "V2000": ""}}}).unusable) == [
        "bad"
    ]


@pytest.mark.defect("Q1")
def test_a_value_of_the_entry_is_masked_in_the_argument_too(tmp_path: Path) -> None:
    entry = {"command": "npx", "args": REMOTE, "env": {"AUTH": "Bearer s3cret-t0ken-0123456789"}}
    server = load_config(written(tmp_path, {"mcpServers": {"s": entry}}), environ={}).servers["s"]
    assert "s3cret-t0ken-0123456789" in " ".join(server.args)
    assert "s3cret-t0ken-0123456789" not in repr(server)
