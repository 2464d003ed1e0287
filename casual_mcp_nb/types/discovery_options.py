"""Options for finding deferred tools, set by the config and changed by the selection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictBool

from casual_mcp_nb.types.delivery import DeliverySetting

Discovery = bool | Literal["auto"]
"""Whether deferred tools are hidden behind the search tool; `auto` decides it by what all definitions take."""
Strategy = Literal["search", "browse"]
"""How the model finds deferred tools: by searching for words, or by browsing categories."""


@dataclass(frozen=True)
class Limit:
    """How a limit is presented to people.

    Args:
        label: Its name in displays and next to its control.
        unit: What it counts.
        help: What it limits.
    """

    label: str
    unit: str
    help: str


class DiscoveryOptions(BaseModel):
    """Options for finding deferred tools.

    Each option is declared only here. It is a key of `tool_discovery` in a config, a field of `Selection`, and a name of `%mcp
    option`; one with a `Limit` is also a row of the selection's display and a control of the explorer.

    Args:
        defer_all: Whether every loaded server counts as deferred.
        max_search_results: Maximum number of tools that one search returns; 1 or more.
        max_search_tokens: Maximum estimated tokens of the definitions that one search loads; one tool can always be loaded.
        strategy: How to find them: by `search`, or by `browse`, which lists categories and loads and unloads tools by name.
        manifest_max_tokens: Maximum size of the manifest in estimated tokens; over it, its lines get shorter.
        max_active_tools: Maximum number of tools loaded at a time by browsing; 1 or more.
        max_active_tokens: Maximum size of their definitions in estimated tokens; one tool can always be loaded.
        delivery: How the model gets the tools that were found: as `definitions` in the request, by its provider (`native`), or
            through `call_tool` (`bridge`). `auto` is `native` for models that are known to support it, else `definitions`.
        auto_threshold: The share of the model's context window, in percent, above which tool definitions are deferred if
            discovery is `auto`.
    """

    defer_all: StrictBool = False
    max_search_results: Annotated[int, Limit("Max results", "tool", "Each tool that a search returns costs its definition")] = (
        Field(default=5, ge=1)
    )
    max_search_tokens: Annotated[
        int,
        Limit("Max size of a search", "estimated token", "Tools beyond it are named in the answer and not loaded"),
    ] = Field(default=20_000, ge=1)
    strategy: Strategy = "search"
    manifest_max_tokens: Annotated[
        int, Limit("Max manifest size", "estimated token", "Above it the lines of the manifest are shortened")
    ] = Field(default=2_000, ge=1)
    max_active_tools: Annotated[
        int, Limit("Max tools loaded by browsing", "tool", "Beyond it the model has to unload a tool first")
    ] = Field(default=20, ge=1)
    max_active_tokens: Annotated[
        int,
        Limit("Max size of tools loaded by browsing", "estimated token", "Beyond it the model has to unload a tool first"),
    ] = Field(default=20_000, ge=1)
    delivery: DeliverySetting = "auto"
    auto_threshold: float = Field(default=5, gt=0, le=100)

    def discovery_options(self) -> dict[str, object]:
        """Collect the options by name."""
        return {name: getattr(self, name) for name in DiscoveryOptions.model_fields}


def option_limits() -> Iterator[tuple[str, Limit]]:
    """Yield the name and the `Limit` of each option that has one."""
    for name, field in DiscoveryOptions.model_fields.items():
        yield from ((name, item) for item in field.metadata if isinstance(item, Limit))
