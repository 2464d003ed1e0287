"""The magics that go back in the conversation and open its panel, in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
%load_ext casual_mcp_nb
from casual_mcp_nb import Session
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"math": {"bundled": "math", "transport": "in-process"}},
})
session.connect();
"""
PROMPTS = "print([turn.prompt for turn in session.turns])"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


def test_turns_are_asked_again_and_taken_back(kernel: Kernel) -> None:
    for prompt in ("What is 2 + 3?", "What is 4 + 5?"):
        assert kernel.run(f"%%mcp\n{prompt}").status == "ok"
    ran = kernel.run("%mcp rerun")
    assert len(ran.outputs) == 1, "it is shown once"
    assert "9" in ran.text()
    assert kernel.printed(PROMPTS) == "['What is 2 + 3?', 'What is 4 + 5?']"
    assert "56" in kernel.run("%mcp rerun 1 What is 7 * 8?").text()
    assert kernel.printed(PROMPTS) == "['What is 7 * 8?']"
    assert kernel.run("%mcp rerun What is 7 * 9?").status == "ok"
    assert kernel.printed(PROMPTS) == "['What is 7 * 9?']"
    assert "What is 7 * 9?" in kernel.run("%mcp undo").text()
    assert kernel.printed(PROMPTS) == "[]"


def test_a_plan_is_shown_and_changes_no_conversation(kernel: Kernel) -> None:
    assert "math:evaluate" in kernel.run("%mcp plan What is 17 * 24?").text()
    assert "math:evaluate" in kernel.run("%%mcp --plan -o later\nWhat is 17 * 24?").text()
    assert "408" in kernel.run("later.run()").text()
    assert kernel.printed(PROMPTS) == "[]"


@pytest.mark.parametrize(
    ("line", "words"),
    [("undo", "no turn to undo"), ("rerun", "no turns yet"), ("rerun 0", "There is no turn 0")],
)
def test_missing_things_are_one_line_of_error(kernel: Kernel, line: str, words: str) -> None:
    kernel.run("%mcp new")
    ran = kernel.run(f"%mcp {line}")
    assert ran.status == "error"
    assert words in ran.text()


def test_a_cell_names_a_model_that_is_not_in_the_config(kernel: Kernel) -> None:
    kernel.run("%mcp new")
    assert kernel.run("%%mcp --model offline:planner\nWhat is 2 + 3?").status == "ok"
    assert kernel.printed(PROMPTS) == "['What is 2 + 3?']"
    assert "no-such" in kernel.run("%%mcp --model no-such:model\nWhat is 2 + 3?").text()


def test_stop_is_harmless_when_nothing_runs(kernel: Kernel) -> None:
    assert kernel.run("%mcp stop").status == "ok"


def test_the_panel_is_a_widget_with_a_static_picture(kernel: Kernel) -> None:
    ran = kernel.run("%mcp panel")
    assert ran.status == "ok"
    kinds = [set(output["data"]) for output in ran.outputs]
    assert "application/vnd.jupyter.widget-view+json" in kinds[0]
    assert {"text/html", "text/markdown"} <= kinds[1]
    assert "Conversation" in ran.outputs[1]["data"]["text/plain"]


DOCS = """
from fastmcp import FastMCP
docs = FastMCP("docs")
docs.resource("docs://readme", name="readme")(lambda: "Harbours of Norway")
docs.resource("docs://tides/{port}", name="tides")(lambda port: f"Tides of {port}")
docs.prompt(name="compare")(lambda first: f"Compare {first} with Oslo.")
session.servers.add("docs", docs)
"""


def test_resources_and_prompts_are_listed_read_and_attached(kernel: Kernel) -> None:
    assert kernel.run(DOCS).status == "ok"
    assert "docs://tides/{port}" in kernel.run("%mcp resources").text()
    assert "docs://readme" in kernel.run("%mcp resources docs").text()
    assert "compare" in kernel.run("%mcp prompts").text()
    assert "Tides of Bergen" in kernel.run("%mcp read docs:tides port=Bergen").text()
    assert "Compare Bergen with Oslo." in kernel.run("%mcp prompt docs:compare first=Bergen").text()
    assert kernel.run("%%mcp --attach docs://readme\nWhat is 2 + 3?").status == "ok"
    assert (
        kernel.printed("print('Harbours' in str(session.turns[-1].prompt_messages[0].content))")
        == "True"
    )
    assert kernel.run("%mcp undo").status == "ok"


def test_the_calls_so_far_are_listed_and_saved(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run('%mcp call math:add {"a": 1, "b": 2}')
    assert "math:add" in kernel.run("%mcp audit").text()
    file = tmp_path / "audit.jsonl"
    assert kernel.run(f"%mcp audit {file}").status == "ok"
    assert json.loads(file.read_text().splitlines()[-1])["decided_by"] == "direct"
    assert "already exists" in kernel.run(f"%mcp audit {file}").text()
    assert kernel.run(f"%mcp audit {file} --overwrite").status == "ok"
    assert "It may start." in kernel.run("%mcp trust").text()
    assert kernel.run("%mcp trust maybe").status == "error"


@pytest.mark.defect("K4")
def test_the_cost_of_a_config_is_shown_without_touching_the_session(
    kernel: Kernel, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"units": {"bundled": "units", "transport": "in-process"}}})
    )
    assert "units" in kernel.run(f"%mcp -o cost audit {config} --trust").text()
    assert (
        kernel.printed(
            "print(cost[0].server, cost.tokens > cost.deferred_tokens > 0, session.status.closed)"
        )
        == "units True False"
    )
    assert "nowhere.json" in kernel.run("%mcp audit nowhere.json").text()
    talk = tmp_path / "talk.json"
    kernel.run(f"session.export({str(talk)!r})")
    assert kernel.run(f"%mcp -o past audit {talk}").status == "ok"
    assert kernel.printed("print(type(past).__name__)") == "ConversationAudit"
