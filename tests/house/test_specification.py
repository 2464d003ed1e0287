"""The specification's table names tests that exist, each room of tests, and decisions that exist;
and these have an index.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

TEXT = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
NAMED = re.findall(r"`((?:\w+/)+test_\w+\.py)(?:::(test_\w+))?`", TEXT)


def test_every_test_that_it_names_exists() -> None:
    assert len(NAMED) > 100
    missing = [file for file, _ in NAMED if not (TESTS / file).is_file()]
    assert not missing
    functions = [(file, name) for file, name in NAMED if name]
    assert not [
        name
        for file, name in functions
        if f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]


def test_every_room_of_tests_is_named() -> None:
    rooms = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert sorted(rooms - {file.rpartition("/")[0] for file, _ in NAMED}) == []


def test_every_row_names_a_test_or_a_reason() -> None:
    promised, _, differs = TEXT.partition("## What differs on purpose")
    rows = [
        line
        for line in promised.splitlines()
        if line.startswith("| ") and not line.startswith("| Feature |")
    ]
    assert [
        row for row in rows if not re.search(r"`\w+/test_\w+\.py`", row.rpartition(" | ")[2])
    ] == []
    reasons = [
        line.strip("| ").split(" | ") for line in differs.splitlines() if line.startswith("| ")
    ]
    assert [row for row in reasons if len(row) != 3 or not all(row)] == []


def test_every_page_that_it_links_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).is_file()]


def test_every_decision_has_a_date_and_a_status_and_is_in_the_index_once() -> None:
    folder = ROOT / "docs" / "decisions"
    decisions = sorted(folder.glob("[0-9]*.md"))
    titles = {}
    for path in decisions:
        title, empty, status = path.read_text(encoding="utf-8").splitlines()[:3]
        assert not empty
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d, (accepted|superseded (in part )?by \[.+\]\(\d{4}-.+\.md\))", status
        ), path.name
        titles[path.name] = title.removeprefix("# ")
    index = re.findall(
        r"^- \[(.+)\]\((.+)\)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted((name, title) for title, name in index) == sorted(titles.items())
