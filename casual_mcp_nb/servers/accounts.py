"""The accounts at servers that somebody has signed in to.

Their tokens are in files that nobody else can read, see `write_account_file`. They are never shown,
logged or recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import ValidationError

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.files import (
    NotPrivateError,
    accounts_folder,
    read_account_file,
    write_account_file,
)
from casual_mcp_nb.base.mcp import Account
from casual_mcp_nb.errors import shown

logger = logging.getLogger(__name__)

_VERSION = 1


def _folder() -> Path:
    return accounts_folder() / "mcp"


class AccountFile:
    """The tokens of one server, in a file with mode 0600.

    Args:
        learn: Called with the secrets that are to be masked.

    Attributes:
        record: The contents, or empty.
    """

    def __init__(
        self,
        server: str,
        url: str,
        client_id: str | None,
        learn: Callable[[Collection[str]], None] = ignore,
    ) -> None:
        digest = hashlib.sha256(json.dumps([url, client_id]).encode()).hexdigest()
        self.path = _folder() / f"{digest[:40]}.json"
        self.record: dict[str, Any] = {}
        self._learn = learn
        self._server = server
        self._head = {"version": _VERSION, "server": server, "url": url}

    async def load(self) -> None:
        """Read the file. One that others could have read or written counts as absent."""
        self.record = await asyncio.to_thread(_read, self.path)
        self._tell()

    def _tell(self) -> None:
        """Tell the secrets that are to be masked."""
        tokens, client = self.record.get("tokens") or {}, self.record.get("client") or {}
        values = (
            tokens.get("access_token"),
            tokens.get("refresh_token"),
            client.get("client_secret"),
        )
        self._learn({value for value in values if isinstance(value, str) and value})

    def tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        tokens: OAuthToken | None = read_as(OAuthToken, self.record.get("tokens"))
        return tokens

    def client(self) -> OAuthClientInformationFull | None:
        """Return the stored registration, unless it has expired."""
        client: OAuthClientInformationFull | None = read_as(
            OAuthClientInformationFull, self.record.get("client")
        )
        expires = client.client_secret_expires_at if client else None
        if expires and expires <= time.time():
            return None
        return client

    async def set_tokens(self, tokens: OAuthToken, more: Mapping[str, Any]) -> None:
        """Store tokens, with more that renews them after a restart."""
        expires = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.record |= {
            "tokens": tokens.model_dump(mode="json"),
            "expires_at": expires,
            **more,
        }
        await self._save()

    async def set_client(self, client: OAuthClientInformationFull) -> None:
        """Store a registration."""
        self.record |= {"client": client.model_dump(mode="json", exclude_none=True)}
        await self._save()

    async def _save(self) -> None:
        self._tell()
        text = json.dumps({**self.record, **self._head})
        try:
            await asyncio.to_thread(_write, self.path, text)
        except (OSError, NotPrivateError, LaterVersionError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            logger.warning("The sign-in to %s is not remembered: %s", shown(self._server), reason)


_END_OF_TIME = 1e11
"""In seconds since 1970. No date is later."""


class LaterVersionError(Exception):
    """A later version of the package wrote the file, so that it is not replaced."""


def _record_in(path: Path) -> dict[str, Any]:
    """Read a file of whatever version. A damaged or missing one is empty."""
    try:
        record = json.loads(read_account_file(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    record = _record_in(path)
    if record.get("version") != _VERSION:
        return {}
    # Another program may have written it. What has another type counts as absent.
    return {name: value for name, value in record.items() if _is_readable(name, value)}


def _write(path: Path, text: str) -> None:
    version = _record_in(path).get("version")
    if isinstance(version, int) and version > _VERSION:
        raise LaterVersionError(
            f"a later version of casual_mcp_nb wrote {shown(path)}. Update the package, or delete"
            " the file"
        )
    write_account_file(path, text)


def _is_readable(name: str, value: Any) -> bool:
    if name in ("tokens", "client", "metadata", "resource"):
        return isinstance(value, dict)
    if name == "expires_at":
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and abs(value) < _END_OF_TIME
        )
    return isinstance(value, str | int) or value is None


def read_as(kind: Any, value: Any) -> Any:
    """Read a stored value as one of the SDK's types, or return None if it does not fit."""
    if not isinstance(value, dict):
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


def accounts() -> tuple[Account, ...]:
    """List the servers that somebody has signed in to on this computer, without their tokens."""
    found: list[Account] = []
    for path in sorted(_folder().glob("*.json")):
        record = _read(path)
        if record.get("tokens"):
            found.append(_account(record, path))
    return tuple(found)


def _account(record: Mapping[str, Any], path: Path) -> Account:
    metadata, tokens = record.get("metadata"), record["tokens"]
    expires, scope = record.get("expires_at"), tokens.get("scope")
    return Account(
        server=str(record.get("server", ""))[:100],
        address=str(record.get("url", ""))[:500],
        issuer=str((metadata or {}).get("issuer") or "")[:500],
        scopes=tuple(scope.split()[:50]) if isinstance(scope, str) else (),
        expires=float(expires) if isinstance(expires, int | float) else None,
        renewable=bool(tokens.get("refresh_token")),
        file=path.name,
    )


def remove_account(account: Account) -> None:
    """Delete the tokens of a server, and its registration. The authorization server is not told."""
    (_folder() / Path(account.file).name).unlink(missing_ok=True)
