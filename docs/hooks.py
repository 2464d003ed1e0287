"""MkDocs hooks: pages from the code (a reference of every public name, the keys of a config) and
from the lessons; llms.txt.

MkDocs calls the functions that begin with `on_`. A new name, lesson, decision or key needs no
change here.
"""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import casual_mcp_nb

GROUPS = (
    ("Session", ("session", "notebook")),
    ("Chatting without a notebook", ("engine", "compat")),
    ("Events", ("conversation.event",)),
    ("Turns, steps and conversations", ("conversation", "base.content")),
    (
        "Tools, servers and selection",
        ("base.tool", "base.status", "base.mcp", "base.wire", "base.selection", "servers"),
    ),
    ("Tools of the notebook", ("own_tools",)),
    ("Discovery", ("discovery", "base.search")),
    ("Config", ("config", "base.config", "base.config_base")),
    ("Models", ("providers",)),
    ("Observability", ("telemetry",)),
    ("Evaluation", ("experiments",)),
    ("Serving", ("serve",)),
    ("Errors", ("errors",)),
    ("Messages", ("casual_llm",)),
    ("Other names", ("",)),
)
"""Title of a reference page and the modules whose names it has; the first page that matches a name
gets it.
"""


def title_of(module: str) -> str:
    """Return the title of the reference page that has a module's public names."""
    own = f"{module}.".removeprefix("casual_mcp_nb.")
    return next(
        title
        for title, modules in GROUPS
        if any(not home or own.startswith(f"{home}.") for home in modules)
    )


def namespaces() -> dict[str, type]:
    """Return the classes of a session's namespaces by name: of the properties whose values do
    something, such as `serve`.
    """
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
    """Return the Markdown of the reference pages by title, in the order of `GROUPS`; a page without
    names is left out.
    """
    names = {
        title: [
            f"casual_mcp_nb.{name}"
            for name in casual_mcp_nb.__all__
            if title_of(casual_mcp_nb._HOMES[name]) == title
        ]
        for title, _ in GROUPS
    }
    names["Session"] += [f"{kind.__module__}.{kind.__name__}" for kind in namespaces().values()]
    names["Session"].append("casual_mcp_nb.notebook.tasks.SessionTasks")
    names["Session"].append("casual_mcp_nb.notebook.search_memory.SessionSearchMemory")
    return {
        title: "\n\n".join([f"# {title}", *(f"::: {name}" for name in members)])
        for title, members in names.items()
        if members
    }


def path_of(title: str) -> str:
    """Return the path of a reference page."""
    return f"reference/{title.lower().replace(',', '').replace(' ', '-')}.md"


SOURCE = re.compile(r"\]\(\.\./((?:\.\./)*)((?:casual_mcp_nb|notebooks)/[^)#]+)")
"""A link from a page to a module or a lesson, as it works on GitHub."""


def page_of(source: str) -> str:
    """Return the path of the page that the site has for a module or a lesson."""
    path = Path(source)
    if path.suffix == ".ipynb":
        return f"lessons/{path.stem}.md"
    return path_of(title_of(".".join(path.with_suffix("").parts)))


ROOT = Path(__file__).resolve().parents[1]
URLS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["urls"]
LESSONS = ROOT / "notebooks"
BOOSTS = {
    "index": 4.0,
    "guides": 4.0,
    "lessons": 2.0,
    "glossary": 2.0,
    "reference": 0.5,
    "decisions": 0.25,
}
"""How much a page weighs in a search, by the first part of its path: a guide ranks above an
attribute.
"""


def lessons() -> list[Path]:
    """Return the notebooks that are lessons, in order, and those from practice after them."""
    return [
        *sorted(LESSONS.glob("[0-9]*.ipynb")),
        *sorted((LESSONS / "in_practice").glob("*.ipynb")),
    ]


def lesson_markdown(path: Path) -> str:
    """Return a lesson as Markdown, as it was committed: a code cell is followed by a `<div>` for
    each of its outputs.
    """
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            # The checks of exercises, folded as in the notebook.
            folded = f"<pre><code>{html.escape(source)}</code></pre>"
            parts.append(f"<details><summary>The checks</summary>{folded}</details>")
        elif cell["cell_type"] == "markdown":
            parts.append(
                re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source).replace("](../docs/", "](../")
            )
        else:
            parts.append(f"```ipython\n{source}\n```")
            parts += [
                f'<div data-output="{number}.{place}"></div>'
                for place in range(len(cell["outputs"]))
            ]
    parts.insert(1, f"*To run this lesson: `jupyter lab notebooks/{path.relative_to(LESSONS)}`.*")
    return "\n\n".join(parts)


def outputs(path: Path) -> Iterator[tuple[str, str]]:
    """Return the HTML of each output of a lesson, by the name that its `<div>` has in the
    Markdown.
    """
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for place, output in enumerate(cell.get("outputs", ())):
            data = output.get("data", {})
            text = html.escape("".join(output.get("text", data.get("text/plain", ""))))
            # In a shadow root neither the styles of the page nor those of the output reach the
            # other.
            drawn = "".join(data.get("text/html", "")) or (
                text and f'<pre tabindex="0">{text}</pre>'
            )
            if "image/png" in data:
                png = "".join(data["image/png"]).replace("\n", "")
                drawn = (
                    f'<img src="data:image/png;base64,{png}" alt="The plot of the cell above"'
                    ' style="max-width: 100%">'
                )
            root = f'<template shadowrootmode="open">{drawn}</template>'
            yield (
                f"{number}.{place}",
                f'<div class="output" data-search-exclude>{root}</div>' if drawn else "",
            )


def on_config(config: Any) -> Any:
    """Add the lessons and the pages of the reference to the navigation, and the addresses of the
    project.
    """
    # Of several published versions, the latest is what search engines should list. `mkdocs serve`
    # has set its own address.
    config.site_url = config.site_url or f"{URLS['Documentation']}latest/"
    # A link, and not `repo_url`: with that, the theme asks GitHub for figures on each page.
    source = {"icon": "fontawesome/brands/github", "link": URLS["Source"], "name": "Source code"}
    config.extra["social"] = [source]
    more = {
        "Learn": [f"lessons/{path.stem}.md" for path in lessons()],
        "Reference": [{title: path_of(title)} for title in reference()],
    }
    config.nav = [
        {title: [*page, *more[title]] if title in more else page for title, page in entry.items()}
        for entry in config.nav
    ]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the lessons and the generated reference pages."""
    from mkdocs.structure.files import File

    pages = {path_of(title): text for title, text in reference().items()}
    pages |= {f"lessons/{path.stem}.md": lesson_markdown(path) for path in lessons()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace each `<!-- keys: CLASS -->` by a table of keys, and each link to a module or a lesson
    by one to its page; set how much the page weighs in a search, and its description.
    """
    page.meta.setdefault(
        "search",
        {"boost": BOOSTS.get(page.file.src_uri.partition("/")[0].removesuffix(".md"), 1.0)},
    )
    if description := opening(markdown):
        page.meta.setdefault("description", description)
    markdown = SOURCE.sub(lambda match: f"]({match[1]}{page_of(match[2])}", markdown)
    return re.sub(r"<!-- keys: (\w+) -->", lambda match: keys_of(match[1]), markdown)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Put the outputs of a lesson in their places; a table's empty heading is an empty cell, as a
    screen reader wants it.
    """
    if page.file.src_uri.startswith("lessons/"):
        stem = Path(page.file.src_uri).stem
        drawn = dict(outputs(next(path for path in lessons() if path.stem == stem)))
        content = re.sub(
            r'<div data-output="([\d.]+)"></div>', lambda match: drawn.get(match[1], ""), content
        )
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", content)


def opening(markdown: str) -> str:
    """Return the first sentence of a page as plain text; empty for a page that begins with
    something else than a paragraph.
    """
    paragraphs = (" ".join(part.split()) for part in markdown.split("\n\n"))
    text = next(
        (
            part
            for part in paragraphs
            if re.match(r"[\w`*\[]", part) and not part.startswith("*To run")
        ),
        "",
    )
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return re.split(r"(?<=[.?!])\s", re.sub(r"[`*]", "", text))[0]


def on_env(env: Any, *, config: Any, files: Any) -> Any:
    """Write `llms.txt` (https://llmstxt.org): each page of the menu with a sentence; guides and
    lessons as Markdown too.
    """
    site, sections = Path(config.site_dir), []
    pages = {file.src_uri: file.page for file in files.documentation_pages()}
    for entry in config.nav:
        for title, value in entry.items():
            paths = [
                path
                for item in ([value] if isinstance(value, str) else value)
                for path in _paths(item)
            ]
            sections.append(
                "\n".join([f"## {title}", "", *(_listed(pages[path], site) for path in paths)])
            )
    site.mkdir(parents=True, exist_ok=True)
    head = [
        f"# {config.site_name}",
        f"> {config.site_description}",
        f"Source code: {URLS['Source']}",
    ]
    text = "\n\n".join([*head, *sections])
    (site / "llms.txt").write_text(f"{text}\n", encoding="utf-8")
    return env


def _paths(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else list(item.values())


def _listed(page: Any, site: Path) -> str:
    address = page.url or "index.html"
    if page.file.src_uri.startswith(("guides/", "lessons/")):
        address = f"{page.url}index.md"
        (site / address).parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r'<div data-output="[^"]*"></div>\n*', "", page.markdown)
        (site / address).write_text(text, encoding="utf-8")
    return f"- [{page.title}]({address})" + (
        f": {page.meta['description']}" if "description" in page.meta else ""
    )


def keys_of(name: str) -> str:
    """Return a table of the fields of a config class: name, default, and its docstring."""
    from griffe import Docstring, DocstringSectionParameters
    from pydantic_core import to_jsonable_python

    from casual_mcp_nb.base import config, prices

    kind = getattr(config, name, None) or getattr(prices, name)
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for section in Docstring(base.__doc__ or "").parse(
            "google", warn_missing_types=False, warn_unknown_params=False
        ):
            if isinstance(section, DocstringSectionParameters):
                texts |= {
                    parameter.name: " ".join(parameter.description.split())
                    for parameter in section.value
                }
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, field in kind.model_fields.items():
        default = (
            to_jsonable_python(field.get_default(call_default_factory=True))
            if not field.is_required()
            else None
        )
        value = (
            "required"
            if field.is_required()
            else ""
            if default is None
            else f"`{json.dumps(default)}`"
        )
        rows.append(f"| `{key}` | {value} | {texts[key].replace('|', chr(92) + '|')} |")
    return "\n".join(rows)
