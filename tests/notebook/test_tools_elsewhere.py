"""What providers and other hosts do with a server's tools: lint, doctor, the server's card and the
audit say the same.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.raw_server import raw_config
from kit.schema_rules import SchemaStrict

from casual_mcp_nb import Session, audit_host
from casual_mcp_nb.base.dialects import DIALECTS, HOSTS
from casual_mcp_nb.base.elsewhere import affected, elsewhere
from casual_mcp_nb.base.status import ToolDiagnosis
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.magics.commands import COMMANDS

pytestmark = pytest.mark.defect("M3")

PLAIN = {"type": "object", "properties": {"amount": {"type": "number", "description": "How much."}}}
TOOLS: list[Any] = [
    {"name": "pay", "description": "Pay a bill.", "inputSchema": PLAIN},
    {
        "name": "find",
        "description": "Find a bill.",
        "inputSchema": {"type": "object", "properties": {"filter[name]": {}}},
    },
    {
        "name": "tags",
        "description": "List tags.",
        "inputSchema": {"type": "object", "properties": {"t": {"type": "array"}}},
    },
    {"name": "long", "description": "Long. " * 500, "inputSchema": PLAIN},
    {"name": "named_" + "x" * 60, "description": "Named at length.", "inputSchema": PLAIN},
    {"name": "bills.all", "description": "List all bills.", "inputSchema": PLAIN},
]
INSTRUCTIONS = "Pay bills on time. " * 200
EFFECTS = {
    ("shop:find", "Anthropic", "changed"),
    ("shop:tags", "OpenAI", "changed"),
    ("shop:tags", "Gemini", "changed"),
    ("shop:long", "Claude Code", "cut"),
    (f"shop:named_{'x' * 60}", "Cursor", "left out"),
    (f"shop:named_{'x' * 60}", "Claude Desktop", "left out"),
    (f"shop:named_{'x' * 60}", "OpenAI", "renamed"),
    ("shop:bills.all", "Claude Desktop", "left out"),
    ("shop:bills.all", "Codex", "renamed"),
    ("shop:bills.all", "Anthropic", "renamed"),
}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    config = raw_config(tools=TOOLS, greeting={"instructions": INSTRUCTIONS})
    with Session.from_config({"servers": {"shop": config}}) as opened:
        opened.connect(quiet=True)
        yield opened


def test_the_card_of_a_server_says_it(session: Session) -> None:
    status = session.servers["shop"]
    found = {(name, each.where, each.effect) for each in status.affected for name in each.tools}
    assert found >= EFFECTS
    assert not [name for name, _, _ in found if name == "shop:pay"]
    assert all(where in str(status) for _, where, _ in EFFECTS)


def test_each_host_and_provider_says_what_it_makes_of_a_server(session: Session) -> None:
    seen = session.servers.hosts("shop")
    by_name = {each.where: each for each in seen}
    assert list(by_name) == [place.title for place in (*HOSTS, *DIALECTS.values())]
    found = {
        (name, each.where, change.effect)
        for each in seen
        for change in each.affected
        for name in change.tools
    }
    assert found >= EFFECTS
    assert by_name["VS Code"].tools == len(TOOLS)
    # One name that it does not take costs the server all its tools.
    assert by_name["Claude Desktop"].tools == 0
    assert by_name["Codex"].tools == len(TOOLS) - 1
    (cut,) = [each for each in by_name["Claude Code"].affected if not each.tools]
    assert (cut.effect, f"{len(INSTRUCTIONS):,}" in cut.reason) == ("cut", True)
    assert cut in session.servers["shop"].affected
    for each in seen:
        assert each.sources
        assert datetime.date.fromisoformat(each.checked)
        assert each.where in str(seen)
        assert all(source in seen._repr_html_() for source in each.sources)
    run = COMMANDS["hosts"].run
    assert run is not None
    assert run(session, "shop") == seen
    with pytest.raises(UnknownNameError):
        session.servers.hosts("shops")


def test_the_doctor_says_it_of_one_tool(session: Session) -> None:
    for name in {name for name, _, _ in EFFECTS}:
        diagnosis = session.servers.doctor(name)
        assert isinstance(diagnosis, ToolDiagnosis)
        found = {(name, each.where, each.effect) for each in diagnosis.elsewhere}
        assert found >= {row for row in EFFECTS if row[0] == name}
        assert all(each.where in str(diagnosis) for each in diagnosis.elsewhere)
        assert json.dumps(diagnosis.as_dict()["elsewhere"])
    pay = session.servers.doctor("shop:pay")
    assert isinstance(pay, ToolDiagnosis)
    assert pay.elsewhere == ()


def test_the_lint_says_it(session: Session) -> None:
    rows = [
        (str(finding.tool), finding.text)
        for finding in session.experiments.lint()
        if finding.kind in ("provider", "host")
    ]
    for name, where, _ in EFFECTS:
        assert any(tool == name and where in text for tool, text in rows)


def test_the_audit_says_it(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"shop": raw_config(tools=TOOLS)}}))
    audit = audit_host(path, trust=True)
    found = {(name, each.where, each.effect) for each in audit.affected for name in each.tools}
    assert found >= EFFECTS
    assert "Cursor" in str(audit)
    assert json.loads(json.dumps(audit.as_dict()))["affected"]


def test_more_tools_than_a_host_offers_are_counted() -> None:
    tools = [ToolSpec("s", f"tool{number}", "Do it.", PLAIN) for number in range(130)]
    found = affected(tools)
    assert [each.where for each in found] == ["VS Code", "OpenAI", "OpenAI (Responses)"]
    assert {(each.effect, len(each.tools)) for each in found} == {("left out", 2)}


def test_a_hopeless_tool_is_left_out_by_every_provider() -> None:
    found = elsewhere(ToolSpec("s", "hopeless", "Do it.", {"type": "array"}))
    assert {(each.where, each.effect) for each in found} == {
        (dialect.title, "left out") for dialect in DIALECTS.values()
    }


def test_the_doctor_knows_what_the_provider_refused_in_this_session() -> None:
    def problem(name: str, schema: Any) -> str | None:
        return "an unknown rule" if name == "shop__pay" else None

    with SchemaStrict("anthropic", problem) as server:
        config = {**server.config, "servers": {"shop": raw_config(tools=TOOLS)}}
        with Session.from_config(config) as session:
            assert session.chat("Go", echo="none").status == "done"
            diagnosis = session.servers.doctor("shop:pay")
            assert isinstance(diagnosis, ToolDiagnosis)
            assert diagnosis["sent"].state == "stopped"
            assert "an unknown rule" in diagnosis["sent"].found
