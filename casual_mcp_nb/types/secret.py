"""Secret values in texts: which ones can be masked, and how."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import SecretStr

MASK = "**********"
"""What stands for a secret; says nothing about it, not even its length."""

_SHORTEST = 4
_COMMON = frozenset({"true", "false", "none", "null", "oauth"})
_NAMES_OF_SECRETS = ("key", "token", "secret", "password", "auth", "sig")


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of the secrets replaced by `MASK`.

    Args:
        text: Any text.
        secrets: Values to hide; those too short or too common to be told from other text are left.
    """
    for secret in sorted(filter(can_be_masked, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def can_be_masked(value: str) -> bool:
    """Whether masking `value` in any text leaves the text readable: it is long enough, and no common word."""
    return len(value) >= _SHORTEST and value.lower() not in _COMMON


def revealed(secrets: Iterable[SecretStr | None]) -> set[str]:
    """The values of the secrets that there are."""
    return {secret.get_secret_value() for secret in secrets if secret is not None}


def url_secrets(url: str | None) -> set[str]:
    """The password in an address, and what its query gives as a key, token or the like, as they are written in it."""
    try:
        parts = urlsplit(url or "")
        password = parts.password or ""
    except ValueError:
        return set()
    query = (pair.partition("=") for pair in parts.query.split("&"))
    return {password} | {value for name, _, value in query if any(word in name.lower() for word in _NAMES_OF_SECRETS)}
