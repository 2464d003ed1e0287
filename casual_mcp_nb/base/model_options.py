"""A model call's options, each declared once with its type and its magic syntax.

Imports nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, get_args

# No postponed annotations, because the metadata in `Annotated` is read.

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


Delivery = Literal["definitions", "native", "bridge", "code"]
"""How a step received search results.

- `definitions`: their definitions are added to the request's.
- `native`: the provider adds them to the conversation, behind the search that found them.
- `bridge`: the search's result has their schemas, and the model calls them through `call_tool`.
- `code`: there are no definitions. The model reads signatures, and writes programs that call the
  tools as functions.
"""

DeliverySetting = Literal["auto", Delivery]
"""The person's setting.

`auto` is `native` where the model is known to support it, otherwise `definitions`.
"""

DELIVERY_SETTINGS: tuple[DeliverySetting, ...] = ("auto", *get_args(Delivery))


@dataclass(frozen=True)
class Flag:
    """An option's syntax in a magic line.

    It has a flag, if that differs from the option's name, and `takes` an argument, which is `read`.
    Otherwise, it has a `value`. A whole number can have a `least` value, which is checked wherever
    the option is given.
    """

    help: str
    takes: str = ""
    read: Callable[[str], Any] = str
    name: str = ""
    value: Any = None
    least: int | None = None


class ModelOptions(TypedDict, total=False):
    """`RequestOptions` as one call's keyword arguments. None means the model's own value."""

    temperature: Annotated[
        float | None, Flag("how freely the model chooses its words", "NUMBER", float)
    ]
    max_tokens: Annotated[int | None, Flag("maximum tokens per answer", "N", int)]
    top_p: Annotated[
        float | None,
        Flag("sample from the likeliest tokens up to this total probability", "NUMBER", float),
    ]
    seed: Annotated[int | None, Flag("make answers repeatable, if the provider can", "N", int)]
    stop: Annotated[str | Sequence[str] | None, Flag("end the answer at this text", "TEXT")]
    tool_choice: Annotated[
        str | None, Flag("auto, none, required, or the tool that the first step calls", "NAME")
    ]
    parallel_tool_calls: bool | None
    reasoning_effort: Annotated[
        ReasoningEffort | None,
        Flag("how much the model thinks before it answers", "|".join(get_args(ReasoningEffort))),
    ]
    extra_body: Mapping[str, Any] | None
    extra_headers: Mapping[str, str] | None


def flags_of(options: type[Any]) -> dict[str, tuple[str, Flag]]:
    """Find a TypedDict's options that a line can contain: name and syntax, by flag."""
    flags: dict[str, tuple[str, Flag]] = {}
    for option, annotation in in_order(options).items():
        if hasattr(annotation, "__metadata__"):
            flag: Flag = annotation.__metadata__[0]
            flags[flag.name or f"--{option.replace('_', '-')}"] = option, flag
    return flags


def in_order(options: type[Any]) -> dict[str, Any]:
    """Order a TypedDict's annotations: turn options come before those passed to the model."""
    names = sorted(options.__annotations__, key=lambda name: name in ModelOptions.__annotations__)
    return {name: options.__annotations__[name] for name in names}
