"""Signatures that spell out the options behind `**options`, and one check of their names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, ParamSpec, TypeVar, cast

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.model_options import in_order

P = ParamSpec("P")
T = TypeVar("T")


def spelled_out(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Spell out what a method takes as `**options: Unpack[options]`.

    Its signature lists them, for `?` and for completion, and a name that is not among them is an `UnknownNameError` at the
    call, before anything has begun. The names are also those of the method's other keyword arguments.

    Args:
        options: A TypedDict.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        signature = _spelled_out(inspect.signature(method), options)
        names = [name for name, parameter in signature.parameters.items() if parameter.kind is not parameter.POSITIONAL_ONLY]
        names = names[1:] if names[:1] == ["self"] else names

        def check(given: Mapping[str, Any]) -> None:
            for name in given:
                if name not in names:
                    raise UnknownNameError("option", name, names)

        @functools.wraps(method)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            check(kwargs)
            return method(*args, **kwargs)

        @functools.wraps(method)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(kwargs)
            return await cast("Any", method)(*args, **kwargs)

        # What is awaited must be recognisable as a coroutine function.
        made: Any = awaited if inspect.iscoroutinefunction(method) else called
        made.__signature__ = signature
        return cast("Callable[P, T]", made)

    return decorate


def _spelled_out(signature: inspect.Signature, options: type[Any]) -> inspect.Signature:
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    spelled = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_written(annotation))
        for name, annotation in in_order(options).items()
        if name not in signature.parameters
    ]
    return signature.replace(parameters=[*own, *spelled])


def _written(annotation: Any) -> Any:
    annotation = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
