"""Execute notebooks from top to bottom: `python notebooks/execute.py NOTEBOOK … [--html FOLDER]
[--show TAGS] [--write]`.

`--html` writes each as HTML into a folder; `--show` prints the text output of cells with these
tags; `--write` stores the outputs in the notebook itself, unless the machine was too busy: then the
times in them would say nothing.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

MAX_STARTUP_SECONDS = 8.0
"""What a server of a lesson may take to start; on two idle cores the demo's take about three."""

WIDGETS = ("The model's tools", "Conversation")
"""How the pictures of widgets begin."""

# What is executed here is nobody's conversation.
os.environ["MCP_STORE"] = "off"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--show", default="")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    return max(
        run(path, args.html, set(filter(None, args.show.split(","))), args.write)
        for path in args.notebooks
    )


def run(path: Path, html: Path | None, show: set[str], write: bool) -> int:
    """Execute one notebook; 0 when every cell ended well."""
    book = nbformat.read(path, as_version=4)
    committed = savings(book)
    answered = with_answers(book)
    client = NotebookClient(
        answered,
        timeout=300,
        kernel_name="python3",
        # What one `print` writes is one output, however the kernel sends it.
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return 1
    if wrong := misjudged(answered):
        print(f"{path.name}: exercises misjudged: {', '.join(wrong)}", file=sys.stderr)
        return 1
    if not write and (stale := changed(committed, savings(book))):
        print(
            f"{path.name}: its outputs are not those of today's code ({'; '.join(stale)}). Execute it with --write.",
            file=sys.stderr,
        )
        return 1
    number = 0
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            number += 1
            for numbered in (
                cell,
                *(output for output in cell.outputs if output.output_type == "execute_result"),
            ):
                numbered.execution_count = number
        if show & set(cell.metadata.get("tags", ())):
            print("\n".join(filter(None, map(text_of, cell.outputs))), end="\n\n")
    if write:
        slow = [
            seconds
            for cell in book.cells
            for output in cell.get("outputs", ())
            for seconds in startup_seconds(output)
        ]
        if slow and max(slow) > MAX_STARTUP_SECONDS:
            print(
                f"{path.name}: not written. A server took {max(slow)} s to start: execute it on a"
                " quiet machine.",
                file=sys.stderr,
            )
            return 1
        nbformat.write(book, path)
    if html is not None:
        html.mkdir(exist_ok=True)
        page = html / f"{path.stem}.html"
        page.write_text(HTMLExporter().from_notebook_node(book)[0], encoding="utf-8")
        print(f"{path.name}: every cell ended well. As HTML: {page}")
    return 0


def with_answers(book: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with the same cells, and after each answer of an exercise a wrong one and the
    right one, both checked.
    """
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if exercise := cell.metadata.get("exercise"):
            for kind in ("wrong", "right"):
                cells.append(
                    nbformat.v4.new_code_cell(exercise[kind], metadata={"tags": ["given"]})
                )
                checked = {"tags": ["given", kind], "name": exercise["name"]}
                cells.append(
                    nbformat.v4.new_code_cell(f"%mcp check {exercise['name']}", metadata=checked)
                )
            # Further down, all is as the reader finds it.
            cells.append(nbformat.v4.new_code_cell(cell.source))
    answered = nbformat.NotebookNode(book)
    answered["cells"] = cells
    return answered


def misjudged(book: nbformat.NotebookNode) -> list[str]:
    """The exercises whose right answer was not accepted, or whose wrong one was, each with what the
    check said.
    """
    wrong = []
    for cell in book.cells:
        for kind in {"right", "wrong"} & set(cell.metadata.get("tags", ())):
            said = " ".join(map(text_of, cell.outputs))
            if said.startswith("✓") is not (kind == "right"):
                wrong.append(
                    f"the {kind} answer of {cell.metadata.name}: {said or 'nothing was said'}"
                )
    return wrong


def savings(book: nbformat.NotebookNode) -> dict[str, list[int]]:
    """What each cell's output says that a turn saves, in percent."""
    return {
        cell.id: [
            int(percent)
            for output in cell.get("outputs", ())
            # A widget's picture changes with later cells, and its last state is a matter of time.
            if not text_of(output).startswith(WIDGETS)
            for percent in re.findall(r"(\d+)% less than", text_of(output))
        ]
        for cell in book.cells
    }


def changed(committed: dict[str, list[int]], now: dict[str, list[int]]) -> list[str]:
    """The cells that save another share now than their committed output says."""
    stale = []
    for cell, before in committed.items():
        after = now[cell]
        if len(before) != len(after) or any(
            abs(one - other) > 1 for one, other in zip(before, after, strict=True)
        ):
            stale.append(f"cell {cell}: {before} before, {after} now, in percent")
    return stale


def startup_seconds(output: nbformat.NotebookNode) -> list[float]:
    """The startup times of servers in an output, in seconds."""
    rows = [line for line in text_of(output).splitlines() if "✓ ready" in line]
    return [float(found[1]) for row in rows if (found := re.search(r" ([\d.]+) s$", row.rstrip()))]


def text_of(output: nbformat.NotebookNode) -> str:
    """What an output says in plain text."""
    if output.output_type == "stream":
        return output.text.rstrip()
    return output.get("data", {}).get("text/plain", "").rstrip()


if __name__ == "__main__":
    sys.exit(main())
