"""What of a server's text and address may be shown."""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

from casual_mcp_nb.types.config import ServerConfig
from casual_mcp_nb.types.secret import masked as mask
from casual_mcp_nb.types.secret import random_parts

__all__ = ["clean", "mask", "secrets_of", "shown_address"]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without terminal escapes, and with a mark for each control, bidirectional and zero-width character."""
    return _INVISIBLE.sub("�", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def secrets_of(config: ServerConfig | None) -> frozenset[str]:
    """Every text of a server's config that must not be shown."""
    return config.secrets() if config is not None else frozenset()


def shown_address(config: ServerConfig | None) -> str:
    """Where a server is: its command with secrets masked, or its url without user, query, and token-like path parts."""
    if config is None:
        return "in this process"
    if config.url:
        parts = urlsplit(config.url)
        host = parts.netloc.rpartition("@")[2]
        path = mask(parts.path, [*random_parts(parts.path), *secrets_of(config)])
        return clean(f"{parts.scheme}://{mask(host, secrets_of(config))}{path}")
    words = [config.command] if config.command else ["bundled", config.bundled or ""]
    return clean(mask(shlex.join([*words, *config.args]), secrets_of(config)))
