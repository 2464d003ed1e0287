"""Exercises in a lesson: a function looks at the answers in a notebook, and tells whether they are
right.

    @exercise("3.1")
    def check(query, session):
        if session.search(query)[0].tool.name != "convert_time":
            return "Another tool is first. Which words has its name?"

Its parameters name variables in the notebook. It returns a hint, or nothing if the answer is right.
`%mcp check 3.1` runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.display.words import one_line
from casual_mcp_nb.errors import UnknownNameError

Check = Callable[..., str | None]
_checks: dict[str, Check] = {}
_MAX_REASON = 200


@dataclass(frozen=True, repr=False)
class ExerciseResult:
    """An exercise's result: whether the answer is right, and if not, a hint.

    Attributes:
        name: The exercise.
        is_right: Whether the answer is right. None if there is none yet.
        hint: The missing part, or empty.
    """

    name: str
    is_right: bool | None
    hint: str = ""

    def __repr__(self) -> str:
        if self.is_right:
            return f"✓ {self.name}: right."
        return f"{'○' if self.is_right is None else '✗'} {self.name}: {self.hint}"


def exercise(name: str) -> Callable[[Check], Check]:
    """Register an exercise's check. It replaces an earlier one with this name.

    Args:
        name: Its name, such as `3.1`.

    Returns:
        A decorator for a function. Its parameters name variables in the notebook. It returns a
        hint, or None if the answer is right. An `assert` with a message does the same.
    """

    def register(check: Check) -> Check:
        _checks[name] = check
        return check

    return register


def check_exercise(name: str, variables: Mapping[str, Any]) -> ExerciseResult:
    """Check an exercise's answer, as `%mcp check NAME` does.

    Args:
        name: The exercise.
        variables: The notebook's variables, `globals()`. One that is missing or `...` is not
            answered yet.

    Raises:
        UnknownNameError: No check has that name.
    """
    check = _checks.get(name)
    if check is None:
        raise UnknownNameError("exercise", name, _checks)
    parameters = inspect.signature(check).parameters
    for each in parameters:
        if each not in variables:
            return ExerciseResult(
                name, None, f"there is no variable {each}. Run the cells above first."
            )
        if variables[each] is ...:
            return ExerciseResult(name, None, f"not answered yet. Replace the dots of {each}.")
    try:
        hint = check(**{each: variables[each] for each in parameters})
    except AssertionError as error:
        hint = str(error) or "That is not right yet."
    except Exception as error:  # the check runs on any answer
        # A KeyError's text is quoted.
        text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        reason = f"{type(error).__name__}: {one_line(text)[:_MAX_REASON]}"
        hint = f"your answer could not be used. {reason}"
    return ExerciseResult(name, not hint, hint or "")
