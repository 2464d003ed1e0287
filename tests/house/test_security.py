"""SECURITY.md says for each promise which test shows it: these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
MODEL = TEXT.partition("## Who can do what")[2].partition("\n## ")[0]
NAMED = re.findall(r"`((?:\w+/)+test_\w+\.py)(?:::(test_\w+))?`", MODEL)


def test_each_promise_names_a_test_that_exists() -> None:
    rows = [line.strip("| ").split(" | ") for line in MODEL.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if row[1] != "promised"]
    assert len(promises) > 30
    assert [row for row in promises if len(row) != 3 or "/test_" not in row[2]] == []
    missing = [
        f"{file}::{name}"
        for file, name in NAMED
        if not (TESTS / file).is_file()
        or (name and f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_each_party_has_what_is_not_promised() -> None:
    _, *parties = MODEL.split("\n### ")
    assert len(parties) == 8
    assert [party.splitlines()[0] for party in parties if "\nNot promised: " not in party] == []
    assert [
        party.splitlines()[0] for party in parties if "| promised | shown by |" not in party
    ] == []
