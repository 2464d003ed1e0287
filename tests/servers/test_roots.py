"""Which folders a server is told about: those of its entry, and only on a connection of an older
version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.scripted_http import Reply, ScriptedHttp

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]

ASKS = {"ask": "roots/list", "answer": "asked"}


def capabilities(record: Path) -> dict[str, Any]:
    messages = map(json.loads, record.read_text().splitlines())
    initialize: dict[str, Any] = next(
        each for each in messages if each.get("method") == "initialize"
    )
    declared: dict[str, Any] = initialize["params"]["capabilities"]
    return {name: value for name, value in declared.items() if name != "extensions"}


@pytest.mark.fault(16)
async def test_the_existing_folders_of_an_entry_are_the_roots(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record, folder = tmp_path / "record", tmp_path / "what is shared"
    folder.mkdir()
    levels: list[str] = []
    config = raw(
        {"roots": [f"{folder}/../what is shared", str(tmp_path / "gone"), str(record)]},
        calls={"a": ASKS},
        record=str(record),
    )
    handlers = Handlers(log=lambda _server, level, text: levels.append(level))
    connection = opened(Connection("asker", config, handlers=handlers))
    await connection.connect()
    answer = json.loads((await connection.call("a", {})).content[0].text)
    assert answer == {"roots": [{"uri": folder.as_uri()}]}
    assert levels == ["warning"]
    # They do not change, so no notice of a change is announced.
    assert capabilities(record) == {"roots": {}}


@pytest.mark.fault(16)
async def test_a_server_without_roots_in_its_entry_gets_none(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("asker", raw({"cwd": str(tmp_path)}, calls={"a": ASKS}, record=str(record)))
    )
    await connection.connect()
    assert "code" in json.loads((await connection.call("a", {})).content[0].text)
    assert capabilities(record) == {}


NEWER = "2026-07-28"
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def modern(request: Any) -> Reply:
    """A server of the newer version that asks for roots nevertheless."""
    body = request.body or {}
    asks = {
        "resultType": "input_required",
        "inputRequests": {"one": {"method": "roots/list"}},
        "requestState": "s",
    }
    results: dict[str, Any] = {
        "server/discover": {"supportedVersions": [NEWER], "capabilities": {"tools": {}}, **HINTS},
        "tools/list": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}], **HINTS},
        "tools/call": asks,
    }
    return Reply(
        body={"jsonrpc": "2.0", "id": body.get("id"), "result": results.get(body.get("method"), {})}
    )


@pytest.mark.fault(16)
async def test_a_server_of_the_newer_version_gets_no_roots(opened: Opened, tmp_path: Path) -> None:
    sent: list[Any] = []

    def answer(request: Any) -> Reply:
        sent.append(request.body)
        return modern(request)

    with ScriptedHttp(answer) as server:
        config = ServerConfig.model_validate(
            {"url": f"{server.url}/mcp", "roots": (str(tmp_path),)}
        )
        connection = opened(Connection("modern", config))
        await connection.connect()
        assert connection.status.protocol_version == NEWER
        with pytest.raises(Exception, match="roots/list"):
            await connection.call("ask", {})
    assert tmp_path.name not in json.dumps(sent)
    assert '"roots": {' not in json.dumps(sent)


def test_the_file_of_another_host_shares_nothing(tmp_path: Path) -> None:
    entry = {"command": "x", "roots": [str(tmp_path)], "sampling": True}
    config = load_config({"mcpServers": {"a": entry}}, environ={})
    assert (config.servers["a"].roots, config.servers["a"].sampling) == ((), False)
    assert any("roots" in note for note in config.notes)
    assert load_config({"servers": {"a": entry}}, environ={}).servers["a"].roots == (str(tmp_path),)
