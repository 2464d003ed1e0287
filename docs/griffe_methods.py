"""Document methods derived from others, as in `search_async = awaited(search)`."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class MadeMethods(griffe.Extension):
    """Add `name_async` with the signature and docstring of `name`, which griffe does not see
    otherwise.
    """

    def on_class_members(self, *, node: Any, cls: griffe.Class, **_: Any) -> None:
        """Add such methods to a class that was read from its source."""
        for each in node.body if isinstance(node, ast.ClassDef) else []:
            match each:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="awaited"))
                ):
                    self._add(cls, name)

    def _add(self, cls: griffe.Class, name: str) -> None:
        core = cls.members.get(name.removesuffix("_async"))
        if isinstance(core, griffe.Function) and core.docstring:
            # It is written as a coroutine, and blocks.
            core.labels.discard("async")
            method = griffe.Function(
                name, parameters=core.parameters, returns=core.returns, lineno=core.lineno
            )
            text = core.docstring
            method.docstring = griffe.Docstring(
                text.value,
                lineno=text.lineno,
                parent=method,
                parser=text.parser,
                parser_options=text.parser_options,
            )
            method.labels.add("async")
            cls.set_member(name, method)
