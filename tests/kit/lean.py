"""Processes that find none of the SDKs of providers: to import those takes most of the time of a
short process.
"""

from __future__ import annotations

import os
from pathlib import Path

SDKS = Path(__file__).with_name("sdks_left_out")
OPENAI = Path(__file__).with_name("openai_left_out")


def lean(*folders: Path | str, openai: bool = False) -> dict[str, str]:
    """Variables for the environment of such a process.

    Args:
        *folders: Where it looks for modules besides.
        openai: Whether it finds the SDK of OpenAI.
    """
    found = [SDKS, *folders]
    if not openai:
        found.insert(1, OPENAI)
    # A run that tests another tree than the installed one says so with this variable.
    found += [each for each in [os.environ.get("PYTHONPATH")] if each]
    return {"PYTHONPATH": os.pathsep.join(map(str, found))}
