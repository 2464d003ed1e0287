"""Prompt templates: Jinja2 in a sandbox, confined to their folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from casual_mcp_nb.config.document import read_text
from casual_mcp_nb.errors import TemplateError, closest, did_you_mean, shown
from casual_mcp_nb.types.tool import ToolSpec

FOLDER = "prompt-templates"
SUFFIX = ".j2"


class TemplateLibrary:
    """The templates of some folders; where two folders have the same name, the first folder's is used.

    Templates are the person's own words, but they run in a sandbox all the same: a template can come with a config from
    somebody else. What tools say about themselves is data in them and never evaluated.

    Args:
        folders: Where to look, in this order. A folder need not exist.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folder.absolute() for folder in folders))
        # Escaping is for HTML; a prompt is plain text, and `&lt;` would reach the model as it is.
        self._environment = ImmutableSandboxedEnvironment(
            loader=_Loader(self.path),
            autoescape=False,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._asked_for: dict[PurePosixPath, list[Path]] = {}
        self._last: _Rendered | None = None

    @classmethod
    def for_config(cls, folder: Path | None) -> TemplateLibrary:
        """The usual folders: `prompt-templates/` beside the config file, in the working directory, and those of the package.

        Args:
            folder: The config file's folder, if there is one.
        """
        own = [folder / FOLDER] if folder else []
        return cls([*own, Path.cwd() / FOLDER, _shipped()])

    def names(self) -> list[str]:
        """The names of all templates, such as `default.j2`, sorted."""
        found = set()
        for folder in self.folders:
            for path in folder.rglob(f"*{SUFFIX}"):
                if path.is_file() and _is_inside(path, folder):
                    found.add(path.relative_to(folder).as_posix())
        return sorted(found)

    def path(self, name: str) -> Path:
        """The file of a template.

        Args:
            name: Its name, with or without `.j2`.

        Raises:
            TemplateError: There is none of that name, or the name leads out of its folder.
        """
        relative = PurePosixPath(name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")
        if relative.is_absolute() or ".." in relative.parts or "\\" in name or not name.isprintable():
            raise TemplateError(f"Template {shown(name)} is refused: the name leads out of the folder {FOLDER}/.")
        self._asked_for.setdefault(relative, [folder / relative for folder in self.folders])
        for folder in self.folders:
            path = folder / relative
            if path.is_file():
                if not _is_inside(path, folder):
                    raise TemplateError(f"Template {shown(name)} is refused: it is a link that leads out of {FOLDER}/.")
                return path
        names = self.names()
        raise TemplateError(f"There is no template {shown(name)}.", hint=did_you_mean(closest(str(relative), names), names))

    def source(self, name: str) -> str:
        """The text of a template, not rendered.

        Args:
            name: Its name, with or without `.j2`.

        Raises:
            TemplateError: There is none of that name, it leads out of its folder, or it is not UTF-8.
        """
        return read_text(self.path(name), TemplateError)

    def render(self, name: str, *, tools: Iterable[ToolSpec], variables: Mapping[str, Any] | None = None) -> str:
        """The system prompt that a template makes. The last one is kept, for chats that hand in the same tuple of tools and no
        variables, while no file has changed.

        Args:
            name: Its name, with or without `.j2`.
            tools: The tools that the model is offered. The template sees `tools`, a list in which each tool has `name` (as the
                model calls it), `server`, `tool` (its name there), `title`, `description`, `parameters` (a JSON schema),
                `read_only`, `destructive` and `badges`.
            variables: Further variables.

        Raises:
            TemplateError: There is no such template, or it fails; with file and line.
        """
        last, before = self._last, self._files()
        if last and not variables and last.name == name and last.tools is tools and last.files == before:
            return last.text
        tools = tuple(tools)
        text = self._render(name, {**(variables or {}), "tools": [_tool(tool) for tool in tools]})
        # A template that was met for the first time, or changed meanwhile, is kept the next time.
        if not variables and before == self._files():
            self._last = _Rendered(name, tools, before, text)
        return text

    def _render(self, name: str, context: Mapping[str, Any]) -> str:
        path = self.path(name)
        try:
            return self._environment.get_template(name).render(context).strip()
        except TemplateError:
            raise
        except jinja2.TemplateSyntaxError as error:
            failed = TemplateError(f"{error.message}.", path=error.filename or str(path), line=error.lineno)
        except Exception as error:
            where, line = self._place(error.__traceback__, path)
            failed = TemplateError(f"{type(error).__name__}: {str(error)[:300]}", path=where, line=line)
        raise failed

    def _files(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when one of the files changes that a template came from, or could come from."""
        return tuple(_stamp(path) for paths in self._asked_for.values() for path in paths)

    def _place(self, traceback: TracebackType | None, path: Path) -> tuple[str, int | None]:
        """File and line of the innermost template in a traceback."""
        place: tuple[str, int | None] = (str(path), None)
        while traceback is not None:
            file = traceback.tb_frame.f_code.co_filename
            if file.endswith(SUFFIX):
                place = (file, traceback.tb_lineno)
            traceback = traceback.tb_next
        return place


@dataclass(frozen=True)
class _Rendered:
    name: str
    tools: tuple[ToolSpec, ...]
    files: tuple[tuple[int, int, int] | None, ...]
    text: str


class _Loader(jinja2.BaseLoader):
    """Lets Jinja2 find templates, and what they include, by our rules."""

    def __init__(self, find: Callable[[str], Path]) -> None:
        self._find = find

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        try:
            path = self._find(template)
        except TemplateError as error:
            raise jinja2.TemplateNotFound(template, str(error)) from error
        before = _stamp(path)

        def is_up_to_date() -> bool:
            # A file of the same name can have come into a folder before this one.
            with contextlib.suppress(TemplateError):
                return self._find(template) == path and _stamp(path) == before
            return False

        return read_text(path, TemplateError), str(path), is_up_to_date


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        said = os.stat(path)
    except OSError:
        return None
    return said.st_ino, said.st_mtime_ns, said.st_size


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _shipped() -> Path:
    """The package's own templates: inside it when it was installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / FOLDER
    return inside if inside.is_dir() else package.parent / FOLDER


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.wire_name,
        "server": tool.server,
        "tool": tool.name,
        "title": tool.title or "",
        "description": tool.description,
        "parameters": tool.definition["parameters"],
        "read_only": tool.read_only,
        "destructive": tool.destructive,
        "badges": list(tool.annotations.badges) if tool.annotations else [],
    }
