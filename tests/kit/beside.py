"""Files beside a notebook that are named like modules that a server imports."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    "random",
    "http",
    "email",
    "string",
    "calendar",
    "types",
    "mcp",
    "fastmcp",
    "casual_mcp_nb",
)


def write_beside(folder: Path) -> None:
    """Write a file for each of these names that does not even load."""
    for name in NAMES:
        (folder / f"{name}.py").write_text("raise SystemExit(f'{__file__} was loaded')\n")
