"""The lint of a catalog: defects that make tools hard to find, or expensive."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.experiments.lint import lint

TEXT = (
    "Read a file from the disk and give back what stands in it, as text, with the line ends that it"
    " has."
)
PATH = {"properties": {"path": {"type": "string", "description": "Which file."}}}


def findings_of(*tools: ToolSpec) -> list[tuple[str, str, str]]:
    return [(finding.kind, str(finding.tool), finding.text) for finding in lint(tools)]


def test_a_good_catalog_has_no_findings() -> None:
    tools = [
        ToolSpec("files", "read_file", TEXT, PATH),
        ToolSpec("files", "remove_file", "Delete a file.", PATH),
    ]
    report = lint(tools)
    assert (list(report), report.tools, report.by_kind(), report.rows()) == ([], 2, {}, [])
    assert "No findings." in str(report)


def test_tools_that_no_query_can_tell_apart_are_named_once_for_a_pair() -> None:
    tools = [
        ToolSpec("files", "read_file", TEXT, PATH),
        ToolSpec("disk", "read_file", TEXT + " Now!", PATH),
        ToolSpec("other", "fetch", "Fetch a page."),
    ]
    (finding,) = lint(tools)
    assert (finding.kind, finding.tool) == ("same text", ToolName("disk", "read_file"))
    assert finding.others == (ToolName("files", "read_file"),)
    assert "files:read_file" in finding.text


def test_a_word_missing_in_the_other_tools_name_distinguishes_them() -> None:
    text = f"{TEXT} A tool of many uses for people who work with files."
    assert (
        findings_of(
            ToolSpec("charts", "violin_file", text), ToolSpec("charts", "boxplot_file", text)
        )
        == []
    )


@pytest.mark.parametrize(
    ("tool", "kind", "parts"),
    [
        (
            ToolSpec("s", "t", " \n"),
            "no description",
            (),
        ),
        (
            ToolSpec(
                "s",
                "t",
                "Moor a boat at the quay.",
                {"properties": {"a": {}, "b": True, "c": {"description": "C."}}},
            ),
            "parameter without description",
            (": a, b.",),
        ),
        (
            ToolSpec(
                "s",
                "t",
                "Moor a boat at the quay.",
                {"properties": {f"p{n}": {} for n in range(9)}},
            ),
            "parameter without description",
            (": p0, p1, p2, p3, p4, 4 more.",),
        ),
        (
            ToolSpec("s", "t", "Word by word. " * 200),
            "long description",
            ("≈ 737", "≈ 761"),
        ),
        (
            ToolSpec("s" * 40, "t" * 30, "Moor a boat at the quay."),
            "name",
            ("72", "64", f" {ToolSpec('s' * 40, 't' * 30).wire_name}."),
        ),
    ],
)
def test_each_fault_is_found(tool: ToolSpec, kind: str, parts: tuple[str, ...]) -> None:
    # What other hosts do with a long text or name has its own tests.
    found = [finding for finding in findings_of(tool) if finding[0] != "host"]
    assert [finding[:2] for finding in found] == [(kind, str(tool.tool_name))]
    assert [part for part in parts if part not in found[0][2]] == []


@pytest.mark.parametrize(
    "schema", [{}, {"properties": None}, {"properties": [1]}, {"properties": {}}]
)
def test_odd_schemas_do_no_harm(schema: dict[str, object]) -> None:
    found = findings_of(ToolSpec("s", "t", "Moor a boat at the quay.", schema))
    assert [finding for finding in found if finding[0] != "provider"] == []
    # A provider refuses properties that are no object.
    assert bool(found) == (not isinstance(schema.get("properties", {}), dict))


def test_findings_are_sorted_by_kind_and_shown_in_every_form() -> None:
    tools = [
        ToolSpec("s", "x" * 70, ""),
        ToolSpec("a", "read", TEXT, {"properties": {"p": {}}}),
        ToolSpec("b", "read", TEXT),
    ]
    report = lint(tools)
    assert list(report.by_kind()) == [
        "no description",
        "parameter without description",
        "name",
        "provider",
        "host",
    ]
    for form in report._repr_mimebundle_().values():
        for text in (
            "No description",
            "Parameter without description",
            "Name",
            "a:read",
            "6 findings in 3 tools",
        ):
            assert text in form
    assert report.rows()[1] == {
        "kind": "parameter without description",
        "server": "a",
        "tool": "read",
        "text": "No description: p.",
        "others": "",
    }
    assert repr(report) == "<Lint: 6 findings in 3 tools>"


def test_thousands_of_equal_tools_each_name_the_first() -> None:
    report = lint([ToolSpec(f"server{n}", "read", TEXT) for n in range(5_000)])
    assert len(report) == 4_999
    assert {finding.others for finding in report} == {(ToolName("server0", "read"),)}


@pytest.mark.slow
def test_ten_thousand_tools_are_looked_through_and_shown_small() -> None:
    report = lint(
        [
            ToolSpec(
                f"server{n % 100}", f"tool{n}", f"Does thing number {n}.", {"properties": {"p": {}}}
            )
            for n in range(10_000)
        ]
    )
    assert len(report.by_kind()["parameter without description"]) == 10_000
    assert sum(len(form.encode()) for form in report._repr_mimebundle_().values()) <= 64 * 1024


def test_descriptions_that_say_nothing_are_reported() -> None:
    tools = [
        ToolSpec("math", "convert_base", "Does the conversion.", PATH),
        ToolSpec("math", "run", "Runs this operation.", PATH),
        ToolSpec("math", "power", "Raise a number to an exponent.", PATH),
    ]
    assert [kind for kind, *_ in findings_of(*tools)] == ["generic description"] * 2


def test_a_tool_that_its_name_does_not_find_is_reported_with_those_before_it() -> None:
    words = ["wind", "depth", "crew", "berth", "light", "buoy"]
    near = [
        ToolSpec(word, "tide_report", f"Tell the {word} at the tide station on a day.", PATH)
        for word in words
    ]
    hidden = ToolSpec(
        "office",
        "report_tide",
        "Print a sheet of paper for the archive of the town, with a stamp.",
        PATH,
    )
    findings = [finding for finding in lint([*near, hidden]) if finding.kind == "hard to find"]
    # All seven have the same two words in their names, and a search returns five.
    assert 0 < len(findings) <= 2
    assert {(finding.tool.tool, len(finding.others)) for finding in findings} == {
        ("tide_report", 5)
    }
    assert all(finding.tool not in finding.others for finding in findings)
