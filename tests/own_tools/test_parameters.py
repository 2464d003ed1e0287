"""A function's parameters as a model reads them, and the arguments that it may write."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from casual_mcp_nb import Inject, ToolContext
from casual_mcp_nb.errors import ToolCallError, UsageError
from casual_mcp_nb.own_tools.parameters import InvalidArgumentsError
from casual_mcp_nb.own_tools.toolbox import read_tool

CONTEXT = ToolContext(lambda *_: None, lambda *_: None)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    name: str
    born: date


@dataclass
class Point:
    x: int
    y: int = 0


class Frame:
    """A type without a JSON form."""


def run(function: Any, arguments: dict[str, Any], **options: Any) -> Any:
    return read_tool(function, "notebook", **options).start(arguments, CONTEXT)()


def schema(function: Any, **options: Any) -> dict[str, Any]:
    return dict(read_tool(function, "notebook", **options).spec.input_schema)


def test_hints_defaults_and_docstring_become_a_schema() -> None:
    def total(
        numbers: list[int], colour: Colour = Colour.RED, *, how: Literal["sum", "max"] = "sum"
    ) -> int:
        """Add up numbers.

        Slowly.

        Args:
            numbers: What to add.
            colour: Of the result.
        """
        return sum(numbers)

    tool = read_tool(total, "notebook")
    assert tool.spec.name == "total"
    assert tool.spec.description == "Add up numbers.\n\nSlowly."
    parameters = tool.spec.input_schema
    assert parameters["required"] == ["numbers"]
    assert parameters["properties"]["numbers"] == {
        "type": "array",
        "items": {"type": "integer"},
        "description": "What to add.",
    }
    assert parameters["properties"]["colour"]["default"] == "red"
    assert parameters["properties"]["how"] == {
        "enum": ["sum", "max"],
        "type": "string",
        "default": "sum",
    }
    assert parameters["$defs"]["Colour"]["enum"] == ["red", "blue"]


@pytest.mark.parametrize(
    ("hint", "written", "value"),
    [
        (
            Person,
            {"name": "Ada", "born": "1815-12-10"},
            Person(name="Ada", born=date(1815, 12, 10)),
        ),
        (Point, {"x": 3}, Point(3, 0)),
        (Colour, "blue", Colour.BLUE),
        (set[int], [1, 2, 2], {1, 2}),
        (date, "2026-11-22", date(2026, 11, 22)),
        (Annotated[int, Field(ge=1)], 3, 3),
        (int | None, None, None),
    ],
)
def test_arguments_arrive_in_the_types_of_the_parameters(
    hint: Any, written: Any, value: Any
) -> None:
    def echo(thing: Any) -> Any:
        return thing

    echo.__annotations__["thing"] = hint
    assert run(echo, {"thing": written}) == value


def test_each_wrong_argument_is_told_to_the_model() -> None:
    def area(width: int, height: int) -> int:
        return width * height

    with pytest.raises(InvalidArgumentsError) as failure:
        run(area, {"width": "wide", "heigth": 3})
    text = str(failure.value)
    assert all(name in text for name in ("width", "heigth", "height is required"))


def test_injected_parameters_are_in_no_schema_and_no_model_can_set_them() -> None:
    def rows(
        table: str, db: Annotated[Frame, Inject("connection")], frame: Frame, context: ToolContext
    ) -> Any:
        return table, db, frame, context

    given = {"connection": Frame(), "frame": Frame()}
    tool = read_tool(rows, "notebook", inject=given)
    assert list(tool.spec.input_schema["properties"]) == ["table"]
    assert tool.start({"table": "t"}, CONTEXT)() == (
        "t",
        given["connection"],
        given["frame"],
        CONTEXT,
    )
    with pytest.raises(InvalidArgumentsError):
        tool.start({"table": "t", "frame": "mine"}, CONTEXT)


def test_a_marked_parameter_is_filled_from_the_context_of_the_call() -> None:
    def mine(
        user: Annotated[str, Inject("user_id")], limit: Annotated[int, Inject] = 3
    ) -> tuple[str, int]:
        return user, limit

    tool = read_tool(mine, "notebook")
    assert tool.spec.input_schema["properties"] == {}
    of = ToolContext(lambda *_: None, lambda *_: None, {"user_id": "ada", "other": 1})
    assert tool.start({}, of)() == ("ada", 3)
    with pytest.raises(ToolCallError, match="user_id"):
        tool.start({}, CONTEXT)
    with pytest.raises(InvalidArgumentsError):
        tool.start({"user": "eve"}, of)


def variadic(*numbers: int) -> None: ...
def unfillable(frame: Frame) -> None: ...
def marked(db: Annotated[Frame, Inject("connection")]) -> None: ...
def clashing(connection: str, db: Annotated[Frame, Inject("connection")]) -> None: ...
def unresolved(value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "inject"),
    [
        (variadic, {}),
        (unfillable, {}),
        (clashing, {}),
        (marked, {"connection": 1, "db": 2}),
        (unfillable, {"frame": 1, "other": 2}),
        (unresolved, {}),
        (lambda value: value, {}),
        (3, {}),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_added(
    function: Any, inject: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        read_tool(function, "notebook", inject=inject)


def test_methods_partial_positions_and_callables_are_tools() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, by: int, /, times: int = 1) -> int:
            """Count."""
            self.count += by * times
            return self.count

        def __call__(self, by: int) -> int:
            return self.add(by)

    counter = Counter()
    assert run(counter.add, {"by": 2, "times": 3}) == 6
    assert run(counter, {"by": 1}, name="count") == 7
    assert list(schema(counter.add)["properties"]) == ["by", "times"]


@pytest.mark.defect("J3")
def test_a_field_gives_alias_default_and_limits() -> None:
    def act(
        city: Annotated[str, Field(alias="cityName", description="Where.")],
        tags: Annotated[list[int], Field(default_factory=lambda: [1])],
        days: int = Field(default=3, ge=1, alias="dayCount"),
        more: list[int] = Field(default_factory=list, max_length=2),  # noqa: B008
        plain: Annotated[int, Field(le=5)] = 4,
    ) -> tuple[Any, ...]:
        return city, tags, days, more, plain

    read = schema(act)
    assert list(read["properties"]) == ["cityName", "tags", "dayCount", "more", "plain"]
    assert read["required"] == ["cityName"]
    assert read["properties"]["cityName"] == {"type": "string", "description": "Where."}
    assert read["properties"]["dayCount"] == {"type": "integer", "minimum": 1, "default": 3}
    assert read["properties"]["plain"] == {"type": "integer", "maximum": 5, "default": 4}
    assert "default" not in read["properties"]["tags"]
    assert run(act, {"cityName": "Oslo"}) == ("Oslo", [1], 3, [], 4)
    assert run(act, {"cityName": "Oslo", "tags": [], "dayCount": "2", "more": [1]}) == (
        "Oslo",
        [],
        2,
        [1],
        4,
    )
    for wrong in (
        {"city": "Oslo"},
        {"cityName": "Oslo", "dayCount": 0},
        {"cityName": "Oslo", "more": [1, 2, 3]},
    ):
        with pytest.raises(InvalidArgumentsError):
            run(act, wrong)


@pytest.mark.defect("J3")
def test_a_default_without_json_is_not_in_the_schema() -> None:
    def act(least: float = float("-inf"), most: float = float("nan")) -> float:
        return least

    assert [set(each) for each in schema(act)["properties"].values()] == [{"type"}] * 2
    assert run(act, {}) == float("-inf")


@pytest.mark.defect("J3")
def test_two_parameters_with_one_alias_are_refused() -> None:
    def act(a: Annotated[int, Field(alias="b")], b: int) -> None: ...

    with pytest.raises(UsageError):
        schema(act)
