"""Each defect that was seen and repaired has a test that was red before.

`python -m pytest tests/house/test_defects.py -s` prints the numbers with their tests.
"""

from __future__ import annotations

from kit.marks import listed, marked

PARTS = {
    "A. Something wrong is kept, lost, or runs that must not": [f"A{i}" for i in range(1, 14)],
    "B. Something hangs, floods or grows": [f"B{i}" for i in range(1, 12)],
    "C. The person or the model is told something false": [f"C{i}" for i in range(1, 19)],
    "D. Providers": [f"D{i}" for i in range(1, 18)],
    "E. The protocol": [f"E{i}" for i in range(1, 9)],
}
NUMBERS = {number for part in PARTS.values() for number in part}

OPEN: set[str] = set()
"""What has no test yet."""


def test_every_number_has_a_test_or_is_open_and_none_is_made_up() -> None:
    tests = marked("defect")
    print(listed(PARTS, tests))
    assert tests.keys() <= NUMBERS, "a test names a number that does not exist"
    assert sorted(NUMBERS - OPEN - tests.keys()) == [], "numbers without a test"
    assert sorted(OPEN & tests.keys()) == [], "numbers that have a test by now: take them out of OPEN"
