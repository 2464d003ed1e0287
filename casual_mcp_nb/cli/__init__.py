"""The command `casual-mcp-nb`: the magics' features in a shell.

Modules of this room import only light modules at their top, so that `--help` and `--version` are quick; a command imports
what it needs when it runs.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Of casual-mcp's module of this name, all other functions are commands.
    if name != "migrate_legacy_config":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from casual_mcp_nb.config.hosts import migrate_legacy_config

    return migrate_legacy_config
