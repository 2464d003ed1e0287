"""A notebook with hostile outputs, executed and turned into HTML and Markdown by nbconvert, without
sanitising.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter

pytestmark = pytest.mark.kernel

EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><iframe src=https://e.ex></iframe>"
    "[x](javascript:alert(1)) \x1b[2J\u202e"
)
CELLS = [
    f"""EVIL = {EVIL!r}
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP
shop = FastMCP("shop", instructions=EVIL)
@shop.tool(description=EVIL)
def stock(kind: str) -> list[dict]:
    return [{{"item": EVIL, "price": 4}}]
@shop.tool
def burn() -> str:
    raise ValueError(EVIL)
session = Session.from_config({{
    "servers": {{"math": {{"bundled": "math", "transport": "in-process"}}}},
    "tool_sets": {{"all": {{"description": EVIL, "servers": {{"math": True}}}}}},
}}, in_process={{"shop": shop}})
session.connect()""",
    "session.tools['shop__stock']",
    "session.tools.sets",
    (
        "session.chat(EVIL, model=scripted_model(call('shop__stock', kind=EVIL),"
        " call('shop__burn'), EVIL), echo='all')"
    ),
    "session.turns[0].steps[1].request",
    "session.conversations.current",
]


@pytest.fixture(scope="module")
def book() -> Any:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return book


class Active(HTMLParser):
    """Collects everything that could act."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in (
            "script",
            "iframe",
            "form",
            "object",
            "embed",
            "link",
            "svg",
            "base",
            "input",
            "button",
        ):
            self.active.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (
                name in ("src", "href", "action") and not (value or "").startswith("data:image/")
            ):
                self.active.append(f"{tag} {name}={value}")


@pytest.mark.slow
@pytest.mark.fault(87)
def test_a_notebook_as_html_has_no_active_content(book: Any) -> None:
    html, _ = HTMLExporter(
        template_name="basic", exclude_input=True, exclude_output_prompt=True
    ).from_notebook_node(book)
    page = Active()
    page.feed(html)
    assert page.active == []
    assert html.count('class="cmn cmn-') == len(CELLS)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.fault(87)
@pytest.mark.fault(91)
def test_each_output_is_self_contained_without_a_kernel(book: Any, parse: Any) -> None:
    outputs = [output for cell in book.cells for output in cell.outputs]
    assert len(outputs) == len(CELLS)
    for output in outputs:
        assert {"text/plain", "text/html"} <= set(output.data)
        assert len(output.data["text/plain"]) > 20
        parse(output.data["text/html"])
        assert not re.search("[\x1b\u202e]", "".join(output.data.values()))


@pytest.mark.fault(87)
def test_a_notebook_as_markdown_shows_the_same_sections(book: Any) -> None:
    markdown, _ = MarkdownExporter(exclude_input=True).from_notebook_node(book)
    assert "<script" not in markdown.casefold()
    for title in ("Parameters", "Toolsets", "Details", "Messages", "Turn 1"):
        assert title in markdown
