"""Each number of the fault matrix has a test, or stands in the list of those that are open.

`python -m pytest tests/house/test_faults.py -s` prints the numbers with their tests.
"""

from __future__ import annotations

from kit.marks import listed, marked

PARTS = {
    "A. Start and connection": range(1, 17),
    "B. Tool calls": range(17, 39),
    "C. Tools, schemas, names, toolsets": range(39, 53),
    "D. Model and chat loop": range(53, 69),
    "E. Cancel, interrupt, kernel": range(69, 76),
    "F. Config and templates": range(76, 81),
    "G. Secrets": range(81, 86),
    "H. Display": range(86, 92),
    "I. Built-in tools": range(92, 100),
    "J. Saved conversations": range(100, 105),
    "K. Consent and supply": range(105, 107),
}
NUMBERS = {number for part in PARTS.values() for number in part}

OPEN = {100, 101, 103, 104, 105, 106}
"""What has no test yet: saving, consent to a server's first start, audit."""


def test_every_number_has_a_test_or_is_open_and_none_is_made_up() -> None:
    tests = marked("fault")
    print(listed(PARTS, tests))
    assert tests.keys() <= NUMBERS, "a test names a number that does not exist"
    assert sorted(NUMBERS - OPEN - tests.keys()) == [], "numbers without a test"
    assert sorted(OPEN & tests.keys()) == [], "numbers that have a test by now: take them out of OPEN"
