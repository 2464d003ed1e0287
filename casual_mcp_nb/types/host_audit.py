"""The token cost of a config's tools, server by server and tool by tool, and the saving by deferring them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.types.budget import Budget
from casual_mcp_nb.types.displayable import DisplayableList, display
from casual_mcp_nb.types.session import ServerState
from casual_mcp_nb.types.tool import ToolName


@dataclass(frozen=True)
class ToolTokens:
    """The cost of one tool.

    Args:
        tool: The tool.
        tokens: Estimated tokens of its definition.
    """

    tool: ToolName
    tokens: int


@dataclass(frozen=True)
class ServerTokens:
    """The cost of one server's tools.

    Args:
        server: The server.
        state: Its state; `failed` also if its entry in the config cannot be used.
        tools: Its tools that a model is offered, the most expensive first.
        error: Why it failed; None if all is well.
        instructions: Estimated tokens of its instructions, which hosts add to the system prompt.
        left_out: Tools of its list that cannot be used, each with the reason.
    """

    server: str
    state: ServerState
    tools: tuple[ToolTokens, ...] = ()
    error: str | None = None
    instructions: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def tokens(self) -> int:
        """Estimated tokens of its definitions."""
        return sum(tool.tokens for tool in self.tools)


@dataclass(frozen=True)
class HostAudit(DisplayableList[ServerTokens]):
    """The cost of an MCP host's config in each request, and the saving by deferring all of its tools.

    Args:
        source: The config's file.
        servers: Its servers, the most expensive first.
        deferred_tokens: Estimated tokens of what would be sent instead: `search_tools` with the manifest, and the tools that
            the config always loads.
        budget: What whole turns cost with every tool deferred, and with every tool loaded; None without tools.
        notes: How the config was read: what is left out of it.
    """

    source: str
    servers: tuple[ServerTokens, ...] = ()
    deferred_tokens: int = 0
    budget: Budget | None = None
    notes: tuple[str, ...] = ()

    @property
    def _items(self) -> tuple[ServerTokens, ...]:
        return self.servers

    @property
    def tokens(self) -> int:
        """Estimated tokens of all definitions, which are sent with every request."""
        return sum(server.tokens for server in self.servers)

    @property
    def saved(self) -> float | None:
        """The share of them that deferring saves in the first request, below 0 where it costs more; None without tools."""
        return 1 - self.deferred_tokens / self.tokens if self.tokens else None

    @property
    def failed(self) -> tuple[ServerTokens, ...]:
        """The servers whose tools are not known."""
        return tuple(server for server in self.servers if server.error is not None)

    def to_frame(self) -> Any:
        """Build a pandas DataFrame with one row per tool.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        return display().frame_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "source": self.source,
            "tokens": self.tokens,
            "deferred_tokens": self.deferred_tokens,
            "saved": self.saved,
            "turn": None if self.budget is None else self.budget.undeferred.turn,
            "deferred_turn": None if self.budget is None else self.budget.now.turn,
            "notes": list(self.notes),
            "servers": [
                {
                    "name": server.server,
                    "state": server.state,
                    "error": server.error,
                    "tokens": server.tokens,
                    "instructions": server.instructions,
                    "tools": [{"name": each.tool.tool, "tokens": each.tokens} for each in server.tools],
                    "left_out": dict(server.left_out),
                }
                for server in self.servers
            ],
        }
