"""Files of JSON lines, and JSON values with a wrong field."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write(path: Path, rows: Iterable[dict[str, Any] | str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def spoiled(value: Any, wrong: Any) -> list[Any]:
    """Copy a JSON value once for each field in it, with that field replaced."""
    copies: list[Any] = []
    items = list(enumerate(value)) if isinstance(value, list) else []
    if isinstance(value, dict):
        items = list(value.items())
    for key, item in items:
        for new in (wrong, *spoiled(item, wrong)):
            copy = value.copy()
            copy[key] = new
            copies.append(copy)
    return copies
