"""Notebooks in a real JupyterLab: written, opened, run, asked."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from kit.lab import Lab

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
LOOKS = [("JupyterLab Light", "true"), ("JupyterLab Dark", "false")]
_SESSION = "window.jupyterapp.shell.currentWidget.sessionContext"


def written(lab: Lab, name: str, cells: Iterable[str]) -> None:
    """Put a notebook where Lab finds it."""
    cells_made = [nbformat.v4.new_code_cell(source) for source in cells]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells_made, metadata={"kernelspec": KERNEL}),
        lab.folder / name,
    )


def opened(page: Any, lab: Lab, name: str) -> None:
    """Open a notebook and wait for its kernel."""
    page.goto(lab.address(name))
    ready(page)


def ready(page: Any) -> None:
    """Wait for a notebook and its kernel.

    A cell that is run before there is a kernel may not run at all, and says nothing.
    """
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(
        f"() => window.jupyterapp && {_SESSION}?.session?.kernel?.status === 'idle'"
    )


def run_cell(page: Any, number: int) -> None:
    """Run one cell, from 0, as its Run button does; does not wait for its end."""
    page.evaluate(
        "number => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = number; "
        "window.jupyterapp.commands.execute('notebook:run-cell') }",
        number,
    )


def clear_cell(page: Any, number: int) -> None:
    """Clear the output of a cell."""
    page.evaluate(
        "number =>"
        " window.jupyterapp.shell.currentWidget.content.widgets[number].model.clearExecution()",
        number,
    )


def execute(page: Any, code: str, wait: bool = True) -> None:
    """Run code in the kernel without a cell.

    Args:
        page: The page of the notebook.
        code: The code; its end must be good.
        wait: Whether to wait for it.
    """
    future = f"{_SESSION}.session.kernel.requestExecute({{code}})"
    if not wait:
        page.evaluate(f"code => {{ {future} }}", code)
        return
    reply = page.evaluate(f"async code => (await {future}.done).content", code)
    assert reply["status"] == "ok", "\n".join(reply.get("traceback", ()))


def value(page: Any, expression: str) -> Any:
    """The value of an expression in the kernel, as far as it is a literal."""
    future = (
        f"{_SESSION}.session.kernel.requestExecute({{code: '', user_expressions: {{asked:"
        " expression}})"
    )
    # A kernel answers nothing that waited behind a cell that failed.
    content = page.evaluate(
        f"""async expression => {{
            let content;
            do content = (await {future}.done).content;
            while (content.status === "aborted");
            return content;
        }}""",
        expression,
    )
    reply = content["user_expressions"]["asked"]
    assert reply["status"] == "ok", reply
    return ast.literal_eval(reply["data"]["text/plain"])


def focuses(page: Any, name: str) -> None:
    """Wait until the element with this test id has the focus."""
    page.wait_for_function(
        "name => (document.activeElement.dataset.testid ?? document.activeElement.tagName) ==="
        " name",
        arg=name,
    )


def look(page: Any, theme: str, light: str) -> None:
    """Put Lab into a theme."""
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
    )
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)


def violations(page: Any, axe: Path, selector: str) -> list[str]:
    """Run axe-core on the elements of a selector, with their details unfolded."""
    page.evaluate(
        "selector => document.querySelectorAll(selector + ' details').forEach(part => part.open ="
        " true)",
        selector,
    )
    if not page.evaluate("() => 'axe' in window"):
        page.add_script_tag(path=str(axe))
    results = page.evaluate(
        "selector => axe.run({include: [[selector]]}, {resultTypes: ['violations']})", selector
    )
    return [
        f"{v['id']}: {node['html'][:200]} {node['any'][:1]}"
        for v in results["violations"]
        for node in v["nodes"][:3]
    ]


def pictured(page: Any, name: str) -> None:
    """Keep a picture of the page where `SCREENSHOTS` names a folder, for a person to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
