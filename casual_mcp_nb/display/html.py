"""A view as HTML: no script, no address, no id; readable without its style sheet and in an untrusted notebook."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from casual_mcp_nb.display.prose import prose_html
from casual_mcp_nb.display.view import ImageBlock, View

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = _data_uri
    # What the renderer of prose returns was escaped as it was made.
    environment.filters["prose"] = lambda text: Markup(prose_html(text))
    # Our own file, without any text of others.
    environment.globals["style"] = Markup(style())
    return environment


@cache
def style() -> str:
    """Load the style sheet of all displays."""
    return _compact((_FOLDER / "style.css").read_text(encoding="utf-8"))


def to_html(view: View, styled: bool = True) -> str:
    """Convert a view to one `<div>`, with its style sheet unless the page has it already."""
    return _environment().get_template("view.html.j2").render(view=view, styled=styled)


def to_page(view: View, title: str) -> str:
    """Convert a view to a whole HTML document that allows neither scripts nor network access."""
    # What `to_html` returns was escaped as it was made.
    return _environment().get_template("page.html.j2").render(title=title, body=Markup(to_html(view)))


def _data_uri(image: ImageBlock) -> str:
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def _compact(css: str) -> str:
    return "\n".join(line.strip() for line in css.splitlines() if line.strip())
