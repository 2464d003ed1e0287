"""From the text behind the magics to typed values; mistakes are one line with the closest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from casual_mcp_nb.base.config_base import OPTION_NAMES, RequestOptions
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.args import (
    CELL_OPTIONS,
    ECHO,
    CassetteArgs,
    CellArgs,
    MagicLine,
    fill_in,
    is_config_file,
    parse_assignments,
    parse_call,
    parse_cassette,
    parse_cell_line,
    parse_compare,
    parse_line,
    parse_position,
    parse_wire,
    split_ends,
    without_quotes,
)
from casual_mcp_nb.magics.commands import COMMANDS, EVERY_DAY, SAME
from casual_mcp_nb.magics.help import help_of
from casual_mcp_nb.notebook.live import Echo


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("", MagicLine("status", "")),
        ("tools", MagicLine("tools", "")),
        ("  search   convert a time ", MagicLine("search", "convert a time")),
        ('call math__add {"a": 1}', MagicLine("call", 'math__add {"a": 1}')),
        ("tools;", MagicLine("tools", "", None, True)),
        ("-o hits search convert", MagicLine("search", "convert", "hits")),
        ("search -o hits convert", MagicLine("search", "convert", "hits")),
        ("ask what does gcc -o main", MagicLine("ask", "what does gcc -o main")),
        ("-o turn ask what does gcc -o main", MagicLine("ask", "what does gcc -o main", "turn")),
        ("connect cc -o out", MagicLine("connect", "cc -o out")),
        ("connect -o now cc -o out", MagicLine("connect", "cc -o out", "now")),
        ("tools\ttime -o listed", MagicLine("tools", "time", "listed")),
        ("models", MagicLine("model", "")),
        (
            'call math__add {"a": 1} -o three;',
            MagicLine("call", 'math__add {"a": 1}', "three", True),
        ),
        ("-o now", MagicLine("status", "", "now")),
        ("?", MagicLine("help", "")),
        ("--help", MagicLine("help", "")),
        ("call --help", MagicLine("help", "call")),
        ("ask What time is it?", MagicLine("ask", "What time is it?")),
    ],
)
def test_a_line_is_split_into_command_and_rest(line: str, parsed: MagicLine) -> None:
    assert parse_line(line, COMMANDS, SAME) == parsed


def test_an_unknown_command_is_an_error_with_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="'servers'"):
        parse_line("servrs", COMMANDS)
    with pytest.raises(UnknownNameError, match="'search'"):
        parse_line("serach convert a time", COMMANDS)


def test_a_question_in_place_of_a_command_gets_advice_on_how_to_ask() -> None:
    with pytest.raises(UnknownNameError, match="%mcp ask") as error:
        parse_line("what time is it in Tokyo", COMMANDS)
    assert "Available" not in str(error.value)


def test_a_word_behind_the_cell_magic_is_told_where_the_question_goes() -> None:
    with pytest.raises(UnknownNameError, match="below %%mcp"):
        parse_cell_line("chat")
    with pytest.raises(UnknownNameError, match="'--max-steps'"):
        parse_cell_line("--max-step 3")


def test_the_options_of_a_cell_become_typed_values() -> None:
    assert parse_cell_line(
        "--model gpt --toolset 'my tools' --no-discovery --max-steps 3"
    ) == CellArgs({"model": "gpt", "tool_set": "my tools", "discovery": False, "max_steps": 3})
    assert parse_cell_line("--var a --var b --echo text -o turn") == CellArgs(
        echo="text", variables=("a", "b"), output="turn"
    )
    assert parse_cell_line(
        "--temperature 0.5 --max-tokens 9 --stop 'the end' --seed -1"
    ) == CellArgs({"temperature": 0.5, "max_tokens": 9, "stop": "the end", "seed": -1})
    assert parse_cell_line("") == CellArgs()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--modle gpt", "--model"),
        ("--model", "expected one argument"),
        ("--max-steps x", "invalid int"),
        ("--system 'a", "quotation"),
        ("--echo al", "Did you mean 'all'"),
        ("--max-steps 0", "1 or more"),
        ("--temperature warm", "invalid float"),
        ("--temprature 1", "--temperature"),
        ("--var a.b", "not a valid variable name"),
        ("-o class", "not a valid variable name"),
    ],
)
def test_a_wrong_option_is_one_line(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        parse_cell_line(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('math__add {"a": 1, "b": 2}', ("math__add", {"a": 1, "b": 2})),
        ("time__now", ("time__now", {})),
        ("math__add a=1 b=2.5", ("math__add", {"a": 1, "b": 2.5})),
        ('math__add\t{"a": 1}', ("math__add", {"a": 1})),
        ("math__add\ta=1", ("math__add", {"a": 1})),
        (
            "text__x text='two words' all=true of=[1,2] n=NaN",
            ("text__x", {"text": "two words", "all": True, "of": [1, 2], "n": "NaN"}),
        ),
        (
            'x filter={"k":1} of=["b c", {}]\tn=2',
            ("x", {"filter": {"k": 1}, "of": ["b c", {}], "n": 2}),
        ),
        ('x filter={"t": "it\'s \\"q\\""}', ("x", {"filter": {"t": 'it\'s "q"'}})),
        ("x 'filter={\"k\": 1}'", ("x", {"filter": {"k": 1}})),
        ("x text='say a={\"k\":1} now'", ("x", {"text": 'say a={"k":1} now'})),
        ("x pattern=[a-z]+ other={k}", ("x", {"pattern": "[a-z]+", "other": "{k}"})),
        ("x pattern='[\"a\"]+'", ("x", {"pattern": '["a"]+'})),
        ("x my-arg=1 a.b=2", ("x", {"my-arg": 1, "a.b": 2})),
        ('text__x {"text": "$HOME {braces}"}', ("text__x", {"text": "$HOME {braces}"})),
    ],
)
def test_a_call_is_a_tool_and_a_json_object(text: str, call: tuple[str, dict[str, object]]) -> None:
    assert parse_call(text) == call


@pytest.mark.parametrize("text", ["", "math__add {", "math__add [1]", "math__add 1"])
def test_a_call_that_cannot_be_read_says_how_it_is_written(text: str) -> None:
    with pytest.raises(UsageError, match=r"\{\"a\": 1"):
        parse_call(text)


@pytest.mark.parametrize(
    "text",
    ['x filter={"k":1,}', 'x n=1 filter={"k": 1', 'x filter=["a"]+', 'x filter={"k":1}{"k":2}'],
)
def test_a_value_that_is_nearly_json_is_refused_rather_than_sent_without_its_quotes(
    text: str,
) -> None:
    with pytest.raises(UsageError, match=r"filter.*JSON.*filter='"):
        parse_call(text)


def test_the_echo_levels_and_the_options_of_models_are_those_of_the_session() -> None:
    assert get_args(Echo) == ECHO
    line = (
        "--temperature 1 --top-p 1 --max-tokens 1 --seed 1 --stop x --tool-choice none"
        " --reasoning-effort low"
    )
    given = parse_cell_line(line).options
    assert RequestOptions.of(given).given().keys() == given.keys()
    assert set(OPTION_NAMES) - given.keys() == {
        "parallel_tool_calls",
        "extra_body",
        "extra_headers",
    }


@pytest.mark.parametrize(
    ("text", "names", "filled"),
    [
        ("In {{ city }} and {{city}}", ["city"], "In Oslo and Oslo"),
        ("{{ city }} {{ other }} {x} ${y} {% z %}", ["city"], "Oslo {{ other }} {x} ${y} {% z %}"),
        ('{"a": {"b": 1}} {{ city }}', [], '{"a": {"b": 1}} {{ city }}'),
        ("{{ tricky }} {{ city }}", ["tricky", "city"], "{{ city }} \\1 Oslo"),
        ("{{ number }}", ["number", "number"], "3"),
    ],
)
def test_only_variables_that_were_named_are_put_into_the_text(
    text: str, names: list[str], filled: str
) -> None:
    assert (
        fill_in(
            text, names, {"city": "Oslo", "tricky": "{{ city }} \\1", "number": 3, "other": "no"}
        )
        == filled
    )


def test_an_unknown_variable_is_reported_with_the_closest_name() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'city'"):
        fill_in("{{ cty }}", ["cty"], {"city": "Oslo", "_hidden": 1})


def test_a_variable_that_the_text_does_not_use_is_reported() -> None:
    with pytest.raises(UsageError, match=r"\{\{ city \}\}"):
        fill_in("{city}", ["city"], {"city": "Oslo"})


@pytest.mark.parametrize(
    ("text", "position"), [("", (None, None)), ("2", (None, 2)), ("1.2", (1, 2))]
)
def test_a_step_is_named_by_its_number_or_by_turn_and_number(text: str, position: Any) -> None:
    assert parse_position("step", text) == position


@pytest.mark.parametrize("text", ["x", "1.", ".2", "1.2.3", "-1", "²", "9" * 5_000])
def test_an_invalid_step_is_reported_with_the_right_syntax(text: str) -> None:
    with pytest.raises(UsageError, match=r"%mcp diff 2, or 1\.2"):
        parse_position("diff", text)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        (' "What\'s it?" ', "What's it?"),
        ('say "a" and "b"', 'say "a" and "b"'),
        ('"a" and "b"', '"a" and "b"'),
        ("it's 5 o'clock", "it's 5 o'clock"),
        ('"', '"'),
        ('""', ""),
        ('5 feet 4"', '5 feet 4"'),
        ("'tis the season", "'tis the season"),
        ('"unfinished', '"unfinished'),
        ("", ""),
    ],
)
def test_quotes_around_a_whole_text_are_taken_off_as_a_shell_does(text: str, own: str) -> None:
    assert without_quotes(text) == own


ON_AND_OFF = {"discovery": [True, False]}
STRATEGIES = {"strategies": ["search", "browse"]}


@pytest.mark.parametrize(
    ("line", "message", "options"),
    [
        ("What is 17 * 24?", "What is 17 * 24?", ON_AND_OFF),
        ("--strategies search,browse What is it?", "What is it?", STRATEGIES),
        ("--discovery on,off What is it?", "What is it?", {"discovery": [True, False]}),
        (
            '--models gpt,claude --repeats=3 "What\'s it?"',
            "What's it?",
            {"models": ["gpt", "claude"], "repeats": 3},
        ),
        ("--check 3 --max-runs 9 Say it", "Say it", {"check": "3", "max_runs": 9, **ON_AND_OFF}),
        (
            "--check '24 h' --toolsets all,numbers What is a day",
            "What is a day",
            {"check": "24 h", "tool_sets": [None, "numbers"]},
        ),
        ('"What does --help do?"', "What does --help do?", ON_AND_OFF),
        ("5 - 3 and -x", "5 - 3 and -x", ON_AND_OFF),
        ("What does git commit --amend do?", "What does git commit --amend do?", ON_AND_OFF),
        (
            "--repeats 2 What does --models do",
            "What does --models do",
            {"repeats": 2, **ON_AND_OFF},
        ),
    ],
)
def test_a_comparison_has_its_options_before_the_message(
    line: str, message: str, options: Any
) -> None:
    assert parse_compare(line) == (message, options)


@pytest.mark.parametrize(
    "line",
    ["", "--discovery on", "--discovery yes x", "--modles a x", "--repeats two x", '""'],
    ids=repr,
)
def test_a_comparison_that_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        parse_compare(line)


def test_an_invalid_name_after_o_is_reported() -> None:
    with pytest.raises(UsageError, match="valid variable name"):
        parse_line("tools -o 3x", COMMANDS)


def test_the_whole_help_has_every_command_and_every_option_once() -> None:
    groups = help_of("--all").groups
    rows = [row for _, rows in groups for row in rows]
    named = [row.usage.split()[1] for row in rows if row.usage.startswith("%mcp ")]
    assert sorted(named) == sorted(COMMANDS)
    options = [row.usage.split()[0] for row in rows if row.usage.startswith("-")]
    assert sorted(options) == sorted(CELL_OPTIONS)
    assert len(groups) == len({title for title, _ in groups})


def test_the_help_lists_what_one_needs_every_day_and_the_topics_of_the_rest() -> None:
    (_, every_day), (_, topics) = help_of().groups
    assert len(every_day) <= 16
    assert [row.usage for row in every_day if row.usage != "%%mcp"] == [
        f"%mcp {name}" for name in EVERY_DAY
    ]
    found: set[str] = set()
    for row in topics:
        for _, rows in help_of(row.usage.removeprefix("%mcp help ")).groups:
            found |= {each.usage.split()[1] for each in rows if each.usage.startswith("%mcp ")}
    assert found == set(COMMANDS)


def test_a_misspelt_command_names_the_topic_with_more_like_it() -> None:
    for line, topic in (("wirre", "servers"), ("compair", "measure")):
        with pytest.raises(UnknownNameError, match=f"%mcp help {topic}"):
            parse_line(line, COMMANDS)
    with pytest.raises(UnknownNameError, match="%mcp help --all"):
        parse_line("xyzzy", COMMANDS)


def test_another_spelling_of_a_command_is_the_command() -> None:
    for spelling, name in SAME.items():
        assert parse_line(f"{spelling} math", COMMANDS, SAME) == MagicLine(name, "math")
        assert help_of(spelling) == help_of(name)


def test_the_examples_of_the_help_are_lines_that_can_be_read() -> None:
    for name in COMMANDS:
        if example := help_of(name).groups[0][1][0].example:
            assert parse_line(example.removeprefix("%mcp "), COMMANDS).command == name


def test_the_help_of_a_command_is_not_cut() -> None:
    for name in COMMANDS:
        assert "characters in all" not in str(help_of(name)), name


@pytest.mark.parametrize(("word", "command"), [("cost", "budget"), ("consent", "approval")])
def test_help_of_a_word_lists_the_commands_about_it(word: str, command: str) -> None:
    ((_, rows),) = help_of(word).groups
    assert command in {row.usage.split()[1] for row in rows}


def test_help_of_an_unknown_command_names_the_closest() -> None:
    assert help_of("call").groups[0][1][0].usage.startswith("%mcp call")
    with pytest.raises(UnknownNameError, match="'call'"):
        help_of("cal")


@pytest.mark.parametrize(
    ("text", "rest", "options"),
    [
        ("", "", {}),
        ("config.json", "config.json", {}),
        ("npx -y docs --model openai:gpt-4.1", "npx -y docs", {"--model": "openai:gpt-4.1"}),
        ("--model=ollama:qwen3:8b npx -y docs", "npx -y docs", {"--model": "ollama:qwen3:8b"}),
        ("--model ollama:qwen3", "", {"--model": "ollama:qwen3"}),
        ("npx --model mine -y docs", "npx --model mine -y docs", {}),
        ("npx --model mine -y docs --model a:b", "npx --model mine -y docs", {"--model": "a:b"}),
        ("--name=a --model b:c npx docs", "npx docs", {"--name": "a", "--model": "b:c"}),
        ("npx docs --model b:c --name a", "npx docs", {"--name": "a", "--model": "b:c"}),
        ("--name a npx docs --name b", "npx docs --name b", {"--name": "a"}),
        ("'npx docs --name b'", "'npx docs --name b'", {}),
        ("a.json --model b:c --trust", "a.json", {"--model": "b:c", "--trust": ""}),
        ("--trust a.json", "a.json", {"--trust": ""}),
    ],
)
def test_options_are_at_the_beginning_or_end_of_a_line(
    text: str, rest: str, options: dict[str, str]
) -> None:
    assert split_ends(text, ("--model", "--name", "--trust")) == (rest, options)


def test_an_option_that_a_command_does_not_take_stays_in_its_line() -> None:
    text = "npx docs --name b"
    assert split_ends(text, ("--model",)) == (text, {})


def test_a_path_that_exists_or_is_named_like_a_config_is_a_config_file(tmp_path: Path) -> None:
    there = tmp_path / "my config"
    there.write_text("{}")
    assert is_config_file(f"'{there}'")
    assert is_config_file("nowhere.json")
    for text in (
        "npx -y docs config.json",
        "https://example.com/mcp.json",
        "time",
        "'unclosed",
        "",
    ):
        assert not is_config_file(text)


def test_a_plan_is_an_option_of_a_cell() -> None:
    assert parse_cell_line("--plan --max-steps 3").plan
    assert not parse_cell_line("").plan


def test_values_of_a_prompt_are_read_with_quotes() -> None:
    line = 'docs:compare first=Oslo note=\'a = b, "c"\' empty= where={"k": [1]}'
    values = {"first": "Oslo", "note": 'a = b, "c"', "empty": "", "where": '{"k": [1]}'}
    assert parse_assignments("prompt", line, "prompt", "docs:compare") == ("docs:compare", values)


@pytest.mark.parametrize(
    "line", ["", "docs:compare Oslo", "docs:compare =Oslo", "docs:compare first='Oslo"]
)
def test_values_without_a_name_are_refused(line: str) -> None:
    with pytest.raises(UsageError):
        parse_assignments("prompt", line, "prompt", "docs:compare")


@pytest.mark.parametrize(
    ("command", "line", "parsed"),
    [
        ("cassette", "", CassetteArgs("")),
        ("cassette", "lesson.json", CassetteArgs("lesson.json")),
        (
            "cassette",
            "--mode all 'my lesson.json' --pace=0.5",
            CassetteArgs("my lesson.json", "all", 0.5),
        ),
        ("replay", "lesson.html --pace 1", CassetteArgs("lesson.html", None, 1.0)),
        ("test", "lesson.html", CassetteArgs("lesson.html")),
    ],
)
def test_a_cassette_is_read_with_its_options(command: str, line: str, parsed: CassetteArgs) -> None:
    assert parse_cassette(command, line) == parsed


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("cassette", "a.json b.json"),
        ("cassette", "--mode all"),
        ("cassette", "a.json --mode onec"),
        ("cassette", "a.json --pace quick"),
        ("cassette", "a.json --pace"),
        ("cassette", "a.json --made up"),
        ("replay", ""),
        ("replay", "a.json --mode all"),
        ("test", ""),
    ],
)
def test_a_wrong_line_about_a_cassette_is_refused(command: str, line: str) -> None:
    with pytest.raises(UsageError):
        parse_cassette(command, line)


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("", {}),
        ("time", {"server": "time"}),
        ("--method tools/* time", {"server": "time", "method": "tools/*"}),
        (
            'time --text="not found" --method tools/call',
            {"server": "time", "method": "tools/call", "text": "not found"},
        ),
    ],
)
def test_the_wire_of_a_server_is_filtered_by_method_and_text(
    line: str, given: dict[str, str]
) -> None:
    assert parse_wire(line) == given


@pytest.mark.parametrize("line", ["time math", "time --metod tools/*", "time --text"])
def test_what_the_wire_does_not_take_is_an_error_with_a_hint(line: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_wire(line)
    assert refused.value.hint or "--method" in str(refused.value)
