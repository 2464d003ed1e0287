"""Secret values in texts: which ones can be masked, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

MASK = "**********"
"""What stands for a secret; says nothing about it, not even its length."""

_SHORTEST = 4
_COMMON = frozenset({"true", "false", "none", "null", "oauth"})
_NAME_OF_SECRET = re.compile(r"key|token|secret|pass|pwd|auth|sig|cred|cookie", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|passw|auth)[\w-]*", re.IGNORECASE)
_LOOKS_SECRET = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])(?:[^\s/\\:]{8,}|(?![/~.]|\w+:[/\\])\S{20,})")
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_=-]{20,}")


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of the secrets replaced by `MASK`.

    Args:
        text: Any text.
        secrets: Values to hide; those too short or too common to be told from other text are left.
    """
    for form in forms_of(secrets):
        text = text.replace(form, MASK)
    return text


def forms_of(secrets: Iterable[str]) -> list[str]:
    """How secrets occur in texts: as they are, without the space around them, and as JSON and addresses write them; the longest
    first, so that one which is a part of another leaves no rest of that."""
    return sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)


@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[str]:
    values = filter(can_be_masked, {secret, secret.strip()})
    return frozenset(form for value in values for form in (value, *_written(value)))


def _written(value: str) -> Iterator[str]:
    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (text, text.replace("/", "\\/"))
    yield from (quote(value, errors="replace"), quote(value, safe="", errors="replace"))


def can_be_masked(value: str) -> bool:
    """Whether masking `value` in any text leaves the text readable: it is long enough, and no common word."""
    return len(value) >= _SHORTEST and value.lower() not in _COMMON


def certain(name: str, value: str) -> bool:
    """Whether a value is a secret beyond doubt, and no mere setting such as a time zone: by its name, or since it is long, has
    letters and digits, and is no path and no address."""
    return bool(_NAME_OF_SECRET.search(name) or _LOOKS_SECRET.fullmatch(value))


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
