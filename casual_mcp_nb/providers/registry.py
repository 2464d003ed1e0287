"""Registry of providers: those that ship with the package, and those that other packages add.

Importing this module does not import any SDK. A package adds a provider with an entry point in the group
`casual_mcp_nb.providers` that refers to a `ProviderSpec`.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers import builtin
from casual_mcp_nb.providers.spec import ProviderSpec
from casual_mcp_nb.types.options import RequestOptions

if TYPE_CHECKING:
    from casual_mcp_nb.types.config import ClientConfig, ModelConfig

GROUP = "casual_mcp_nb.providers"
_logger = logging.getLogger(GROUP)


@cache
def specs() -> Mapping[str, ProviderSpec]:
    """List every provider by name. Bundled providers cannot be replaced."""
    providers: dict[str, ProviderSpec] = {}
    for spec in (*_built_in().values(), *_added()):
        if providers.setdefault(spec.name, spec) is not spec:
            _logger.warning("There are two providers %s: the first one is used.", shown(spec.name))
    return MappingProxyType(providers)


@cache
def _built_in() -> Mapping[str, ProviderSpec]:
    modules = pkgutil.iter_modules(builtin.__path__, f"{builtin.__name__}.")
    bundled: list[ProviderSpec] = [importlib.import_module(module.name).SPEC for module in modules]
    return {spec.name: spec for spec in sorted(bundled, key=lambda spec: spec.position)}


def _added() -> Iterator[ProviderSpec]:
    for entry in entry_points(group=GROUP):
        try:
            spec: Any = entry.load()
        except Exception as error:
            # A broken package does not affect the others.
            _logger.warning("The provider %s cannot be loaded: %s", shown(entry.name), type(error).__name__)
            continue
        if isinstance(spec, ProviderSpec):
            yield spec
        else:
            _logger.warning("The provider %s is not a ProviderSpec.", shown(entry.name))


def spec_of(name: str) -> ProviderSpec:
    """Look up the provider of that name; for an unknown client, the spec of an OpenAI-compatible server."""
    # Looking up entry points reads the metadata of every installed package.
    return _built_in().get(name) or specs().get(name, _UNKNOWN)


def _refuse(name: str, config: object) -> Any:
    raise NotImplementedError(f"There is no provider for client {shown(name)}.")


_UNKNOWN = ProviderSpec(name="", about="", build=_refuse)


def loggers() -> list[str]:
    """List the names of the loggers of all SDKs."""
    return sorted({spec.sdk.replace("-", "_") for spec in specs().values() if spec.sdk})


def client_variable(client: str) -> str:
    """Name the environment variable for the key of one client.

    It is the client's name in upper case, with `_` for every character except A to Z and 0 to 9: `STRASSE_API_KEY` for
    `straße`.

    Args:
        client: The client's name in the config.
    """
    return f"{re.sub(r'[^A-Z0-9]', '_', client.upper())}_API_KEY"


def key_variables(client: str, provider: str) -> tuple[str, ...]:
    """List the environment variables for a client's key; the first one that is set wins.

    The key is sent to the client's configured URL, even if it is from the provider's own variable.

    Args:
        client: The client's name in the config.
        provider: Its provider.
    """
    own = spec_of(provider).key_variable
    return tuple(dict.fromkeys([client_variable(client), *([own] if own else [])]))


def homes_of(variable: str | None) -> tuple[str, ...]:
    """List the hosts of the provider that this variable belongs to; none for any other variable."""
    return next((spec.homes for spec in specs().values() if variable and spec.key_variable == variable), ())


def is_home_address(address: str | None, homes: Sequence[str]) -> bool:
    """Check whether an address is on one of a provider's hosts, or on a host below one. None is the provider's own."""
    try:
        host = urlsplit(address or f"https://{homes[0] if homes else ''}").hostname or ""
    except ValueError:
        return False
    return any(host == home or host.endswith(f".{home}") for home in homes)


def is_at_home(client: object, homes: Sequence[str]) -> bool:
    """Check whether a client's URL is on one of these hosts, or on a host below it."""
    host = urlsplit(raw_address_of(client)).hostname or ""
    return any(host == home or host.endswith(f".{home}") for home in homes)


def raw_address_of(client: object) -> str:
    """Read a client's URL as it is, perhaps with credentials; empty if it is not known."""
    return str(getattr(getattr(client, "client", None), "base_url", "") or getattr(client, "host", ""))


def window_of(model: ModelConfig, client: ClientConfig) -> int | None:
    """Look up the context window of a model: that of the config, else that of its provider's table; None if unknown."""
    if model.context_window is not None:
        return model.context_window
    spec = spec_of(client.provider)
    limits = spec.limits_of(model.model) if is_home_address(client.base_url, spec.homes) else None
    return limits.window if limits else None


def max_tools_of(model: ModelConfig, client: ClientConfig) -> int | None:
    """Look up how many tools a request to a model may have; None if no limit is known."""
    spec = spec_of(client.provider)
    return spec.max_tools if is_home_address(client.base_url, spec.homes) else None


def not_sent(provider: str, model: str, options: RequestOptions) -> dict[str, str]:
    """List the options not sent to this model, judging by its provider and name, each with the reason.

    Args:
        provider: The provider, as in the config.
        model: The provider's name of the model.
        options: The requested options.
    """
    spec = spec_of(provider)
    given = options.given()
    if spec.offers_none and options.tool_choice in ("auto", "none"):
        # `auto` is the default, and with `none` no tools are offered.
        given.pop("tool_choice")
    unsent = {name: f"{spec.api} has no {name}: it is not sent." for name in spec.lacking if name in given}
    return unsent | spec.unsent(model, options)


def option_notes(provider: str, model: str, options: RequestOptions) -> list[str]:
    """Build the notices about a model's options before a request; takes the same arguments as `not_sent`."""
    return [*not_sent(provider, model, options).values(), *spec_of(provider).notes(model, options)]
