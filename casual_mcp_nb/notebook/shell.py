"""IPython's shell, if there is one. Imports nothing else, so that a first output need not wait."""

from __future__ import annotations

import sys
from typing import Any


def shell() -> Any | None:
    """Get IPython's shell if there is one, in a kernel or a terminal, else None. Does not import IPython."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def notebook_shell() -> Any | None:
    """Get IPython's shell if this process is a Jupyter kernel, else None."""
    running = shell()
    return running if hasattr(running, "kernel") else None
