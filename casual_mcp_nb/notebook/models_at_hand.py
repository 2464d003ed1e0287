"""Language models that could be used here: of a model server that runs on this computer, or of a provider whose key is set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.providers.local_servers import RunningServer, running_servers
from casual_mcp_nb.providers.registry import specs


@dataclass(frozen=True)
class ModelAtHand:
    """A model that could be used.

    Args:
        source: Where it is: the name of a model server, or the variable of a key.
        reason: Why it can be used, in words.
        model: The model as `Session.quick` takes it.
    """

    source: str
    reason: str
    model: str


def models_at_hand(variables: Mapping[str, str], running: Iterable[RunningServer] | None = None) -> list[ModelAtHand]:
    """Find one model of each model server that runs here, then one of each provider whose key is set.

    Args:
        variables: The environment, in which keys are looked for.
        running: The model servers that run; None asks for them, which takes 0.2 seconds at most.
    """
    servers = running_servers() if running is None else running
    return [*map(_local, servers), *_by_key(variables)]


def hint_of(models: Iterable[ModelAtHand]) -> str:
    """Format one sentence on the first of some models, with the line that uses it in the demo; empty where there is none."""
    first = next(iter(models), None)
    return in_words_of(f"{first.source} {first.reason}. To use it: %mcp demo --model {first.model}") if first else ""


def _local(running: RunningServer) -> ModelAtHand:
    names = ", ".join(running.models[:3])
    more = f" and {len(running.models) - 3} more" if len(running.models) > 3 else ""
    return ModelAtHand(running.server.title, f"runs here with {names}{more}", f"{running.server.name}:{running.models[0]}")


def _by_key(variables: Mapping[str, str]) -> Iterator[ModelAtHand]:
    for spec in specs().values():
        if spec.example_model and spec.key_variable and variables.get(spec.key_variable):
            reason = "is set" if _is_installed(spec.sdk) else f"is set, after pip install 'casual-mcp-nb[{spec.sdk}]'"
            yield ModelAtHand(spec.key_variable, reason, f"{spec.name}:{spec.example_model}")


def _is_installed(sdk: str | None) -> bool:
    try:
        return sdk is None or bool(version(sdk))
    except PackageNotFoundError:
        return False
