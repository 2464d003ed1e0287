"""Processes that find none of the SDKs of providers: to import those takes most of the time of a short process."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).with_name("sdks_left_out")


def lean(*folders: Path | str) -> dict[str, str]:
    """Variables for the environment of such a process.

    Args:
        *folders: Where it looks for modules besides.
    """
    return {"PYTHONPATH": os.pathsep.join(map(str, [FOLDER, *folders]))}
