"""How clients are made from their settings in a config: what the providers have in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import AuthenticationError, MissingDependencyError, shown
from casual_mcp_nb.providers.registry import key_variables
from casual_mcp_nb.types.config import ClientConfig

if TYPE_CHECKING:
    from casual_llm import LLMClient

_NO_KEY = "no-key-needed"


def key_places(name: str, provider: str) -> str:
    """Return where the key of a client is looked for, in words."""
    return ", then ".join([f"clients.{name}.api_key of the config", *key_variables(name, provider)])


def key_of(config: ClientConfig) -> str | None:
    """Return the key to hand to an SDK: with an address of its own and no key, a placeholder, as local servers need none.

    Never None for such an address: the SDK would send it the key of the provider from the environment.
    """
    if config.api_key is not None and config.api_key.get_secret_value():
        return config.api_key.get_secret_value()
    return _NO_KEY if config.base_url else None


def headers_of(config: ClientConfig) -> dict[str, str]:
    """Return the headers of a client with their values."""
    return {name: value.get_secret_value() for name, value in config.headers.items()}


def need(name: str, sdk: str, module: str | None = None) -> None:
    """Import an SDK, from the module of its name or from another one.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        importlib.import_module(module or sdk)
    except ImportError as error:
        raise missing(name, sdk) from error


def missing(name: str, sdk: str) -> MissingDependencyError:
    """Return the error about an SDK that is not installed."""
    return MissingDependencyError(f"Client {shown(name)} needs the package {sdk}.", hint=f"pip install 'casual-mcp-nb[{sdk}]'")


def no_key(name: str, provider: str) -> AuthenticationError:
    """Return the error about a client that has no key."""
    hint = f"It was looked for in {key_places(name, provider)}."
    return AuthenticationError(f"Client {shown(name)} has no API key.", hint=hint, client=name)


def with_own_retries(client: Any, config: ClientConfig) -> LLMClient:
    """Return a client whose SDK sends the config's headers and does not retry unseen: each attempt is counted here."""
    client.client = client.client.with_options(max_retries=0, default_headers=headers_of(config))
    own: LLMClient = client
    return own


def over_openai(name: str, config: ClientConfig, kind: Callable[[], Any]) -> LLMClient:
    """Return a client over OpenAI's SDK.

    Args:
        name: The client's name in the config.
        config: Its settings.
        kind: Returns its class, which takes key, address and timeout.
    """
    need(name, "openai")
    from openai import OpenAIError

    try:
        client = kind()(api_key=key_of(config), base_url=config.base_url, timeout=config.timeout)
    except OpenAIError as error:
        raise no_key(name, config.provider) from error
    return with_own_retries(client, config)
