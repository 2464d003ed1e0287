from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kit.exposed import EXPOSED
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.secrets import assert_nowhere

from casual_mcp_nb.bundled import anthropic_usage_server, available, build
from casual_mcp_nb.bundled._server import FunctionServer

KEY = "sk-ant-admin01-abcdefghijklmnop-0123456789"


class Admin(ScriptedHttp):
    """Anthropic's Admin API, as far as reports go: two pages of each."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.fault: Reply | None = None

    @property
    def queries(self) -> list[tuple[str, dict[str, list[str]]]]:
        return [
            (urlsplit(request.path).path, parse_qs(urlsplit(request.path).query))
            for request in self.seen
        ]

    def _reply(self, request: Request) -> Reply:
        if (
            request.headers.get("x-api-key") != KEY
            or request.headers.get("anthropic-version") != "2023-06-01"
        ):
            return self._error(401, "authentication_error", "invalid x-api-key")
        if self.fault is not None:
            return self.fault
        parts = urlsplit(request.path)
        second = "page" in parse_qs(parts.query)
        day = "2026-03-02" if second else "2026-03-01"
        results = self._usage() if parts.path.endswith("usage_report/messages") else self._costs()
        bucket = {
            "starting_at": f"{day}T00:00:00Z",
            "ending_at": f"{day}T23:59:59Z",
            "results": results,
        }
        return Reply(
            body={
                "data": [bucket],
                "has_more": not second,
                "next_page": None if second else "page_2",
            }
        )

    def _usage(self) -> list[dict[str, Any]]:
        row = {
            "api_key_id": None,
            "workspace_id": None,
            "model": "claude-sonnet-5",
            "service_tier": "standard",
            "context_window": "0-200k",
            "uncached_input_tokens": 1500,
            "cache_creation": {"ephemeral_1h_input_tokens": 1000, "ephemeral_5m_input_tokens": 500},
            "cache_read_input_tokens": 200,
            "output_tokens": 500,
            "server_tool_use": {"web_search_requests": 10},
        }
        return [row]

    def _costs(self) -> list[dict[str, Any]]:
        row = {
            "currency": "USD",
            "amount": "123.78912",
            "workspace_id": "wrkspc_1",
            "description": "Claude Sonnet 4.5 Usage",
        }
        return [
            {
                **row,
                "cost_type": "tokens",
                "model": "claude-sonnet-5",
                "token_type": "output_tokens",
            }
        ]

    @staticmethod
    def _error(status: int, kind: str, message: str) -> Reply:
        return Reply(status, {"type": "error", "error": {"type": kind, "message": message}})


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin() as server:
        yield server


@pytest.fixture
def usage(admin: Admin, user_folder: Path) -> FunctionServer:
    anthropic_usage_server.save_key(KEY)
    return anthropic_usage_server.build(endpoint=admin.url)


async def test_all_pages_of_a_usage_report_are_read(
    usage: FunctionServer, admin: Admin, call: Any
) -> None:
    report = await call(
        usage,
        "anthropic_usage_report",
        starting_at="2026-03-01",
        ending_at="2026-03-03T00:00+00:00",
        group_by=["model"],
        models=["claude-sonnet-5"],
    )
    assert report["rows"][0] == {
        "starting_at": "2026-03-01T00:00:00Z",
        "ending_at": "2026-03-01T23:59:59Z",
        "model": "claude-sonnet-5",
        "input_tokens": 1500,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 1500,
        "output_tokens": 500,
        "web_searches": 10,
    }
    assert report["totals"] == {
        "input_tokens": 3000,
        "cache_read_input_tokens": 400,
        "cache_creation_input_tokens": 3000,
        "output_tokens": 1000,
    }
    assert report["complete"] is True
    (path, first), (_, second) = admin.queries
    assert path == "/v1/organizations/usage_report/messages"
    assert first == {
        "starting_at": ["2026-03-01T00:00:00Z"],
        "ending_at": ["2026-03-03T00:00:00Z"],
        "bucket_width": ["1d"],
        "limit": ["31"],
        "group_by[]": ["model"],
        "models[]": ["claude-sonnet-5"],
    }
    assert second == {**first, "page": ["page_2"]}


async def test_costs_are_in_dollars(usage: FunctionServer, admin: Admin, call: Any) -> None:
    report = await call(usage, "anthropic_cost_report", group_by=["description"])
    assert [row["usd"] for row in report["rows"]] == ["1.2378912"] * 2
    assert report["total_usd"] == "2.4757824"
    assert admin.queries[0][1]["group_by[]"] == ["description"]


async def test_an_endless_report_is_cut_and_marked_as_cut(
    usage: FunctionServer, admin: Admin, call: Any
) -> None:
    admin.fault = Reply(body={"data": [], "has_more": True, "next_page": "again"})
    report = await call(usage, "anthropic_cost_report")
    assert (report["rows"], report["complete"]) == ([], False)
    assert len(admin.seen) == anthropic_usage_server.MAX_PAGES


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Admin._error(403, "permission_error", "Not for this key"), ("403", "Not for this key")),
        (Reply(429, {"error": {"message": "slow"}}, {"retry-after": "17"}), ("429", "17")),
        (Reply(529, "overloaded"), ("529",)),
        (Reply(200, "<html>"), ("report",)),
        (Reply(200, {"data": [3]}), ("report",)),
        (Reply(200, {"data": [{"results": [{"amount": "x"}]}]}), ("dollars",)),
        (Reply(200, b"[" * 9_000_000), ("long",)),
        (Reply(reset=True), ("reached",)),
    ],
)
async def test_an_error_says_what_to_do(
    usage: FunctionServer, admin: Admin, refused: Any, fault: Reply, words: tuple[str, ...]
) -> None:
    admin.fault = fault
    text = await refused(usage, "anthropic_cost_report")
    assert all(word in text for word in words)
    assert_nowhere([KEY], text)


async def test_another_key_is_refused_by_anthropic(
    admin: Admin, user_folder: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_ADMIN_KEY", "sk-ant-api03-other-1234")
    text = await refused(anthropic_usage_server.build(endpoint=admin.url), "anthropic_usage_report")
    assert "401" in text
    assert_nowhere(["sk-ant-api03-other-1234"], text)


def test_the_key_is_saved_for_this_user_only_and_never_shown(usage: FunctionServer) -> None:
    file = anthropic_usage_server.key_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "anthropic-usage" in available("anthropic-usage").servers
    assert_nowhere(
        [KEY], repr(usage), vars(anthropic_usage_server.Usage(anthropic_usage_server._key()))
    )


@pytest.mark.parametrize(
    "key",
    ["", "sk-ant-api03-abcdefghijklmnop", "sk-ant-admin", "sk-ant-admin01-abc\ndefghijklm", "ü"],
)
def test_a_key_other_than_an_admin_key_is_refused(user_folder: Path, key: str) -> None:
    with pytest.raises(ValueError, match="sk-ant-admin") as refusal:
        anthropic_usage_server.save_key(key)
    assert not key or key not in str(refusal.value) or key == "sk-ant-admin"
    with pytest.raises(ValueError, match="sign-in anthropic"):
        build("anthropic-usage")
    with pytest.raises(ValueError, match="no admin key"):
        anthropic_usage_server.build()


@pytest.mark.parametrize(
    "fields",
    [{"starting_at": "yesterday"}, {"starting_at": "2026-03-02", "ending_at": "2026-03-01"}],
)
async def test_an_invalid_period_is_refused(
    usage: FunctionServer, admin: Admin, refused: Any, fields: dict[str, str]
) -> None:
    assert await refused(usage, "anthropic_usage_report", **fields)
    assert not admin.seen


@pytest.mark.defect("F9")
@pytest.mark.parametrize("exposed", EXPOSED)
def test_a_key_that_others_can_read_or_replace_is_not_used(
    usage: FunctionServer, exposed: str
) -> None:
    EXPOSED[exposed](anthropic_usage_server.key_file())
    assert "no admin key" not in available("anthropic-usage").missing["anthropic-usage"].reason
    with pytest.raises(ValueError, match="not used"):
        anthropic_usage_server.build()
