"""Toolsets of a config that name servers of the process, and the functions of the notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.setups import MATH, OFFLINE
from kit.shops import shop

from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ToolSetError
from casual_mcp_nb.providers.scripted import scripted_model

pytestmark = pytest.mark.defect("H2")

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
    "tool_sets": {
        "mixed": {"servers": {"math": ["add"], "shop": ["stock"], "notebook": True}},
        "mine": {"servers": {"notebook": ["double"]}},
        "misspelt": {"servers": {"maht": True}},
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def offered(session: Session, tool_set: str) -> list[str]:
    turn = session.chat("Hello", model=scripted_model("ok"), tool_set=tool_set, discovery=False)
    return sorted(tool["name"] for tool in turn.steps[0].request.tools)


def test_it_loads_and_names_what_is_added_later(file: Path) -> None:
    assert load_config(file).tool_sets["mixed"].servers["shop"] == ("stock",)
    with Session(file, quiet=True) as session:
        with pytest.raises(ToolSetError, match="no server 'shop'"):
            offered(session, "mixed")
        session.servers.add("shop", shop())
        assert offered(session, "mixed") == ["math__add", "shop__stock"]
        session.selection.tool_set = "mine"
        with pytest.raises(ToolSetError, match=r"'notebook' .* tool 'double'"):
            offered(session, "mine")
        session.tool(double)
        assert offered(session, "mine") == ["notebook__double"]
        assert offered(session, "mixed") == ["math__add", "notebook__double", "shop__stock"]
        with pytest.raises(ToolSetError, match=r"'notebook' .* tool 'doubel'\. .*'double'"):
            session.selection.tool_set = {"servers": {"notebook": ["doubel"]}}  # type: ignore[assignment]
        assert (
            session.tools.save_set("kept", {"servers": {"shop": True, "notebook": ["double"]}})
            == file
        )
    assert load_config(file).tool_sets["kept"].servers == {"shop": True, "notebook": ("double",)}


def test_servers_given_to_the_constructor_are_there(file: Path) -> None:
    with Session(file, in_process={"shop": shop()}, quiet=True) as session:
        assert offered(session, "mixed") == ["math__add", "shop__stock"]


async def test_a_chat_without_a_session_checks_them_when_they_are_used(file: Path) -> None:
    async with McpToolChat.from_config(file) as chat:
        with pytest.raises(ToolSetError, match="Did you mean 'math'"):
            await chat.chat("Hello", tool_set="misspelt", model=scripted_model("ok"))
        await chat.chat(
            "Hello", tool_set={"servers": {"notebook": True}}, model=scripted_model("ok")
        )


def test_a_name_that_looks_misspelt_is_found_before_its_toolset_is_used(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Session(file, quiet=True) as session:
        assert [note for note in session.status.notes if "maht" in note]
        assert not [note for note in session.status.notes if "shop" in note or "notebook" in note]
        verdicts = {
            (check.name, check.verdict)
            for check in session.servers.doctor()
            if check.part == "Toolsets"
        }
        assert verdicts == {("mixed", "warn"), ("misspelt", "fail")}
        with pytest.raises(ToolSetError, match="Did you mean 'math'"):
            session.selection.tool_set = "misspelt"
        with session.serve.http(port=0) as service:
            body = {
                "model": "planner",
                "messages": [{"role": "user", "content": "x"}],
                "tool_set": "misspelt",
            }
            answer = httpx.post(f"{service.url}/chat", json=body, timeout=30)
        assert answer.status_code in (400, 422)
        assert "'math'" in answer.text
    assert main(("check", "--config", str(file))) == 1
    assert "maht" in capsys.readouterr().out
    assert main(("chat", "Hello", "--config", str(file), "--trust", "--toolset", "misspelt")) != 0


def test_a_cassette_keeps_a_toolset_that_names_them(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    with (
        Session(file, in_process={"shop": shop()}, quiet=True) as session,
        session.cassettes.use(path, "all"),
    ):
        session.chat("Hello", tool_set="mixed")
    with Session.quick(cassette=path, quiet=True) as session:
        (turn,) = session.cassettes.replay()
        assert sorted(tool["name"] for tool in turn.steps[0].request.tools) == [
            "math__add",
            "shop__stock",
        ]
