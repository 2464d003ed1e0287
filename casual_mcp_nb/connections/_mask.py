"""What of a server's text and address may be shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

from casual_mcp_nb.types.config import ServerConfig

MASK = "•••"
SHORTEST_SECRET = 4

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_SECRET_OPTION = re.compile(r"-{1,2}[\w-]*(?:key|token|secret|password|passwd|auth)[\w-]*", re.IGNORECASE)
_RANDOM_SEGMENT = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_=-]{20,}")


def mask(text: str, secrets: Iterable[str]) -> str:
    """Replace each secret in `text`, the longest first; those shorter than 4 characters would only make nonsense."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return text


def clean(text: str) -> str:
    """`text` without terminal escapes, and with a mark for each control, bidirectional and zero-width character."""
    return _INVISIBLE.sub("�", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def secrets_of(config: ServerConfig | None) -> frozenset[str]:
    """Every text of a server's config that must not be shown: env, headers, auth, secret options, credentials in its url."""
    if config is None:
        return frozenset()
    values = [value.get_secret_value() for value in (*config.env.values(), *config.headers.values())]
    values += [value.split()[-1] for value in values if value.split()]
    if config.auth is not None:
        values.append(config.auth.get_secret_value())
    values += [value for _, value in _secret_options(config.args) if value]
    if config.url:
        parts = urlsplit(config.url)
        values += [parts.query, parts.password or "", unquote(parts.password or "")]
        values += [value for _, value in parse_qsl(parts.query)] + _RANDOM_SEGMENT.findall(parts.path)
    return frozenset(value for value in values if len(value) >= SHORTEST_SECRET and value != "oauth")


def shown_address(config: ServerConfig | None) -> str:
    """Where a server is: its command with secret options masked, or its url without user, query, and token-like path parts."""
    if config is None:
        return "in this process"
    if config.url:
        parts = urlsplit(config.url)
        host = parts.netloc.rpartition("@")[2]
        return clean(f"{parts.scheme}://{host}{_RANDOM_SEGMENT.sub(MASK, parts.path)}")
    words = [config.command] if config.command else ["bundled", config.bundled or ""]
    return clean(mask(shlex.join([*words, *config.args]), secrets_of(config)))


def _secret_options(args: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    before = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and _SECRET_OPTION.fullmatch(name):
            found.append((name, value))
        elif _SECRET_OPTION.fullmatch(before) and not arg.startswith("-"):
            found.append((before, arg))
        before = arg
    return found
