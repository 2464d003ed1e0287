"""A template that does not end, or makes too much, costs an error with file and line, and holds
nobody up.
"""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest
from kit.loop_guard import LoopGuard

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.errors import TemplateError

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LONG = {
    "loops": LOOPS,
    "loops that are included": "{% include 'loops' %}",
    "text of a gigabyte": "{{ 'x' * 10**9 }}",
    "text of a gigabyte, computed": "{% set n = 10**9 %}{{ 'x' * n }}",
    "format of a gigabyte": "{{ '%1000000000s' % 'x' }}",
    "filter of a gigabyte": "{{ '%1000000000s' | format('x') }}",
    "padding of a gigabyte": "{{ 'x'.center(10**9) }}",
}


def library(folder: Path, **templates: str) -> TemplateLibrary:
    for name, text in templates.items():
        (folder / f"{name}.j2").write_text(text, encoding="utf-8")
    return TemplateLibrary([folder])


@pytest.mark.defect("B2")
@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
async def test_a_template_that_takes_too_much_is_stopped_and_named_with_file_and_line(
    tmp_path: Path, text: str
) -> None:
    templates = library(tmp_path, a=f"first\n{text}", loops=f"\n\n{LOOPS}", fine="{{ 1 + 1 }}")
    guard = LoopGuard()
    guard.start()
    try:
        with pytest.raises(TemplateError) as caught:
            await templates.render_async("a", tools=[])
    finally:
        guard.stop()
    assert not guard.take()
    where = (str(tmp_path / "loops.j2"), 3) if "include" in text else (str(tmp_path / "a.j2"), 2)
    assert (caught.value.path, caught.value.line) == where
    assert await templates.render_async("fine", tools=[]) == "2"


@pytest.mark.defect("B2")
def test_a_template_that_cannot_be_interrupted_is_killed_and_named_with_its_file(
    tmp_path: Path,
) -> None:
    with pytest.raises(TemplateError) as caught:
        library(tmp_path, a="{{ 7 ** (7 ** 9) }}").render("a", tools=[])
    assert caught.value.path == str(tmp_path / "a.j2")


@pytest.mark.defect("B2")
def test_a_prompt_has_a_limit_of_length(tmp_path: Path) -> None:
    templates = library(tmp_path, long="{{ 'x' * 1000000 }}", longer="{{ 'x' * 1000001 }}")
    assert len(templates.render("long", tools=[])) == 1_000_000
    with pytest.raises(TemplateError) as caught:
        templates.render("longer", tools=[])
    assert caught.value.path == str(tmp_path / "longer.j2")


def test_a_template_can_include_only_so_many_others(tmp_path: Path) -> None:
    templates = library(
        tmp_path,
        a="{% for n in range(60) %}{% include 't%d' % n %}{% endfor %}",
        **{f"t{n}": "x" for n in range(60)},
    )
    with pytest.raises(TemplateError) as caught:
        templates.render("a", tools=[])
    assert caught.value.path == str(tmp_path / "a.j2")


@dataclasses.dataclass
class Person:
    name: str


def test_variables_are_seen_as_json_has_them(tmp_path: Path) -> None:
    templates = library(
        tmp_path, a="{{ p.name }}|{{ day }}|{{ path }}|{{ many | join(',') }}|{{ odd }}"
    )

    class Odd:
        def __str__(self) -> str:
            return "odd one"

    values: dict[str, Any] = {
        "p": Person("Ada"),
        "day": datetime.date(2026, 1, 2),
        "path": Path("/x"),
        "many": (1, 2),
        "odd": Odd(),
    }
    assert templates.render("a", tools=[], variables=values) == "Ada|2026-01-02|/x|1,2|odd one"


async def test_rendered_text_is_cached_while_nothing_changes(tmp_path: Path) -> None:
    templates = library(tmp_path, a="{{ tools | length }}")
    tools = (ToolSpec("time", "now"),)
    assert {await templates.render_async("a", tools=tools) for _ in range(3)} == {"1"}
    waiting = templates.render_async("a", tools=tools)
    with pytest.raises(StopIteration) as given:
        waiting.send(None)
    assert given.value.value == "1"
