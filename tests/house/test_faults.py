"""Each number of the fault matrix, `faults.md`, has a test, or stands in the list of those that are
open.

`python -m pytest tests/house/test_faults.py -s` prints the numbers with their tests.
"""

from __future__ import annotations

from pathlib import Path

from kit.marks import listed, marked, parts

PARTS = {
    part: [int(number) for number in numbers]
    for part, numbers in parts(Path(__file__).with_name("faults.md"), r"\*\*(\d+)\.").items()
}
NUMBERS = {number for part in PARTS.values() for number in part}

OPEN = {100, 101, 103, 104}
"""What has no test yet: saving."""


def test_every_number_has_a_test_or_is_open_and_none_is_made_up() -> None:
    tests = marked("fault")
    print(listed(PARTS, tests))
    assert tests.keys() <= NUMBERS, "a test names a number that does not exist"
    assert sorted(NUMBERS - OPEN - tests.keys()) == [], "numbers without a test"
    assert sorted(OPEN & tests.keys()) == [], (
        "numbers that have a test by now: take them out of OPEN"
    )
