"""Render sandboxed Jinja2 templates. Runs in the worker process, without the package."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 300


class _Needed(BaseException):
    """A template that the owner has to send first.

    A BaseException, so that `ignore missing` does not swallow it.
    """


class _SentTemplates(jinja2.BaseLoader):
    """Loads the templates that the owner sent: text and path, or why one is refused."""

    def __init__(self, templates: dict[str, dict[str, str]]) -> None:
        self._templates = templates

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str | None, None]:
        sent = self._templates.get(template)
        if sent is None:
            raise _Needed(template)
        if "refused" in sent:
            raise jinja2.TemplateNotFound(template, sent["refused"])
        return sent["text"], sent["path"], None


def render(argument: dict[str, Any]) -> dict[str, Any]:
    """Render a template.

    Args:
        argument: `name`; `templates`, for each name `path` and `text`, or `refused`; `context`; and
            `longest`, how many characters the text may have.

    Returns:
        `text`; or `needed`, a template's name to be sent as well; or `error`, with the innermost
        template's `path` and `line`.
    """
    environment = ImmutableSandboxedEnvironment(
        loader=_SentTemplates(argument["templates"]),
        # Escaping is for HTML; a prompt is plain text, and `&lt;` would reach the model as it is.
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    paths = {sent["path"] for sent in argument["templates"].values() if "path" in sent}
    try:
        text = environment.get_template(argument["name"]).render(argument["context"]).strip()
    except _Needed as needed:
        return {"needed": str(needed)}
    except jinja2.TemplateSyntaxError as error:
        return _problem(f"{error.message}.", error.filename, error.lineno)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:MAX_CHARACTERS]}"
        if isinstance(error, TimeoutError):
            reason = "The template was stopped: it takes too long."
        elif isinstance(error, MemoryError):
            reason = "The template was stopped: it takes too much memory."
        return _problem(reason, *_location(error.__traceback__, paths))
    if len(text) > argument["longest"]:
        return _problem(f"It makes a text of more than {argument['longest']:,} characters.")
    return {"text": text}


def _problem(reason: str, path: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"error": reason, "path": path, "line": line}


def _location(traceback: TracebackType | None, paths: set[str]) -> tuple[str | None, int | None]:
    """Find the innermost template's file and line in a traceback."""
    position: tuple[str | None, int | None] = (None, None)
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file in paths:
            position = (file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return position
