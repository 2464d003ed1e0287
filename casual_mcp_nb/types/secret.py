"""Secret values in texts: which ones can be masked, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

MASK = "**********"
"""What stands for a secret; says nothing about it, not even its length."""

_SHORTEST = 4
_COMMON = frozenset({"true", "false", "none", "null", "oauth"})
_NAME_OF_SECRET = re.compile(r"key|token|secret|passw|auth|sig", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|passw|auth)[\w-]*", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_=-]{20,}")


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
    """The password in an address, what its query gives as a key, token or the like, and what looks random in it: as they are
    written, and decoded."""
    try:
        parts = urlsplit(url or "")
        password = parts.password or ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    named = [value for name, _, value in pairs if _NAME_OF_SECRET.search(name)]
    unnamed = [part for name, _, value in pairs for part in random_parts(f"{name}/{value}")]
    found = {password, *named, *unnamed, *random_parts(parts.path)}
    return found | {unquote(value) for value in found}


def option_secrets(args: Iterable[str]) -> Iterator[str]:
    """The values of options of a command line whose names say that they are secret: `--token x`, `--api-key=x`."""
    before = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and _OPTION.fullmatch(name):
            yield value
        elif _OPTION.fullmatch(before) and not arg.startswith("-"):
            yield arg
        before = arg


def random_parts(path: str) -> list[str]:
    """The parts of a path that look like a token: long, with digits and letters."""
    return _RANDOM.findall(path)
