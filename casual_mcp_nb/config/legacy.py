"""Configs from casual-mcp before 1.0: models that name a provider and an endpoint, which
`migrate-config` makes clients of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.config.document import KeyPath

_LEGACY_CLIENT = {"provider": "provider", "endpoint": "base_url"}
_LEGACY_MODEL = ("client", "model", "template", "temperature")


@dataclass(frozen=True)
class Migrated:
    """A config with clients.

    Args:
        data: The config.
        moved: Where its parts were, by the key paths that they have now.
        dropped: The models' keys that it does not have any more.
    """

    data: dict[str, Any]
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict)
    dropped: list[KeyPath] = field(default_factory=list)


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
    return migrated_legacy(data).data if is_legacy(data) else None


def migrated_legacy(data: Mapping[str, Any]) -> Migrated:
    """Migrate a config from casual-mcp before 1.0 to clients. Any other one stays as it is."""
    new = Migrated({**data})
    if not is_legacy(data):
        return new
    clients: dict[str, dict[str, Any]] = {}
    models: dict[str, Any] = {}
    for name, model in data["models"].items():
        if not isinstance(model, Mapping):
            models[name] = model
            continue
        for key in model:
            if key not in _LEGACY_CLIENT and key not in _LEGACY_MODEL:
                new.dropped.append(("models", name, key))
        if "provider" not in model:
            models[name] = model
            continue
        client = {}
        for old, key in _LEGACY_CLIENT.items():
            if model.get(old) not in (None, ""):
                client[key] = model[old]
        chosen = provider = str(model["provider"])
        number = 1
        while clients.setdefault(chosen, client) != client:
            number += 1
            chosen = f"{provider}-{number}"
        if clients[chosen] is client:
            new.moved["clients", chosen] = ("models", name)
            for old, key in _LEGACY_CLIENT.items():
                new.moved["clients", chosen, key] = ("models", name, old)
        new.moved["models", name, "client"] = ("models", name, "provider")
        models[name] = {"client": chosen}
        for key in _LEGACY_MODEL:
            if key in model:
                models[name][key] = model[key]
    new.data.update(models=models, clients=clients)
    return new
