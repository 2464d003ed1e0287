"""Every word of a `%mcp` line is used or refused, and never ignored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.kernel import Kernel, started_kernel

from casual_mcp_nb.magics.final_question_marks import keep_questions

pytestmark = pytest.mark.kernel

SETUP = """
%load_ext casual_mcp_nb
from casual_mcp_nb import Session
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_discovery": {"enabled": True},
})
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


@pytest.mark.defect("C8")
def test_a_line_that_ends_in_a_question_mark_is_the_magics_own(kernel: Kernel) -> None:
    cell = kernel.run("%mcp search what time is it?")
    assert cell.status == "ok"
    assert "time:current_time" in cell.text()
    assert "object" not in cell.text().split("current_time")[0].casefold()
    assert kernel.run("hits = %mcp search what time is it?").status == "ok"
    assert kernel.printed("print(hits[0].tool.server)") == "time"
    assert kernel.run("%%mcp\nWhat is 2 + 3?").status == "ok"
    assert kernel.run("%mcp rerun 1 What is 3 * 3?").status == "ok"
    assert kernel.printed("print([turn.prompt for turn in session.turns])") == "['What is 3 * 3?']"
    assert "no question" in kernel.run("text = '''\n%mcp no question?\n'''\nprint(text)").text()
    assert kernel.run("%mcp?").status == "ok"
    assert "Every day" in kernel.run("%mcp ?").text()
    assert kernel.run("turn = %mcp ask What is 3 * 4?").status == "ok"
    assert "12" in kernel.printed("print(turn.answer)")


def test_quotes_around_a_persons_words_are_not_part_of_them(kernel: Kernel) -> None:
    assert kernel.run('hits = %mcp search --all "current time"').status == "ok"
    assert kernel.printed("print(hits.query)") == "current time"
    kernel.run('turn = %mcp ask "What is 3 * 5?"')
    assert kernel.printed("print(turn.prompt)") == "What is 3 * 5?"
    kernel.run("turn = %mcp rerun 'What is 3 * 6?'")
    assert kernel.printed("print(turn.prompt)") == "What is 3 * 6?"
    kernel.run('plan = %mcp plan "What is 3 * 7?"')
    assert "3 * 7" in kernel.printed("print(plan[0].arguments)")


@pytest.mark.defect("C8")
@pytest.mark.parametrize(
    "line",
    [
        "undo 3",
        "ask --echo text What is 2?",
        "new please",
        "status now",
        "tools nosuchserver",
        "stop it",
        "lint all",
    ],
)
def test_words_that_a_command_does_not_take_are_refused(kernel: Kernel, line: str) -> None:
    before = kernel.printed("print(len(session.turns))")
    assert kernel.run(f"%mcp {line}").status == "error"
    assert kernel.printed("print(len(session.turns))") == before


@pytest.mark.defect("C8")
def test_the_tools_of_one_server_are_listed(kernel: Kernel) -> None:
    text = kernel.run("%mcp tools time").text()
    assert "convert_time" in text
    assert "math" not in text


@pytest.mark.defect("C6")
def test_a_search_ranks_the_same_tools_as_the_models_search_unless_all(kernel: Kernel) -> None:
    assert "math:add" not in kernel.run("%mcp search add numbers or time").text()
    assert "math:add" in kernel.run("%mcp search --all add numbers or time").text()


@pytest.mark.defect("C6")
@pytest.mark.parametrize("number", ["7", "0", "-7"])
def test_turns_count_from_one_in_messages(kernel: Kernel, number: str) -> None:
    kernel.run("%mcp new")
    assert kernel.run("%%mcp\nWhat is 2 + 3?").status == "ok"
    ran = kernel.run(f"%mcp rerun {number}")
    assert ran.status == "error"
    assert f"no turn {number}." in ran.text()
    assert "turns 1 to 1" in ran.text()
    assert kernel.run("%mcp rerun -1").status == "ok"


@pytest.mark.defect("C6")
def test_stats_before_the_first_turn_say_nothing_of_discovery(kernel: Kernel) -> None:
    kernel.run("%mcp new")
    assert "discovery was off" not in kernel.run("%mcp stats").text()


@pytest.mark.defect("C8")
def test_other_lines_are_left_alone() -> None:
    for lines in (
        ["%%mcp\n", "%mcp what?\n"],
        ["x?\n"],
        ["%mcp?\n"],
        ["%mcpx why?\n"],
        ["print('%mcp why?')\n"],
        [],
    ):
        assert keep_questions(list(lines)) == lines
