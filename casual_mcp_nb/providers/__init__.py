"""Model providers over casual-llm: the factory, a model bound to its client, the offline planner and the scripted model.

Importing this package does not import any SDK.
"""

from __future__ import annotations

from casual_mcp_nb.providers.base import RequestAdapted, Retries, RetryScheduled
from casual_mcp_nb.providers.builtin.offline import OfflineClient
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import ScriptedClient, call, calls, scripted_model
from casual_mcp_nb.types.model_response import ModelResponse

__all__ = [
    "ChatModel",
    "ModelFactory",
    "ModelResponse",
    "OfflineClient",
    "RequestAdapted",
    "Retries",
    "RetryScheduled",
    "ScriptedClient",
    "call",
    "calls",
    "scripted_model",
]
