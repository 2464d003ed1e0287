"""Numbers in a server's messages that no float can hold, and files of accounts that another program
has written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.servers.accounts import accounts
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.convert import MAX_FRESH_SECONDS, CacheHint

pytestmark = pytest.mark.defect("N9")

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]
HUGE = 10**400


@pytest.mark.parametrize("name", ["progress", "total"])
@pytest.mark.parametrize("number", [HUGE, -HUGE])
async def test_progress_with_a_huge_number_ends_nothing(
    opened: Opened, raw: Raw, name: str, number: int
) -> None:
    params = {"progressToken": "ID", "progress": 1, "total": 2, name: number}
    notice = json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    ).replace('"ID"', "ID")
    calls = {"a": {"raw": f"{notice}\n", "result": {"content": [{"type": "text", "text": "done"}]}}}
    connection = opened(Connection("odd", raw(calls=calls)))
    await connection.connect()
    told: list[Any] = []
    result = await connection.call("a", {}, on_progress=lambda *progress: told.append(progress))
    assert result.content[0].text == "done"
    assert connection.status.state == "ready"
    assert len(told) == 1


async def test_sizes_that_nothing_has_are_left_out(opened: Opened, raw: Raw) -> None:
    links = [
        {"type": "resource_link", "name": "a", "uri": "file:///a", "size": size}
        for size in (HUGE, -1, 5)
    ]
    answers = {"resources/list": {"resources": [{"name": "a", "uri": "file:///a", "size": HUGE}]}}
    config = raw(
        calls={"a": {"result": {"content": links}}},
        answers=answers,
        capabilities={"tools": {}, "resources": {}},
    )
    connection = opened(Connection("odd", config))
    await connection.connect()
    result = await connection.call("a", {})
    assert [part.text for part in result.content] == ["a", "a", "a, 5 bytes"]
    assert [each.size for each in await connection.resources.resources()] == [None]


def test_a_list_is_used_for_a_day_at_most() -> None:
    assert CacheHint(HUGE).lifetime(30.0, reports_changes=False) == MAX_FRESH_SECONDS


WRONG: list[Any] = [
    5,
    "text",
    [],
    {},
    ["a"],
    {"a": 1},
    True,
    None,
    HUGE,
    -HUGE,
    {"scope": 5},
    {"issuer": []},
]


@pytest.mark.parametrize(
    "field",
    ["tokens", "metadata", "client", "resource", "expires_at", "server", "url", "proof_key"],
)
def test_an_account_file_with_wrong_types_is_listed_or_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, field: str
) -> None:
    monkeypatch.setattr("casual_mcp_nb.base.files.accounts_folder", lambda: tmp_path)
    monkeypatch.setattr("casual_mcp_nb.servers.accounts._folder", lambda: tmp_path)
    tmp_path.chmod(0o700)
    whole = {
        "version": 1,
        "server": "shop",
        "url": "https://shop.example/mcp",
        "tokens": {"access_token": "x", "token_type": "Bearer"},
        "metadata": {"issuer": "https://shop.example"},
        "expires_at": time.time(),
    }
    file = tmp_path / "a.json"
    for wrong in WRONG:
        file.write_text(json.dumps({**whole, field: wrong}))
        file.chmod(0o600)
        listed = accounts()
        assert len(listed) == (
            0 if field == "tokens" and not (isinstance(wrong, dict) and wrong) else 1
        )
        for account in listed:
            assert account._repr_html_()
            assert isinstance(account.server, str)
