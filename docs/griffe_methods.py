"""Show the methods that are made from a coroutine, as in `search, search_async = blocking(_search), awaited(_search)`."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class MadeMethods(griffe.Extension):
    """Add `name` and `name_async` with the signature and docstring of `_name`, which griffe does not see otherwise."""

    def on_class_members(self, *, node: Any, cls: griffe.Class, **_: Any) -> None:
        """Add such methods to a class that was read from its source."""
        statements = node.body if isinstance(node, ast.ClassDef) else []
        targets = [target for each in statements if isinstance(each, ast.Assign) for target in each.targets]
        for target in targets:
            for element in target.elts if isinstance(target, ast.Tuple) else []:
                self._add(cls, element)

    def _add(self, cls: griffe.Class, target: ast.expr) -> None:
        name = target.id if isinstance(target, ast.Name) else ""
        core = cls.members.get(f"_{name.removesuffix('_async')}")
        if isinstance(core, griffe.Function) and core.docstring:
            method = griffe.Function(name, parameters=core.parameters, returns=core.returns, lineno=core.lineno)
            text = core.docstring
            method.docstring = griffe.Docstring(
                text.value, lineno=text.lineno, parent=method, parser=text.parser, parser_options=text.parser_options
            )
            if name.endswith("_async"):
                method.labels.add("async")
            cls.set_member(name, method)
