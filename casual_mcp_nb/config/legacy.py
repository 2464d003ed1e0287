"""Configs from casual-mcp before 1.0: models that name a provider and an endpoint, which
`migrate-config` makes clients of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.config.document import KeyPath

_LEGACY_CLIENT = {"provider": "provider", "endpoint": "base_url"}
_LEGACY_MODEL = ("client", "model", "template", "temperature")


def is_legacy(data: Mapping[str, Any]) -> bool:
    """Check whether a config is from casual-mcp before 1.0: it has no clients, and models with a
    `provider`.
    """
    models = data.get("models")
    named = isinstance(models, Mapping) and any(
        isinstance(each, Mapping) and "provider" in each for each in models.values()
    )
    return named and not data.get("clients")


def migrate_legacy_config(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Migrate a config from casual-mcp before 1.0 to clients, one per provider and endpoint, or
    None if it is not one.
    """
    if not is_legacy(data):
        return None
    return _migrated(data, {})


def moved_fields(data: Mapping[str, Any]) -> dict[KeyPath, KeyPath]:
    """Map the key paths of what `migrate_legacy_config` makes to those where it was."""
    moved: dict[KeyPath, KeyPath] = {}
    if is_legacy(data):
        _migrated(data, moved)
    return moved


def _migrated(data: Mapping[str, Any], moved: dict[KeyPath, KeyPath]) -> dict[str, Any]:
    clients: dict[str, dict[str, Any]] = {}
    models: dict[str, Any] = {}
    for name, model in data["models"].items():
        if not isinstance(model, Mapping) or "provider" not in model:
            models[name] = model
            continue
        client = {}
        for old, key in _LEGACY_CLIENT.items():
            if model.get(old) not in (None, ""):
                client[key] = model[old]
        provider = str(model["provider"])
        names = (
            provider,
            *(f"{provider}-{number}" for number in range(2, len(data["models"]) + 2)),
        )
        chosen = next(each for each in names if clients.get(each, client) == client)
        if chosen not in clients:
            moved["clients", chosen] = ("models", name)
            for old, key in _LEGACY_CLIENT.items():
                moved["clients", chosen, key] = ("models", name, old)
        moved["models", name, "client"] = ("models", name, "provider")
        clients[chosen] = client
        models[name] = {"client": chosen}
        for key in _LEGACY_MODEL:
            if key in model:
                models[name][key] = model[key]
    return {**data, "models": models, "clients": clients}


def dropped_fields(data: Mapping[str, Any]) -> list[KeyPath]:
    """List the models' keys that `migrate_legacy_config` drops."""
    if not is_legacy(data):
        return []
    keys = {*_LEGACY_CLIENT, *_LEGACY_MODEL}
    dropped: list[KeyPath] = []
    for name, model in data["models"].items():
        if isinstance(model, Mapping):
            dropped += [("models", name, key) for key in model if key not in keys]
    return dropped
