"""A config being converted from another host's format to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.config.inputs import Input
from casual_mcp_nb.config.problems import ConfigProblem, KeyPath


def servers_in(data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Iterate over the names and entries of a config's servers, skipping malformed ones."""
    servers = data.get("servers")
    return [(name, server) for name, server in servers.items() if isinstance(server, dict)] if isinstance(servers, dict) else []


@dataclass
class AdaptedConfig:
    """A config in our own format. Its repr shows no values.

    Args:
        data: The config as plain objects, copied from the caller's.
        written: For key paths that moved, the original path.
        inputs: The inputs that a person is prompted for.
        of_host: Whether the file is another host's.
        notes: What was ignored or left out.
        remarks: What was ignored, by server name.
        problems: What could not be converted.
    """

    data: dict[str, Any] = field(repr=False)
    written: dict[KeyPath, KeyPath] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    of_host: bool = False
    notes: list[str] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def as_written(self, path: KeyPath) -> KeyPath:
        """Convert the key path to the one that the person wrote."""
        for size in range(len(path), 0, -1):
            if path[:size] in self.written:
                return self.written[path[:size]] + path[size:]
        return path

    def problem(self, path: KeyPath, text: str) -> None:
        """Report a problem at a key path, which may have moved."""
        self.problems.append(ConfigProblem(self.as_written(path), text))
