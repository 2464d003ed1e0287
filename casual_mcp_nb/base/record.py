"""Frozen dataclasses that are created in a third of the time.

A turn with one call creates about twenty.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["record"]


def _record(cls: type[Any] | None = None, /, *, frozen: bool, **options: Any) -> Any:
    """As `dataclass`, for frozen classes without slots and with positional fields only.

    The `__init__` of a frozen dataclass makes a call for each field, because it goes around
    `__setattr__`. This one writes to `__dict__`.
    """

    def decorate(cls: type[Any]) -> type[Any]:
        frozen_class = dataclasses.dataclass(frozen=frozen, init=False, **options)(cls)
        frozen_class.__init__ = _init_of(frozen_class)
        return frozen_class

    return decorate if cls is None else decorate(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    # A function of this name would be an alias and a function to tools that read the source.
    record = _record


def _init_of(cls: type[Any]) -> Callable[..., None]:
    names: dict[str, Any] = {"_missing": dataclasses.MISSING}
    parameters, lines = ["self"], ["values = self.__dict__"]
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name, default, value = field.name, "", field.name
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"], default = field.default, f"=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"], default = field.default_factory, "=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        parameters.append(f"{name}{default}")
        lines.append(f"values[{name!r}] = {value}")
        annotations[name] = field.type
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    # The names are those of a class body.
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**annotations, "return": None}
    return init
