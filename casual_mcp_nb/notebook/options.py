"""The options of the turns of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.before_model_call import BeforeModelCall
from casual_mcp_nb.engine.options import CommonTurnFields

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.providers.base import ChatModel
    from casual_mcp_nb.types.config import ToolSetConfig


class ChatOptions(CommonTurnFields, total=False):
    """What a turn of a session can do differently, as keyword arguments of `chat` and its twins; see `Session.chat`."""

    model: str | Model | ChatModel | None
    tool_set: str | ToolSetConfig | None
    system: str | None
    meta: Mapping[str, Any] | None
    step: bool | BeforeModelCall | None
