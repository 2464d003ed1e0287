"""The magics in the cells of a real kernel: results, options, completion, settings, config
cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel
from kit.lean import lean
from kit.provider import Provider, answer

pytestmark = pytest.mark.kernel

SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
})
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(**lean(openai=True)) as kernel:
        assert kernel.run("%load_ext casual_mcp_nb").outputs == []
        assert kernel.run(SETUP).status == "ok"
        assert (
            kernel.run("%%mcp\nWhat time is it in Tokyo when it is 14:30 in Oslo?").status == "ok"
        )
        yield kernel


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%mcp history", "Conversation · 1 turn"),
        ("%mcp clients", "offline"),
        ("%mcp doctor", "Doctor"),
        ("%mcp preview", "As the model reads it"),
        ("%mcp preview teacher", "teacher"),
        ("%mcp selection", "deferred"),
        ("%mcp servers math", "Capabilities"),
        ("%mcp server math", "Capabilities"),
        ("%mcp step", "The whole request"),
        ("%mcp step 1", "search_tools"),
        ("%mcp request 2", "Tools offered"),
        ("%mcp diff 1.2", "+ time__convert_time"),
        ("%mcp lint", "Catalog lint"),
        ("%mcp strategy", "How the model finds tools"),
        ("%mcp help strategy", "search | browse"),
        ("%mcp help diff", "%mcp diff 2"),
        ("%mcp help", "By topic"),
        ("%mcp help wire", "%mcp help servers"),
        ("%mcp help cells", "--temperature"),
        ("%mcp help --all", "Record and replay"),
    ],
)
def test_each_command_shows_its_noun(kernel: Kernel, line: str, words: str) -> None:
    ran = kernel.run(line)
    assert ran.status == "ok", ran.text()
    assert words in ran.text()
    assert "text/html" in ran.outputs[-1]["data"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%mcp step 9", "There are steps 1 to 3."),
        ("%mcp diff 2.1", "There are turns 1 to 1."),
        ("%mcp preview no-such", "no template 'no-such"),
        ("%mcp server mth", "Did you mean 'math'"),
        ("%mcp connect no-such-command --flag", "was not found"),
        ("%mcp model openai:gpt-4.1", "--model openai:gpt-4.1"),
        ("%mcp export", "Which file"),
        ("%mcp strategy brows", "Did you mean 'browse'"),
        ("%mcp evaluate", "takes a file of cases"),
        ("%mcp evaluate cases.jsonl five", "a number of tools"),
        ("%mcp evaluate no-such.jsonl", "cannot be read"),
        ("%mcp export talk.pdf", "'.html', '.ipynb'"),
        ("%mcp helo", "Did you mean 'help'"),
        ("%%mcp --echo txt\nhello", "Did you mean 'text'"),
        ("%%mcp --var cty\n{{ cty }}", "Unknown variable 'cty'"),
        ("%%mcp --max-steps none\nhello", "invalid int"),
        ("%%mcp --temperature 3\nhello", "temperature"),
        ("%%mcp --reasoning-effort hihg\nhello", "Did you mean 'high'"),
        ("%%mcp --toolset number\nhello", "Did you mean 'numbers'"),
        ("session.chat('hello', echo='txt')", "Did you mean 'text'"),
    ],
)
def test_a_mistake_is_one_line_and_the_cell_is_an_error(
    kernel: Kernel, code: str, words: str
) -> None:
    ran = kernel.run(code)
    assert ran.status == "error"
    (output,) = [output for output in ran.outputs if "traceback" in output]
    assert words in "\n".join(output["traceback"])
    assert len("\n".join(output["traceback"]).splitlines()) == 1


def test_a_model_that_is_not_in_the_config_writes_a_cell(kernel: Kernel) -> None:
    with Provider(answer("openai", "```python\n17 * 24\n```")) as server:
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-not-a-real-key"}
        assert kernel.run(f"import os; os.environ |= {environ!r}").status == "ok"
        ran = kernel.run("%%mcp write --model openai:gpt-4.1 -o cell\nMultiply 17 by 24")
        assert ran.status == "ok", ran.text()
    assert kernel.printed("print(cell.code, cell.turns[0].started.model)") == "17 * 24\n gpt-4.1"


def test_a_strategy_is_chosen_and_shown(kernel: Kernel) -> None:
    assert "browse" in kernel.run("%mcp strategy browse").text()
    assert "browses deferred tools" in kernel.run("%mcp status").text()
    kernel.run("%mcp strategy search;")
    assert kernel.run("session.selection.strategy").text() == "'search'"


def test_a_file_of_cases_is_evaluated(kernel: Kernel, tmp_path: Path) -> None:
    case = {"query": "convert a time between zones", "gold": [[["time", "convert_time"]]]}
    miss = {"query": "bake a cake", "gold": [[["kitchen", "bake"]]]}
    cases = tmp_path / "cases.jsonl"
    cases.write_text(f"{json.dumps(case)}\n{json.dumps(miss)}\n", encoding="utf-8")
    ran = kernel.run(f"%mcp evaluate {cases} 3 -o found")
    assert ran.status == "ok", ran.text()
    kernel.run(f"%mcp evaluate {cases} 3 -o found")
    assert kernel.run("found['search'].recall_any, found.k, found.cases").text() == "(0.5, 3, 2)"
    assert "no tool for it." in kernel.run("found").text()


def test_results_are_objects_that_can_be_kept(kernel: Kernel) -> None:
    kernel.run("%mcp search -o hits convert a time zone")
    assert kernel.run("hits[0].tool.wire_name").text() == "'time__convert_time'"
    kernel.run('%mcp call math__add {"a": 1, "b": 2}')
    assert kernel.run("_.status").text() == "'ok'"
    assert kernel.run("%mcp tools;").outputs == []


def test_a_cell_keeps_its_turn_and_puts_in_only_the_variables_that_it_names(kernel: Kernel) -> None:
    kernel.run("place = 'Tokyo'\nother = 'never'")
    ran = kernel.run(
        "%%mcp --var place -o turn\nWhat time is it in {{ place }} when it is 14:30 in Oslo? {{"
        " other }} {place}"
    )
    assert ran.status == "ok", ran.text()
    assert (
        "in Tokyo when it is 14:30 in Oslo? {{ other }} {place}"
        in kernel.run("print(turn.prompt)").text()
    )
    kernel.run("session.turns.pop()")


def test_options_of_a_cell_go_to_the_model(kernel: Kernel) -> None:
    options = "--temperature 0.5 --top-p 0.9 --max-tokens 50 --seed 7 --stop END --tool-choice none"
    with Provider(answer("openai", "Fine.")) as provider:
        kernel.run(f"kept = session\nsession = Session.from_config({provider.config('openai')!r})")
        assert kernel.run(f"%%mcp {options}\nHow are you?").status == "ok"
        kernel.run("session.close()\nsession = kept")
    (request,) = provider.seen
    sent = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 7, "stop": ["END"]}
    assert sent.items() <= request.body.items()


@pytest.mark.parametrize(
    ("echo", "shown", "hidden"),
    [
        ("none", (), ("Three", "math:add")),
        ("text", ("Three",), ("math:add", "Details")),
        ("output", ("Three", "math:add", "Details"), ('data-key="details" open',)),
        ("all", ("Three", "math:add", 'data-key="details" open'), ()),
    ],
)
def test_a_cell_shows_as_much_as_echo_says(
    kernel: Kernel, echo: str, shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    code = (
        "session.chat('Add.', model=scripted_model(call('math__add', a=1, b=2), 'Three'),"
        f" echo={echo!r});"
    )
    html = kernel.run(code).text("text/html")
    assert all(words in html for words in shown)
    assert not any(words in html for words in hidden)
    kernel.run("session.turns.pop()")


def test_a_cell_that_shows_nothing_keeps_its_turn(kernel: Kernel) -> None:
    assert kernel.run("%%mcp --echo none -o silent\nWhat is 2 + 3?").outputs == []
    assert "5" in kernel.run("print(silent.answer)").text()
    kernel.run("session.turns.pop()")


def test_settings_hold_for_cells_without_options(kernel: Kernel) -> None:
    assert "McpMagics.max_steps" in kernel.run("%config McpMagics").text()
    kernel.run("%config McpMagics.echo = 'text'")
    html = kernel.run("%%mcp\nWhat is 2 + 3?").text("text/html")
    assert "5" in html
    assert "Details" not in html
    assert "Details" in kernel.run("%%mcp --echo output\nWhat is 2 + 3?").text("text/html")
    kernel.run("%config McpMagics.max_steps = 1")
    assert kernel.run("%%mcp\nWhat is 2 + 3?").status == "error"
    kernel.run(
        "%config McpMagics.max_steps = None\n%config McpMagics.echo = 'output'\ndel"
        " session.turns[1:]"
    )


@pytest.mark.parametrize(
    ("code", "matches"),
    [
        ("%mcp se", ["servers", "selection", "search"]),
        ("%mcp tool math__a", ["math__add"]),
        ("x = 1\n%mcp tool time__co", ["time__convert_time"]),
        ("%mcp off ", ["math", "time"]),
        ("%mcp toolset n", ["numbers"]),
        ("%mcp model pl", ["planner"]),
        ("%%mcp --toolset ", ["numbers"]),
        ("%%mcp --model p", ["planner"]),
        ("%%mcp --te", ["--template", "--temperature"]),
    ],
)
def test_the_tab_key_completes_commands_options_and_names(
    kernel: Kernel, code: str, matches: list[str]
) -> None:
    content = completions(kernel, code)
    assert content["matches"] == matches
    assert content["cursor_end"] == len(code)
    assert code[content["cursor_start"] :] == code.split("\n")[-1].rpartition(" ")[2]


@pytest.mark.parametrize(
    ("code", "matches"),
    [
        ("mine.tools.ti", {"time"}),
        ("x = mine.tools.time.conv", {"convert_time", "convert_time_async"}),
        ("print(t.conv", {"convert_time", "convert_time_async"}),
        ("mine.tools.functions.ti", {"time"}),
        ("mine.tools.nowhere.conv", set()),
        ("mine.tools.time.convert_time.x", set()),
    ],
)
def test_the_tab_key_completes_tools_as_functions(
    kernel: Kernel, code: str, matches: set[str]
) -> None:
    opened = (
        "mine = Session.from_config({'servers': {'time': {'bundled': 'time', 'transport':"
        " 'in-process'}}}); mine.connect()"
    )
    kernel.run(
        f"from casual_mcp_nb import Session\nif 'mine' not in globals():\n    {opened}\nt ="
        " mine.tools.time"
    )
    content = completions(kernel, code)
    assert set(content["matches"]) == matches  # type: ignore[call-overload]
    assert not matches or code[content["cursor_start"] :] == code.rpartition(".")[2]


def completions(kernel: Kernel, code: str) -> dict[str, object]:
    message_id = kernel.client.complete(code, len(code))
    while True:
        reply = kernel.client.get_shell_msg(timeout=30)
        if reply["parent_header"].get("msg_id") == message_id:
            content: dict[str, object] = reply["content"]
            return content


def test_registering_twice_completes_once(kernel: Kernel) -> None:
    assert (
        kernel.run("from casual_mcp_nb.magics import register\nregister(get_ipython())").text()
        == ""
    )
    assert completions(kernel, "%mcp se")["matches"] == ["servers", "selection", "search"]
    assert kernel.run("%mcp").status == "ok"
    assert (
        kernel.run(
            "len([part for part in get_ipython().configurables if type(part).__name__ =="
            " 'McpMagics'])"
        ).text()
        == "1"
    )


def test_a_conversation_is_exported_and_not_overwritten(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "talk to me.json"
    assert kernel.run(f"%mcp export '{path}'").status == "ok"
    again = kernel.run(f"%mcp export '{path}'")
    assert again.status == "error"
    assert "--overwrite" in again.text()
    assert kernel.run(f"%mcp export --overwrite '{path}'").status == "ok"
    assert json.loads(path.read_text(encoding="utf-8"))["version"] == 2
    page = tmp_path / "talk.html"
    assert kernel.run(f"%mcp export '{page}' --player").status == "ok"
    assert 'id="player"' in page.read_text(encoding="utf-8")


def test_a_config_with_mistakes_names_all_of_them_and_changes_nothing(
    kernel: Kernel, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    body = (
        '{\n  "servers": {"a": {"bundle": "math"}, "b": {"comand": "touch never"}},\n  "modls":'
        " {}\n}"
    )
    ran = kernel.run(f"%%mcp_config {path}\n{body}")
    assert ran.status == "error"
    for words in ("config.json:2:", "'bundled'", "'command'", "config.json:3:", "'models'"):
        assert words in ran.text()
    assert list(tmp_path.iterdir()) == []
    assert kernel.run("%mcp model").status == "ok"


@pytest.mark.slow
def test_a_config_in_a_cell_is_written_checked_and_connected(tmp_path: Path) -> None:
    with started_kernel() as kernel:
        kernel.run(f"%load_ext casual_mcp_nb\n%cd -q {tmp_path}")
        ran = kernel.run(
            '%%mcp_config\n{"servers": {"math": {"bundled": "math", "transport": "in-process"}}}'
        )
        assert ran.status == "ok", ran.text()
        assert "1 of 1 ready" in ran.text()
        assert (
            json.loads((tmp_path / "casual_mcp_config.json").read_text())["servers"]["math"][
                "bundled"
            ]
            == "math"
        )
        assert kernel.run("session.tools.call('math__add', a=1, b=2).status").text() == "'ok'"
        kernel.run("session.close()\nsession = 3")
        taken = kernel.run('%%mcp_config\n{"servers": {}}')
        assert "holds a int" in taken.text()
        assert "math" in (tmp_path / "casual_mcp_config.json").read_text()
