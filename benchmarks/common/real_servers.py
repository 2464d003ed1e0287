"""Six real third-party servers for the benchmarks: `python3 .ci/third_party.py` installs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from common import ROOT
from common.figures import Unavailable

FOLDER = ROOT / ".third-party"
BIN = "Scripts" if sys.platform == "win32" else "bin"


def configs(files: Path) -> dict[str, dict[str, Any]]:
    """Return their configs by name.

    Args:
        files: A folder for them to use.

    Raises:
        Unavailable: They are not installed.
    """
    if not all((FOLDER / part / "installed").exists() for part in ("python", "node_modules")):
        raise Unavailable("The servers are missing: `python3 .ci/third_party.py` installs them.")
    return {
        "clock": _python("time", "--local-timezone", "UTC"),
        "git": _python("git"),
        "fetch": _python("fetch"),
        "everything": _node("everything"),
        "filesystem": _node("filesystem", str(files)),
        "memory": _node("memory") | {"env": {"MEMORY_FILE_PATH": str(files / "memory.jsonl")}},
    }


def _python(name: str, *args: str) -> dict[str, Any]:
    return {"command": str(FOLDER / "python" / BIN / f"mcp-server-{name}"), "args": list(args)}


def _node(name: str, *args: str) -> dict[str, Any]:
    program = (
        FOLDER / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    )
    return {"command": "node", "args": [str(program), *args]}
