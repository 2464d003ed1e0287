"""Widgets over a session: thin front ends over plain states."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Explorer": "explorer",
    "ManifestView": "small",
    "Panel": "panel",
    "SearchBox": "small",
    "ServerToggles": "small",
    "TokenMeter": "panel",
    "ToolsetPicker": "small",
}

__all__ = ["Explorer", "ManifestView", "Panel", "SearchBox", "ServerToggles", "TokenMeter", "ToolsetPicker"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
