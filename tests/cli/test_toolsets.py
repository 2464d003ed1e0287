"""Toolsets from a shell: the entries written to the config file, and the questions on a
terminal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import UsageError
from casual_mcp_nb.cli.app import FAILED, WRONG_USAGE
from casual_mcp_nb.cli.toolsets import change, chosen
from tests.cli.conftest import CONFIG, Run, Typed


def saved(config: Path) -> Any:
    return {
        name: each["servers"]
        for name, each in json.loads(config.read_text(encoding="utf-8"))["tool_sets"].items()
    }


def test_a_toolset_from_its_creation_to_its_end(config: Path, run: Run) -> None:
    before = config.read_text(encoding="utf-8")
    assert (
        run(
            "toolsets",
            "create",
            "mine",
            "--include",
            "math:power",
            "--include",
            "units",
            "--description",
            "My own",
        )[0]
        == 0
    )
    assert saved(config)["mine"] == {"math": ["power"], "units": True}
    assert (
        run("toolsets", "edit", "mine", "--include", "math", "--exclude", "units:convert_units")[0]
        == 0
    )
    assert saved(config)["mine"] == {"math": True, "units": {"exclude": ["convert_units"]}}
    assert run("toolsets", "edit", "mine", "--remove", "units")[0] == 0
    code, out, _ = run("toolsets", "show", "mine", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["tokens"] == sum(each["tokens"] for each in shown["tools"]) > 0
    assert {each["name"].partition(":")[0] for each in shown["tools"]} == {"math"}
    _, out, _ = run("toolsets", "--json")
    assert [each["name"] for each in json.loads(out)] == ["numbers", "mine"]
    assert run("toolsets", "delete", "mine", "--yes")[0] == 0
    assert config.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    "words",
    [
        ["create", "numbers", "--include", "math"],
        ["create", "mine"],
        ["edit", "nmbers", "--include", "math"],
        ["edit", "numbers", "--exclude", "math"],
        ["edit", "numbers", "--remove", "units"],
        ["delete", "numbers"],
        ["delete", "nmbers", "--yes"],
        ["show", "nmbers"],
    ],
)
def test_errors_change_nothing(words: list[str], config: Path, run: Run) -> None:
    before = config.read_bytes()
    assert run("toolsets", *words)[0] == WRONG_USAGE
    assert config.read_bytes() == before


def test_a_server_that_does_not_exist_is_not_saved(config: Path, run: Run) -> None:
    before = config.read_bytes()
    code, _, err = run("toolsets", "create", "mine", "--include", "maths")
    assert code == WRONG_USAGE
    assert "maths" in err
    assert config.read_bytes() == before


def test_a_toolset_that_does_not_match_is_reported(config: Path, run: Run) -> None:
    config.write_text(
        config.read_text(encoding="utf-8").replace('"power"', '"nothing_like_this"'),
        encoding="utf-8",
    )
    code, out, err = run("toolsets", "show", "numbers", "--json")
    assert code == FAILED
    assert "nothing_like_this" in json.loads(out)["problem"]
    assert err


def test_on_a_terminal_it_asks_for_each_server(config: Path, run: Run, typed: Typed) -> None:
    typed("some", "99", "s", "power, 1-2", "", "Powers", "y")
    code, _, err = run("toolsets", "create", "mine")
    assert code == 0, err
    rules = saved(config)["mine"]
    assert list(rules) == ["math"]
    assert len(rules["math"]) == 3
    assert rules["math"][0] == "power"
    assert (
        json.loads(config.read_text(encoding="utf-8"))["tool_sets"]["mine"]["description"]
        == "Powers"
    )


def test_an_edit_starts_from_the_current_rules(config: Path, run: Run, typed: Typed) -> None:
    typed("", "except", "1", "", "")
    assert run("toolsets", "edit", "numbers")[0] == 0
    rules = saved(config)["numbers"]
    assert rules["math"] == CONFIG["tool_sets"]["numbers"]["servers"]["math"]
    assert list(rules["units"]) == ["exclude"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", ["a"]),
        ("2-3", ["b", "c"]),
        ("c, 1", ["c", "a"]),
        ("1 - 2 c", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_tools_by_number_and_by_name(text: str, names: list[str]) -> None:
    assert chosen(text, ["a", "b", "c"]) == names


@pytest.mark.parametrize("text", ["0", "4", "3-2", "x", "1-9"])
def test_tools_that_do_not_exist(text: str) -> None:
    with pytest.raises(UsageError):
        chosen(text, ["a", "b", "c"])


def test_rules_are_changed_in_the_order_remove_include_exclude() -> None:
    rules: dict[str, Any] = {"one": {"exclude": ["a"]}, "two": ["x"], "three": True}
    change(
        rules,
        include=["one:a", "two:y", "three:z", "four"],
        exclude=["two:x", "three:q"],
        remove=["three"],
    )
    assert rules == {"one": {"exclude": []}, "two": ["y"], "three": ["z"], "four": True}


def test_servers_and_tools_can_have_a_colon_in_their_names() -> None:
    rules: dict[str, Any] = {"shop": True}
    change(
        rules,
        include=["plugin:math", "plugin:text:count"],
        exclude=["shop:db:drop"],
        servers=["plugin:math", "plugin:text", "shop"],
    )
    assert rules == {
        "shop": {"exclude": ["db:drop"]},
        "plugin:math": True,
        "plugin:text": ["count"],
    }


@pytest.mark.defect("F23")
@pytest.mark.parametrize("command", ["create", "edit"])
@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["--include", "math:pwer"], "power"),
        (["--exclude", "math:pwer"], "power"),
        (["--include", "mth"], "math"),
        (["--include", "units:nope"], "convert_units"),
    ],
)
def test_unknown_names_are_refused_with_the_closest_ones(
    command: str, words: list[str], nearest: str, config: Path, run: Run
) -> None:
    before = config.read_text(encoding="utf-8")
    code, _, err = run("toolsets", command, "numbers" if command == "edit" else "mine", *words)
    assert code == WRONG_USAGE
    assert nearest in err
    assert config.read_text(encoding="utf-8") == before


@pytest.mark.defect("F23")
def test_a_server_that_does_not_start_is_reported(config: Path, run: Run) -> None:
    missing = {"command": "no-such-program-anywhere"}
    config.write_text(
        json.dumps({**CONFIG, "servers": {**CONFIG["servers"], "broken": missing}}),
        encoding="utf-8",
    )
    code, _, err = run("toolsets", "create", "mine", "--include", "broken:anything")
    assert code == 0
    assert "anything" in err
    assert saved(config)["mine"] == {"broken": ["anything"]}
