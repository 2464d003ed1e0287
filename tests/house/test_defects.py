"""Each defect of `defects.md` that was seen and repaired has a test that was red before.

`python -m pytest tests/house/test_defects.py -s` prints the numbers with their tests.
"""

from __future__ import annotations

from pathlib import Path

from kit.marks import listed, marked, parts

PARTS = parts(Path(__file__).with_name("defects.md"), r"- ([A-HJ-NPQ]\d+)\.")
NUMBERS = {number for part in PARTS.values() for number in part}

OPEN: set[str] = set()
"""What has no test yet."""


def test_every_number_has_a_test_or_is_open_and_none_is_made_up() -> None:
    tests = marked("defect")
    print(listed(PARTS, tests))
    assert tests.keys() <= NUMBERS, "a test names a number that does not exist"
    assert sorted(NUMBERS - OPEN - tests.keys()) == [], "numbers without a test"
    assert sorted(OPEN & tests.keys()) == [], (
        "numbers that have a test by now: take them out of OPEN"
    )
