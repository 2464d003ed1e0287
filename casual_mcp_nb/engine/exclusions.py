"""Tools that the config excludes: no model is offered them, whatever is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from casual_mcp_nb.errors import closest, did_you_mean, shown
from casual_mcp_nb.types.event import Notice
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.tool import Catalog, ToolName


class Exclusions:
    """The tools that `include_tools` and `exclude_tools` exclude from a catalog, computed once per catalog.

    Args:
        config_of: Returns the config of a server, if it has one.
    """

    def __init__(self, config_of: Callable[[str], ServerConfig | None]) -> None:
        self._config_of = config_of
        self._catalog: Catalog | None = None
        self._excluded: frozenset[ToolName] = frozenset()
        self._notices: tuple[Notice, ...] = ()

    def of(self, catalog: Catalog) -> frozenset[ToolName]:
        """Find the tools of a catalog that are excluded."""
        self._update(catalog)
        return self._excluded

    def notices(self, catalog: Catalog) -> tuple[Notice, ...]:
        """Build a notice for each list of a server that names tools which the server does not have."""
        self._update(catalog)
        return self._notices

    def _update(self, catalog: Catalog) -> None:
        if catalog is not self._catalog:
            self._excluded = frozenset(
                tool.tool_name
                for server, tools in catalog.by_server.items()
                if (config := self._config_of(server)) is not None
                for tool in tools
                if not config.offers(tool.name)
            )
            self._notices = tuple(self._unknown(catalog))
            self._catalog = catalog

    def _unknown(self, catalog: Catalog) -> Iterator[Notice]:
        for server, tools in catalog.by_server.items():
            config = self._config_of(server)
            if config is None:
                continue
            names = [tool.name for tool in tools]
            listed = {"include_tools": config.include_tools or (), "exclude_tools": config.exclude_tools}
            for key, patterns in listed.items():
                unknown = [pattern for pattern in patterns if not any(_fits(name, pattern) for name in names)]
                if unknown:
                    hint = did_you_mean(closest(unknown[0], names), names)
                    listed_names = ", ".join(map(shown, unknown[:8]))
                    text = f"{key} of server {shown(server)} names tools that it does not have: {listed_names}. {hint}"
                    yield Notice(text, server=server)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
