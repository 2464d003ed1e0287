"""Model providers over casual-llm: the factory, a model bound to its client, the offline planner and the scripted model.

Importing this module imports no SDK; a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_mcp_nb.providers.base import Adapted, ChatModel, ModelAnswer, Retries, Retrying
    from casual_mcp_nb.providers.factory import ModelFactory
    from casual_mcp_nb.providers.offline import OfflineClient
    from casual_mcp_nb.providers.scripted import ScriptedClient, call, calls, scripted_model

__all__ = [
    "Adapted",
    "ChatModel",
    "ModelAnswer",
    "ModelFactory",
    "OfflineClient",
    "Retries",
    "Retrying",
    "ScriptedClient",
    "call",
    "calls",
    "scripted_model",
]

_HOMES = {
    "Adapted": "base",
    "ChatModel": "base",
    "ModelAnswer": "base",
    "ModelFactory": "factory",
    "OfflineClient": "offline",
    "Retries": "base",
    "Retrying": "base",
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
