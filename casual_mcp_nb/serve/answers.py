"""The JSON bodies that clients receive."""

from __future__ import annotations

from typing import Literal, Self

from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage
from pydantic import BaseModel, Field

from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.tokens import Origin


class Tokens(BaseModel):
    """Tokens of all calls of the model in the turn; null if unknown."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    origin: Origin = Field(description="Who counted them.")


class ToolCallCounts(BaseModel):
    """Tool calls of the turn. `search_tools` and its like count under the server `_synthetic`."""

    by_tool: dict[str, int]
    by_server: dict[str, int]
    total: int


class Discovery(BaseModel):
    """Searches of the turn."""

    search_calls: int
    tools_discovered: int


class Stats(BaseModel):
    """The resources that the turn used."""

    tokens: Tokens
    tool_calls: ToolCallCounts
    llm_calls: int
    discovery: Discovery | None = Field(description="Null if discovery is off.")

    @classmethod
    def of(cls, stats: ChatStats) -> Self:
        """Convert the stats of a turn."""
        tokens, calls, discovery = stats.tokens, stats.tool_calls, stats.discovery
        return cls(
            tokens=Tokens(
                prompt_tokens=tokens.prompt_tokens,
                completion_tokens=tokens.completion_tokens,
                total_tokens=tokens.total_tokens,
                origin=tokens.origin,
            ),
            tool_calls=ToolCallCounts(by_tool=dict(calls.by_tool), by_server=dict(calls.by_server), total=calls.total),
            llm_calls=stats.llm_calls,
            discovery=Discovery(search_calls=discovery.search_calls, tools_discovered=discovery.tools_discovered)
            if discovery
            else None,
        )


class DeniedTool(BaseModel):
    """A tool that the model called and that was not run, because nobody could be asked."""

    tool: str = Field(description="Its name, `server:tool`.")
    reason: str = Field(description="Why its calls would be asked about.")
    option: str = Field(description="How whoever runs the service allows them; empty where nothing does.")


class Answer(BaseModel):
    """The answer to a conversation."""

    messages: list[AssistantMessage | ToolResultMessage | SystemMessage | UserMessage] = Field(
        description="What the turn adds to the conversation: answers, calls, results."
    )
    response: str = Field(description="The text of the last answer.")
    stats: Stats | None = Field(default=None, description="With `include_stats`.")
    denied: list[DeniedTool] = Field(default_factory=list, description="The tools that were denied, if there are any.")


class ToolSetEntry(BaseModel):
    """A toolset."""

    description: str
    servers: list[str]


class Health(BaseModel):
    """The state of the service."""

    status: Literal["ok"]
