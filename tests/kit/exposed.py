"""Ways in which others can read or replace a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def moved_behind_a_link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def folder_behind_a_link(path: Path) -> None:
    folder = path.parent
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


EXPOSED: dict[str, Callable[[Path], object]] = {
    "everybody can read it": lambda path: path.chmod(0o644),
    "its group can read it": lambda path: path.chmod(0o640),
    "everybody can write to it": lambda path: path.chmod(0o602),
    "everybody can write to its folder": lambda path: path.parent.chmod(0o777),
    "a group can write to its folder": lambda path: path.parent.chmod(0o770),
    "everybody can write to the folder around": lambda path: path.parents[1].chmod(0o777),
    "it is a link": moved_behind_a_link,
    "its folder is a link": folder_behind_a_link,
}
"""What makes a file one that others can read or replace."""
