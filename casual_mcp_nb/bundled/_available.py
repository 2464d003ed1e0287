"""The bundled servers that can run here, and the reasons why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from casual_mcp_nb.bundled.registry import BUNDLED, Missing, bundled_server
from casual_mcp_nb.doors import in_words_of


@dataclass(frozen=True)
class Available:
    """The bundled servers that can run here, and why the others are left out.

    Args:
        servers: An entry for the `servers` of a config for each one that can run, by name.
        missing: What the others need, by name.
    """

    servers: Mapping[str, dict[str, str]]
    missing: Mapping[str, Missing]

    def __str__(self) -> str:
        lines = [f"{name}: ready" for name in self.servers]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.missing.items())])


def available(*names: str) -> Available:
    """List the bundled servers that can run here, with the reasons why the others cannot.

    Nothing is started, and no library of a server is imported.

    Args:
        names: The servers wanted, also those that are off by default. Without names: all that are on by default, and the
            others are in `missing`.

    Raises:
        ValueError: A name is unknown; the message names the valid ones.
    """
    servers: dict[str, dict[str, str]] = {}
    missing: dict[str, Missing] = {}
    for server in [bundled_server(name) for name in names] or BUNDLED.values():
        why = server.missing()
        if why is None and not server.default and not names:
            why = Missing("off by default", in_words_of(f"%mcp add {server.name}"))
        if why is None:
            servers[server.name] = {"bundled": server.name}
        else:
            missing[server.name] = why
    return Available(servers, missing)
