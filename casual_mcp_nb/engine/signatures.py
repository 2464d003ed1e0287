"""Signatures that list the options behind `**options`, with a check of their names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, Never, ParamSpec, TypeVar, cast

from casual_mcp_nb.base.model_options import in_order
from casual_mcp_nb.errors import UnknownNameError

P = ParamSpec("P")
T = TypeVar("T")


def spelled_out(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Create a decorator that lists the options of `**options: Unpack[options]` in a method's signature.

    `?` and completion then show them, and any other keyword argument raises `UnknownNameError` at the call, before anything
    has begun.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        signature = _spelled_out(inspect.signature(method), options)
        names = [name for name, parameter in signature.parameters.items() if parameter.kind is not parameter.POSITIONAL_ONLY]
        names = names[1:] if names[:1] == ["self"] else names
        option_names = frozenset(names)

        def refuse(kwargs: Mapping[str, Any]) -> Never:
            raise UnknownNameError("option", next(name for name in kwargs if name not in option_names), names)

        @functools.wraps(method)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            if not option_names.issuperset(kwargs):
                refuse(kwargs)
            return method(*args, **kwargs)

        @functools.wraps(method)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            if not option_names.issuperset(kwargs):
                refuse(kwargs)
            return await cast("Any", method)(*args, **kwargs)

        # A coroutine function must be recognisable as one.
        decorated: Any = awaited if inspect.iscoroutinefunction(method) else called
        decorated.__signature__ = signature
        return cast("Callable[P, T]", decorated)

    return decorate


def _spelled_out(signature: inspect.Signature, options: type[Any]) -> inspect.Signature:
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_plain(annotation))
        for name, annotation in in_order(options).items()
        if name not in signature.parameters
    ]
    return signature.replace(parameters=[*own, *listed])


def _plain(annotation: Any) -> Any:
    annotation = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
