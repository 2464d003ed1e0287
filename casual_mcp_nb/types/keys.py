"""Where the API key of a client is looked for: one rule, for whoever reads keys and whoever speaks of them."""

from __future__ import annotations

import re

_OWN_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "ollama": "OLLAMA_API_KEY",
}
_HOMES = {"OPENAI_API_KEY": "openai.com", "ANTHROPIC_API_KEY": "anthropic.com", "OLLAMA_API_KEY": "ollama.com"}


def client_variable(client: str) -> str:
    """Return the environment variable for the key of one client.

    It is the client's name in upper case, with `_` for every character but A to Z and 0 to 9: `STRASSE_API_KEY` for `straße`.

    Args:
        client: The client's name in the config.
    """
    return f"{re.sub(r'[^A-Z0-9]', '_', client.upper())}_API_KEY"


def key_variables(client: str, provider: str) -> tuple[str, ...]:
    """Return the environment variables in which a client's key is looked for; the first that is set wins.

    Whatever is found goes to the address that the client is configured with, also the key from the provider's own variable.

    Args:
        client: The client's name in the config.
        provider: Its provider.
    """
    own = _OWN_VARIABLES.get(provider)
    return tuple(dict.fromkeys([client_variable(client), *([own] if own else [])]))


def home_of(variable: str | None) -> str | None:
    """Return the domain of the provider whose own variable this is; None for any other variable."""
    return _HOMES.get(variable or "")
