"""The options of a turn as keyword arguments, each declared once. Imports nothing slow, because the magics import it too."""

# Without postponed annotations: the metadata in `Annotated` is read.
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS, DeliverySetting, Flag, ModelOptions

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Discovery, Strategy, ToolSetConfig
    from casual_mcp_nb.engine.before_model_call import BeforeModelCall
    from casual_mcp_nb.providers.chat_model import ChatModel


class TurnFields(ModelOptions, total=False):
    """The options of `McpToolChat.chat` that it accepts by name only."""

    template: Annotated[str | None, Flag("the template of the system prompt for this turn", "NAME")]
    variables: Mapping[str, Any] | None
    context: Mapping[str, Any] | None
    discovery: Annotated["Discovery | None", Flag("send all tools with every request", name="--no-discovery", value=False)]
    strategy: Annotated["Strategy | None", Flag("how the model finds deferred tools", "search|browse")]
    delivery: Annotated[DeliverySetting | None, Flag("how the model receives search results", "|".join(DELIVERY_SETTINGS))]
    max_steps: Annotated[int | None, Flag("maximum number of model calls", "N", int)]
    stream: bool | None
    mock: Mapping[str, Any] | None
    repair_calls: Annotated[bool | None, Flag("run calls that the model writes as text", name="--repair-calls", value=True)]


class NamedTurnFields(TurnFields, total=False):
    """All options of a turn: these, and those that `McpToolChat.chat` also accepts by position."""

    model: Annotated["str | Model | ChatModel | None", Flag("the model for this turn", "NAME")]
    tool_set: Annotated["str | ToolSetConfig | None", Flag("the toolset for this turn", "NAME", name="--toolset")]
    system: Annotated[str | None, Flag("the system prompt for this turn", "TEXT")]
    meta: Mapping[str, Any] | None


class ChatOptions(NamedTurnFields, total=False):
    """The options of one turn of a session, as keyword arguments of `chat` and its variants; see `Session.chat`."""

    step: "bool | BeforeModelCall | None"
    attach: Annotated[Any, Flag("a resource to add to the message", "URI")]
