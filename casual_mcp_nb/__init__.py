"""casual_mcp_nb: the notebook workbench for LLM tool-calling over MCP.

In a notebook: `%load_ext casual_mcp_nb`, then `%mcp demo`. In a script: `from casual_mcp_nb import
Session`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.displayable import Display, draw_with, show_with
from casual_mcp_nb.base.patient_import import PatientFinder
from casual_mcp_nb.compat import ModuleFinder

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# `casual_mcp_nb.models` and casual-mcp's other modules, after everything that has a file.
sys.meta_path.append(ModuleFinder())
sys.meta_path.insert(0, PatientFinder())


def _read_stub() -> dict[str, str]:
    """Read each public name's module from the stub's lines `from MODULE import NAME as NAME`."""
    homes: dict[str, str] = {}
    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
        for line in stub:
            words = line.split()
            if words[4:5] == ["as"]:
                homes[words[5]] = words[1]
    return homes


_HOMES = _read_stub()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name == "models":
        return importlib.import_module(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    if hasattr(value, "model_rebuild"):
        # Its fields and signature, which editors show, are left for the first use.
        value.model_rebuild()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _display() -> Display:
    from casual_mcp_nb import views as display

    return display


draw_with(_display)


def _widgets() -> Callable[[Any], Any]:
    from casual_mcp_nb.widgets.app import AppWidget

    return AppWidget


show_with(_widgets)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext casual_mcp_nb`: add the magics.

    Prints nothing, connects nothing, imports no engine.
    """
    from casual_mcp_nb.magics import register

    register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext casual_mcp_nb`: close the magics' sessions and unload the magics."""
    from casual_mcp_nb.magics import unregister

    unregister(shell)
