"""The cost of another host's config in tokens, and the saving by deferring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.raw_server import raw_config

from casual_mcp_nb import Session, audit_host
from casual_mcp_nb.base.status import HostAudit
from casual_mcp_nb.cli import FAILED
from casual_mcp_nb.errors import ConfigError, TrustRequiredError
from casual_mcp_nb.notebook.consent import TRUST_VARIABLE
from tests.cli.conftest import Run

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "words " * 40}},
}
LONG = {
    name: {"name": name, "description": f"{name} it. " * 20, "inputSchema": SCHEMA}
    for name in ("read", "write")
}
SHORT = {"name": "ping", "inputSchema": {"type": "object", "properties": {}}}


def entry(*tools: Any, **more: Any) -> dict[str, Any]:
    config = raw_config(tools=list(tools), **more)
    return {"command": config["command"], "args": config["args"]}


SERVERS = {
    "small": entry(SHORT),
    "large": entry(*LONG.values()),
    "dead": entry(stderr="no token", exit=3),
}


def as_list(servers: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, **server, "env": [{"name": "A", "value": "b"}]}
        for name, server in servers.items()
    ]


def as_toml(servers: dict[str, dict[str, Any]]) -> str:
    tables = [
        f"[mcp_servers.{name}]\ncommand = {json.dumps(server['command'])}\nargs ="
        f" {json.dumps(server['args'])}"
        for name, server in servers.items()
    ]
    return "\n".join(['model = "m"', *tables])


HOSTS = {
    ".mcp.json": json.dumps({"mcpServers": SERVERS}),
    "mcp.json": json.dumps(
        {"inputs": [], "servers": {name: {"type": "stdio", **one} for name, one in SERVERS.items()}}
    ),
    "settings.json": json.dumps(
        {"context_servers": {name: {"source": "custom", **one} for name, one in SERVERS.items()}}
    ),
    "mcp_settings.json": json.dumps({"mcp_servers": as_list(SERVERS)}),
    "config.toml": as_toml(SERVERS),
}


def audit_of(path: Path, text: str) -> HostAudit:
    path.write_text(text, encoding="utf-8")
    return audit_host(path, trust=True)


@pytest.mark.defect("K4")
@pytest.mark.parametrize("name", HOSTS)
def test_costs_are_sorted_and_a_failed_server_does_not_stop_the_others(
    name: str, tmp_path: Path
) -> None:
    audit = audit_of(tmp_path / name, HOSTS[name])
    assert [server.server for server in audit] == ["large", "small", "dead"]
    assert [len(server.tools) for server in audit] == [2, 1, 0]
    assert audit.tokens == sum(tool.tokens for server in audit for tool in server.tools) > 200
    assert [tool.tokens for tool in audit[0].tools] == sorted(
        (tool.tokens for tool in audit[0].tools), reverse=True
    )
    (failed,) = audit.failed
    assert "startup" in str(failed.error)


@pytest.mark.defect("K4")
def test_the_saving_of_deferring_matches_the_request_of_a_session(tmp_path: Path) -> None:
    audit = audit_of(tmp_path / ".mcp.json", HOSTS[".mcp.json"])
    with Session.from_config(
        {"mcpServers": SERVERS, "tool_discovery": {"enabled": True, "defer_all": True}}
    ) as session:
        status = session.status
    assert (audit.tokens, audit.deferred_tokens) == (status.undeferred_tokens, status.tokens)
    assert audit.saved is not None
    assert 0 < audit.saved < 1
    assert audit.budget is not None
    frame = audit.to_frame()
    assert list(frame["tokens"]) == [tool.tokens for server in audit for tool in server.tools]
    assert frame["share"].sum() == pytest.approx(1)
    assert set(audit._repr_mimebundle_()) == {"text/plain", "text/markdown", "text/html"}


@pytest.mark.defect("K4")
def test_an_entry_that_cannot_be_used_is_listed_with_the_reason(tmp_path: Path) -> None:
    servers = {
        "small": SERVERS["small"],
        "number": {"url": 7},
        "unset": {"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}},
    }
    audit = audit_of(tmp_path / ".mcp.json", json.dumps({"mcpServers": servers}))
    reasons = {server.server: server.error for server in audit.failed}
    assert set(reasons) == {"number", "unset"}
    assert "NOT_SET_ANYWHERE" in str(reasons["unset"])
    assert audit.tokens > 0
    with pytest.raises(ConfigError):
        audit_of(tmp_path / "broken.json", '{"mcpServers": ')
    with pytest.raises(ConfigError):
        audit_of(
            tmp_path / "ours.json",
            json.dumps({"clients": {"c": {"provider": "nobody"}}, "servers": servers}),
        )


def test_a_server_that_does_not_start_is_shown_with_the_end_of_its_stderr(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"dead": SERVERS["dead"]}}), encoding="utf-8")
    ended, out, _ = run("audit", str(path), "--trust", "--json")
    (server,) = json.loads(out)["servers"]
    assert (ended, server["stderr_tail"]) == (FAILED, "no token")
    assert "no token" in run("audit", str(path), "--trust")[1]


@pytest.mark.defect("K4")
def test_nothing_is_started_that_the_person_has_not_accepted(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    path, mark = tmp_path / ".mcp.json", tmp_path / "started"
    server = {"command": "/bin/sh", "args": ["-c", f"touch {mark}; exit 1"]}
    path.write_text(json.dumps({"mcpServers": {"s": server}}), encoding="utf-8")
    with pytest.raises(TrustRequiredError):
        audit_host(path)
    assert run("audit", str(path))[0] == FAILED
    assert not mark.exists()
    assert run("audit", str(path), "--trust")[0] == FAILED
    assert mark.exists()


@pytest.mark.defect("K4")
def test_an_audit_leaves_an_open_session_of_the_same_file_alone(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"small": SERVERS["small"]}}), encoding="utf-8")
    with Session.from_config(path, trust=True) as session:
        assert audit_host(path, trust=True).tokens > 0
        assert not session.status.closed
        assert session.servers["small"].state == "ready"


@pytest.mark.defect("K4")
def test_the_command_line_writes_the_audit_for_people_and_for_programs(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {name: SERVERS[name] for name in ("small", "large")}}),
        encoding="utf-8",
    )
    code, out, _ = run("audit", str(path), "--trust", "--json")
    report = json.loads(out)
    assert code == 0
    assert [server["name"] for server in report["servers"]] == ["large", "small"]
    assert report["tokens"] == sum(
        tool["tokens"] for server in report["servers"] for tool in server["tools"]
    )
    assert report["deferred_tokens"] < report["tokens"]
    code, text, _ = run("audit", str(path), "--trust")
    assert code == 0
    assert all(name in text for name in ("large", "small", "read", "write", "ping"))
