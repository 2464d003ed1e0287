"""YAML 1.2: what a scalar means, and that a written value is read again as it was."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

import casual_mcp_nb
from casual_mcp_nb.base.yaml_text import MAX_CHARACTERS, YamlError, read_yaml, write_yaml
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.experiments.case_files import load_tool_cases, save_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.matchers import Near

pytestmark = pytest.mark.defect("P8")

TEXTS = [
    "14:30",
    "190:20:30",
    "no",
    "No",
    "yes",
    "on",
    "off",
    "y",
    "1_000",
    "0b11",
    "2026-11-28",
    "2026-11-28T10:00:00Z",
    "<<",
]
TEXTS += ["=", "1.5.2", "+.", "1e", "0x", "0o8", "nUll", "tRue", "12-13", ".5.", "1__0.5"]
VALUES: dict[str, Any] = {
    "0o17": 15,
    "0x1F": 31,
    "017": 17,
    "+12": 12,
    "-0": 0,
    "1e3": 1000.0,
    ".5": 0.5,
    "1.": 1.0,
    "1.5E-2": 0.015,
}
VALUES |= {
    "~": None,
    "null": None,
    "": None,
    "true": True,
    "FALSE": False,
    ".inf": math.inf,
    "-.INF": -math.inf,
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_only_yaml_1_1_takes_for_another_value_is_a_text(text: str) -> None:
    assert read_yaml(f"a: {text}")[0] == {"a": text}


@pytest.mark.parametrize("text", VALUES)
def test_a_scalar_of_the_core_schema_has_its_value(text: str) -> None:
    (value,) = read_yaml(f"- {text}")[0]
    assert (type(value), value) == (type(VALUES[text]), VALUES[text])
    assert math.isnan(read_yaml("- .nan")[0][0])


@pytest.mark.parametrize(
    "value",
    [
        *TEXTS,
        *filter(None, VALUES),
        "",
        " ",
        "#",
        "a: b",
        "[1]",
        "*a",
        "&a",
        "!a",
        "é\u2028\x85",
        "a\nb",
        "a\r\nb\rc\n",
        "\ud800",
        "\x00\x7f",
        "\ufeff",
        "\U0001f600",
    ],
)
def test_a_written_text_is_read_again_by_readers_of_both_versions(value: str) -> None:
    text = write_yaml({"a": [value]})
    assert read_yaml(text)[0] == yaml.safe_load(text) == {"a": [value]}


@pytest.mark.parametrize(
    "value", [1, -1.5, 1e300, 1e17, 10**30, True, None, math.inf, {"a": [{}, []]}]
)
def test_other_values_are_read_again_too(value: Any) -> None:
    assert read_yaml(write_yaml([value, value]))[0] == [value, value]


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x",
        "- !!python/name:os.system ",
        "- !!int 14:30",
        "[" * 5_000,
        "a" * (MAX_CHARACTERS + 1),
    ],
)
def test_what_is_dangerous_or_too_large_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        read_yaml(text)


CASES = """
- message: When does the train leave at 14:30?
  calls:
  - tool: trains:find
    arguments: {time: 14:30, country: no, mode: 0o17, budget: 1_000, day: 2026-11-28, price: {$near: 1e3}}
  answer: 14:30
  metadata: {country: no}
  tags: [off, 12:00]
"""


def test_a_case_file_keeps_texts(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASES)
    (case,) = load_tool_cases(path)
    given = {
        "time": "14:30",
        "country": "no",
        "mode": 15,
        "budget": "1_000",
        "day": "2026-11-28",
        "price": Near(1000.0),
    }
    assert case.calls[0].arguments == given
    assert (case.answer, case.metadata, case.tags) == ("14:30", {"country": "no"}, ("off", "12:00"))
    (again,) = load_tool_cases(save_tool_cases([case], tmp_path / "again.yml"))
    assert again.plain() == case.plain()


def test_a_text_that_looks_like_a_number_stays_one_in_a_file(tmp_path: Path) -> None:
    case = ToolUseCase("Go", [("a:b", {text: text for text in (*TEXTS, *filter(None, VALUES))})])
    (again,) = load_tool_cases(save_tool_cases([case], tmp_path / "cases.yaml"))
    assert again.calls == case.calls


def test_a_file_of_pydantic_evals_and_one_of_a_host_have_the_same_rules(tmp_path: Path) -> None:
    (tmp_path / "evals.yaml").write_text(
        "cases:\n- name: 12:30\n  inputs: At 12:30?\n  evaluators: [{ToolCorrectness: [a]}]\n "
        " metadata: {country: no}\n"
    )
    (case,) = load_tool_cases(tmp_path / "evals.yaml")
    assert (case.id, case.metadata) == ("12:30", {"country": "no"})
    (tmp_path / "host.yaml").write_text(
        "mcpServers:\n  clock:\n    command: clock\n    args: [12:30, no, 1_000]\n"
    )
    config = load_config(tmp_path / "host.yaml", environ={})
    assert config.servers["clock"].args == ("12:30", "no", "1_000")


def test_one_module_reads_yaml() -> None:
    root = Path(casual_mcp_nb.__file__).parent
    places = [
        path.relative_to(root)
        for path in root.rglob("*.py")
        if "import yaml" in path.read_text(encoding="utf-8")
    ]
    assert [str(each) for each in places] == [str(Path("base", "yaml_text.py"))]
