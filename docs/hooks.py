"""MkDocs hooks that generate pages from the code: a reference of every public name, all decisions, the keys of a config.

MkDocs calls the functions that begin with `on_`. A new name, decision or key needs no change here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import casual_mcp_nb

GROUPS = (
    ("Session", ("session", "notebook")),
    ("Chatting without a notebook", ("engine", "compat")),
    ("Events", ("conversation.event",)),
    ("Turns, steps and conversations", ("conversation", "base.content")),
    ("Tools, servers and selection", ("base.tool", "base.status", "base.selection", "servers")),
    ("Tools of the notebook", ("own_tools",)),
    ("Discovery", ("discovery", "base.search")),
    ("Config", ("config", "base.config", "base.options")),
    ("Models", ("providers",)),
    ("Observability", ("telemetry",)),
    ("Evaluation", ("experiments",)),
    ("Serving", ("serve",)),
    ("Errors", ("errors",)),
    ("Messages", ("casual_llm",)),
    ("Other names", ("",)),
)
"""Title of a reference page and the modules whose names it has; the first page that matches a name gets it."""


def group_of(name: str) -> str:
    """Return the title of the reference page that a public name is on."""
    module = f"{casual_mcp_nb._HOMES[name]}.".removeprefix("casual_mcp_nb.")
    return next(title for title, modules in GROUPS if any(not home or module.startswith(f"{home}.") for home in modules))


def namespaces() -> dict[str, type]:
    """Return the classes of a session's namespaces by name: of the properties whose values do something, such as `serve`."""
    session = casual_mcp_nb.Session
    source = inspect.getsource(importlib.import_module(session.__module__))
    imports = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ImportFrom)]
    homes = {alias.name: str(each.module) for each in imports for alias in each.names}
    annotations = {
        name: inspect.get_annotations(member.fget).get("return")
        for name, member in vars(session).items()
        if isinstance(member, property) and member.fget is not None and not name.startswith("_")
    }
    rooms = tuple(f"casual_mcp_nb.{room}." for room in ("notebook", "serve", "experiments"))
    return {
        name: getattr(importlib.import_module(homes[kind]), kind)
        for name, kind in annotations.items()
        if homes.get(str(kind), "").startswith(rooms)
    }


def reference() -> dict[str, str]:
    """Return the Markdown of the reference pages by title, in the order of `GROUPS`; a page without names is left out."""
    names = {
        title: [f"casual_mcp_nb.{name}" for name in casual_mcp_nb.__all__ if group_of(name) == title] for title, _ in GROUPS
    }
    names["Session"] += [f"{kind.__module__}.{kind.__name__}" for kind in namespaces().values()]
    return {
        title: "\n\n".join([f"# {title}", *(f"::: {name}" for name in members)]) for title, members in names.items() if members
    }


def path_of(title: str) -> str:
    """Return the path of a reference page."""
    return f"reference/{title.lower().replace(',', '').replace(' ', '-')}.md"


def on_config(config: Any) -> Any:
    """Add the pages of Reference and Decisions to the navigation."""
    decisions = ["README.md", *sorted(path.name for path in Path(config.docs_dir, "decisions").glob("[0-9]*.md"))]
    pages = {
        "Reference": [{title: path_of(title)} for title in reference()],
        "Decisions": [f"decisions/{name}" for name in decisions],
    }
    config.nav = [{title: pages.get(title, page) for title, page in entry.items()} for entry in config.nav]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the generated reference pages."""
    from mkdocs.structure.files import File

    for title, text in reference().items():
        files.append(File.generated(config, path_of(title), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each `<!-- keys: CLASS -->` by a table of keys."""
    return re.sub(r"<!-- keys: (\w+) -->", lambda match: keys_of(match[1]), markdown)


def keys_of(name: str) -> str:
    """Return a table of the fields of a config class: name, default, and its docstring."""
    from griffe import Docstring, DocstringSectionParameters
    from pydantic_core import to_jsonable_python

    from casual_mcp_nb.base import config, prices

    kind = getattr(config, name, None) or getattr(prices, name)
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for section in Docstring(base.__doc__ or "").parse("google", warn_missing_types=False, warn_unknown_params=False):
            if isinstance(section, DocstringSectionParameters):
                texts |= {parameter.name: " ".join(parameter.description.split()) for parameter in section.value}
    rows = ["| key | default | |", "|---|---|---|"]
    for key, field in kind.model_fields.items():
        default = to_jsonable_python(field.get_default(call_default_factory=True)) if not field.is_required() else None
        value = "required" if field.is_required() else "" if default is None else f"`{json.dumps(default)}`"
        rows.append(f"| `{key}` | {value} | {texts[key].replace('|', chr(92) + '|')} |")
    return "\n".join(rows)
