"""What a session has: its names and, behind a dot, those of its namespaces."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from casual_mcp_nb import Session
from casual_mcp_nb.notebook.search_memory import SessionSearchMemory
from casual_mcp_nb.notebook.tasks import SessionTasks

HOOKS = Path(__file__).parents[2] / "docs" / "hooks.py"


@cache
def docs_hooks() -> Any:
    """The hooks of the docs, as a module."""
    spec = importlib.util.spec_from_file_location("docs_hooks", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


def namespaces() -> dict[str, type]:
    """The classes of the namespaces, by name."""
    kinds: dict[str, type] = docs_hooks().namespaces()
    return kinds


def public_names_of(kind: type) -> list[str]:
    """The public names of a class, without those that every list or mapping has."""
    inherited = {
        name: member for each in (Sequence, Mapping) for name, member in vars(each).items()
    }
    return [
        name
        for name in dir(kind)
        if not name.startswith("_") and getattr(kind, name) is not inherited.get(name, name)
    ]


def public_names() -> list[str]:
    """The public names of a session and of its namespaces, such as `chat`, `serve.http` and
    `servers.tasks.wait`.
    """
    inner = {"servers.tasks": SessionTasks, "tools.memory": SessionSearchMemory}
    kinds = {**namespaces(), **inner}
    below = [
        f"{namespace}.{name}" for namespace, kind in kinds.items() for name in public_names_of(kind)
    ]
    return [*public_names_of(Session), *below]
