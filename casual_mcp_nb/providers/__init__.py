"""Model providers over casual-llm: the factory, a model bound to its client, the offline planner and the scripted model.

Importing this module imports no SDK; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_mcp_nb.providers.base import ChatModel, ModelResponse, RequestAdapted, Retries, RetryScheduled
    from casual_mcp_nb.providers.builtin.offline import OfflineClient
    from casual_mcp_nb.providers.factory import ModelFactory
    from casual_mcp_nb.providers.scripted import ScriptedClient, call, calls, scripted_model

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

_HOMES = {
    "RequestAdapted": "base",
    "ChatModel": "base",
    "ModelResponse": "base",
    "ModelFactory": "factory",
    "OfflineClient": "builtin.offline",
    "Retries": "base",
    "RetryScheduled": "base",
    "ScriptedClient": "scripted",
    "call": "scripted",
    "calls": "scripted",
    "scripted_model": "scripted",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
