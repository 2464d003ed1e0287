"""What an Ollama server says about a model: whether it can think, and in which levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_ORDER = ("low", "medium", "high", "max")

_shown: WeakKeyDictionary[Any, dict[str, Mapping[str, Any]]] = WeakKeyDictionary()


async def facts_of(client: Any, model: str) -> Mapping[str, Any]:
    """Return what `/api/show` says about a model, asked once; empty where the server does not say.

    Args:
        client: A casual-llm client for Ollama, which forgets it when it is gone.
        model: The server's name of the model.
    """
    models = _shown.setdefault(client, {})
    if model not in models:
        try:
            response = await client.client._client.post("/api/show", json={"model": model})
            response.raise_for_status()
            facts = response.json()
        except Exception:
            # Where this is more than an old server, the request for an answer fails too, and says so.
            return {}
        models[model] = facts if isinstance(facts, dict) else {}
    return models[model]


def thinks(facts: Mapping[str, Any]) -> bool | None:
    """Whether a model can think; None where the server does not say."""
    values = _values(facts)
    if values is not None:
        return any(value is not False for value in values)
    capabilities = facts.get("capabilities")
    return "thinking" in capabilities if isinstance(capabilities, list) else None


def think_value(facts: Mapping[str, Any], effort: str) -> bool | str | None:
    """Return the value of `think` for an effort; None where nothing is to be sent.

    Only models of the gpt-oss family, and those whose server lists levels, take a level; all others true or false.

    Args:
        facts: What the server says about the model.
        effort: As of `RequestOptions.reasoning_effort`.
    """
    if thinks(facts) is False:
        return None
    levels = _levels(facts)
    if effort == "none":
        # A model with levels alone cannot leave it.
        values = _values(facts)
        return levels[0] if levels and (values is None or False not in values) else False
    if not levels:
        return True
    if effort in levels:
        return effort
    wanted = _LEVELS[effort]
    return wanted if wanted in levels else levels[-1]


def _values(facts: Mapping[str, Any]) -> list[Any] | None:
    thinking = facts.get("thinking")
    values = thinking.get("values") if isinstance(thinking, dict) else None
    return values if isinstance(values, list) else None


def _levels(facts: Mapping[str, Any]) -> list[str]:
    values = _values(facts)
    if values is not None:
        return sorted((value for value in values if value in _ORDER), key=_ORDER.index)
    details = facts.get("details")
    family = str(details.get("family") if isinstance(details, dict) else "").replace("-", "")
    return ["low", "medium", "high"] if family == "gptoss" else []
