"""Prompt templates: sandboxed Jinja2 in a process that can be killed, confined to their folders."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.document import read_text
from casual_mcp_nb.errors import TemplateError, closest, did_you_mean, shown
from casual_mcp_nb.isolation.worker import GaveUp, Worker

FOLDER = "prompt-templates"
SUFFIX = ".j2"
RENDER_SECONDS = 2.0
MAX_PROMPT = 1_000_000
"""Maximum prompt length in characters."""
MAX_TEMPLATES = 50
"""How many templates one can include."""


class TemplateLibrary:
    """Templates in several folders, which need not exist. The first folder with a name wins.

    Templates run in a sandbox because one can come with somebody else's config. Tool descriptions
    are data and never evaluated.
    """

    def __init__(self, folders: Sequence[Path], worker: Worker | None = None) -> None:
        self.folders = tuple(dict.fromkeys(folder.absolute() for folder in folders))
        self._worker = worker or Worker()
        self._asked_for: dict[PurePosixPath, list[str]] = {}
        self._last: _Rendered | None = None

    @classmethod
    def for_config(cls, folder: Path | None, worker: Worker | None = None) -> TemplateLibrary:
        """Look in `prompt-templates/` beside the config file, in the working directory, and in the
        package.
        """
        own = [folder / FOLDER] if folder else []
        return cls([*own, Path.cwd() / FOLDER, _shipped()], worker)

    def names(self) -> list[str]:
        """List all templates by name, such as `default.j2`, sorted."""
        names = set()
        for folder in self.folders:
            for path in folder.rglob(f"*{SUFFIX}"):
                if path.is_file() and _is_inside(path, folder):
                    names.add(path.relative_to(folder).as_posix())
        return sorted(names)

    def path(self, name: str) -> Path:
        """Find a template's path, with or without `.j2`.

        A TemplateError if there is none in its folder.
        """
        relative = PurePosixPath(name.removesuffix(SUFFIX) + SUFFIX)
        if (
            relative.is_absolute()
            or ".." in relative.parts
            or "\\" in name
            or not name.isprintable()
        ):
            raise TemplateError(
                f"Template {shown(name)} is refused: the name leads outside the folder {FOLDER}/."
            )
        # The package's own do not change while it runs.
        self._asked_for.setdefault(
            relative, [str(folder / relative) for folder in self.folders if folder != _shipped()]
        )
        for folder in self.folders:
            path = folder / relative
            if path.is_file():
                if not _is_inside(path, folder):
                    raise TemplateError(
                        f"Template {shown(name)} is refused: it is a link that leads outside"
                        f" {FOLDER}/."
                    )
                return path
        names = self.names()
        raise TemplateError(
            f"There is no template {shown(name)}.",
            hint=did_you_mean(closest(str(relative), names), names),
        )

    def source(self, name: str) -> str:
        """Read a template's source, see `path`."""
        return read_text(self.path(name), TemplateError)

    def render(
        self, name: str, *, tools: Iterable[ToolSpec], variables: Mapping[str, Any] | None = None
    ) -> str:
        """Render a template into a system prompt. A TemplateError has file and line.

        The last prompt is cached for chats that pass the same tuple of tools and no variables,
        until a file changes. User templates are rendered in another process, within two seconds,
        half a gigabyte and a million characters: one can come with somebody else's config, and
        nothing in this process can stop an endless loop.

        The template sees `tools`, a list in which each tool has `name` (as the model calls it),
        `server`, `tool` (its name there), `title`, `description`, `parameters` (a JSON schema, also
        as `inputSchema`), `read_only`, `destructive` and `badges`, and the variables as JSON:
        models and dataclasses as objects, and values without a JSON form, such as dates, as
        strings.
        """
        cached = self._cached_text(name, tools, variables)
        if cached is not None:
            return cached
        before, tools = self._files(), tuple(tools)
        text = self._render(name, tools, variables or {})
        # A template that is new, or changed during rendering, is cached the next time.
        if not variables and before == self._files():
            self._last = _Rendered(name, tools, before, text)
        return text

    async def render_async(
        self, name: str, *, tools: Iterable[ToolSpec], variables: Mapping[str, Any] | None = None
    ) -> str:
        """Render as `render` does, without blocking the caller's loop."""
        cached = self._cached_text(name, tools, variables)
        if cached is not None:
            return cached
        return await asyncio.to_thread(self.render, name, tools=tools, variables=variables)

    def _cached_text(
        self, name: str, tools: Iterable[ToolSpec], variables: Mapping[str, Any] | None
    ) -> str | None:
        last = self._last
        if variables or last is None:
            return None
        if last.name == name and last.tools is tools and last.files == self._files():
            return last.text
        return None

    def _render(self, name: str, tools: Sequence[ToolSpec], variables: Mapping[str, Any]) -> str:
        path = self.path(name)
        sent = {name: self._sent(name)}
        run: Callable[[dict[str, Any]], dict[str, Any]]
        if path.parent == _shipped():
            # The package's own templates loop once over our own data and include nothing. They are
            # rendered whenever the tools change, and the default only asks whether there are any.
            from casual_mcp_nb.isolation._render import render

            run, context = render, {**_plain(variables, path), "tools": _Tools(tools)}
        else:
            run = partial(self._worker.run, "render", seconds=RENDER_SECONDS)
            context = _plain({**variables, "tools": list(_Tools(tools))}, path)
        while len(sent) <= MAX_TEMPLATES:
            try:
                result = run(
                    {"name": name, "templates": sent, "context": context, "longest": MAX_PROMPT}
                )
            except GaveUp as gave_up:
                raise TemplateError(
                    f"The template was stopped: {gave_up}.", path=str(path)
                ) from None
            if "text" in result:
                return str(result["text"])
            if "error" in result:
                raise TemplateError(
                    result["error"], path=result["path"] or str(path), line=result["line"]
                )
            sent[result["needed"]] = self._sent(result["needed"])
        raise TemplateError(f"It includes more than {MAX_TEMPLATES} templates.", path=str(path))

    def _sent(self, name: str) -> dict[str, str]:
        """Prepare a template's path and text for the worker, or the reason why it is refused."""
        try:
            path = self.path(name)
        except TemplateError as error:
            return {"refused": str(error)}
        return {"path": str(path), "text": read_text(path, TemplateError)}

    def _files(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Compute a value that changes with any file that a template came from, or could come
        from.
        """
        return tuple(map(_stamp, chain.from_iterable(tuple(self._asked_for.values()))))


@dataclass(frozen=True)
class _Rendered:
    name: str
    tools: tuple[ToolSpec, ...]
    files: tuple[tuple[int, int, int] | None, ...]
    text: str


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _shipped() -> Path:
    """Locate the package's own templates: inside the package in a wheel, beside it in a
    checkout.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / FOLDER
    return inside if inside.is_dir() else package.parent / FOLDER


def _plain(context: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Convert what a template gets to JSON values."""
    try:
        plain: dict[str, Any] = to_jsonable_python(
            dict(context), serialize_unknown=True, inf_nan_mode="constants"
        )
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise TemplateError(
            f"Its variables cannot be written as JSON: {reason}.", path=str(path)
        ) from None
    return plain


class _Tools(Sequence[Mapping[str, Any]]):
    """The tools as templates read them, each converted when it is read."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(map(_tool, self._tools[index]))
        return _tool(self._tools[index])

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return map(_tool, self._tools)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.wire_name,
        "server": tool.server,
        "tool": tool.name,
        "title": tool.title or "",
        "description": tool.description,
        "parameters": tool.definition["parameters"],
        # As in casual-mcp's templates.
        "inputSchema": tool.definition["parameters"],
        "read_only": tool.read_only,
        "destructive": tool.destructive,
        "badges": list(tool.annotations.badges) if tool.annotations else [],
    }
