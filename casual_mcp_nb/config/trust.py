"""What the person has accepted of each config file, in the user's config folder.

Each file of the store is about one config or one folder and is replaced as a whole, so that programs that write at the same
time cannot damage each other's. It holds no values, only hashes of them with a separate key. A file that cannot be read, or
that others could have written, counts as absent: the person is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.providers.registry import spec_of
from casual_mcp_nb.types.config import ClientConfig, Config
from casual_mcp_nb.types.files import part_file
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.trust import TrustEntry, TrustState, exact, exact_word

VERSION = 1
MAX_BYTES = 1_000_000
Facts = dict[str, Any]
"""What an entry would start, by label: values from which hashes are made."""
_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PAT", "CREDENTIAL", "CREDENTIALS")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def store_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what is remembered: in `XDG_CONFIG_HOME`, in `APPDATA` on Windows, or in `~/.config`.

    Args:
        environ: The environment; None for the process's own.
    """
    variables = os.environ if environ is None else environ
    base = variables.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME") or ""
    root = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return root / "casual_mcp_nb" / "trust"


class TrustStore:
    """What was accepted.

    Args:
        folder: Where it is remembered; None for the user's config folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where it is remembered."""
        return self._folder or store_folder()

    def entries(self, config: Config) -> tuple[TrustEntry, ...]:
        """Return the servers and clients of a config, each compared with what was accepted of its file."""
        record = self._read(config.path) if config.path else None
        return tuple(
            _compared(kind, name, facts, shown_facts, record, harmless)
            for kind, name, facts, shown_facts, harmless in _facts(config)
        )

    def accept(self, config: Config) -> None:
        """Remember a config file as it would start now.

        Raises:
            UsageError: It cannot be written.
        """
        if config.path is None:
            return
        salt = secrets.token_hex(32)
        accepted = {f"{kind} {name}": _hashes(facts, salt) for kind, name, facts, *_ in _facts(config)}
        self._write(config.path, {"config": str(config.path.resolve()), "salt": salt, "accepted": accepted})

    def accept_folder(self, folder: Path) -> None:
        """Remember that every config in a folder, and in those below it, is the person's own.

        Raises:
            UsageError: It cannot be written.
        """
        self._write(folder, {"folder": str(folder.resolve())})

    def accepted_folder(self, path: Path) -> Path | None:
        """Return the folder around a config that was accepted as a whole; None if none was."""
        for folder in path.resolve().parents:
            record = self._read(folder)
            if record is not None and record.get("folder") == str(folder):
                return folder
        return None

    def _file(self, path: Path) -> Path:
        digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / f"{digest[:40]}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            with open(self._file(path), "rb") as file:
                status = os.fstat(file.fileno())
                if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
                    return None
                record = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and record.get("version") == VERSION else None

    def _write(self, path: Path, record: dict[str, Any]) -> None:
        file = self._file(path)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with part_file(file, 0o600, lambda part: os.replace(part, file)) as output:
                output.write(json.dumps({"version": VERSION, **record}, indent=1).encode())
        except OSError as error:
            raise UsageError(f"{shown(file)} cannot be written: {error.strerror}.", hint="Pass trust=True instead.") from None


def _compared(
    kind: Any, name: str, facts: Facts, texts: tuple[tuple[str, str], ...], record: Mapping[str, Any] | None, harmless: bool
) -> TrustEntry:
    accepted = record.get("accepted") if record else None
    before = accepted.get(f"{kind} {name}") if isinstance(accepted, dict) else None
    salt = record.get("salt") if record else None
    changed: tuple[str, ...] = ()
    state: TrustState = "new"
    if isinstance(before, dict) and isinstance(salt, str) and salt:
        now = _hashes(facts, salt)
        changed = tuple(label for label in dict.fromkeys([*now, *before]) if now.get(label) != before.get(label))
        state = "changed" if changed else "trusted"
    if harmless and state != "trusted":
        state, changed = "harmless", ()
    return TrustEntry(kind, name, texts, state, changed)


def _hashes(facts: Facts, salt: str) -> dict[str, str]:
    def hashed(label: str, value: Any) -> str:
        text = json.dumps([label, value], sort_keys=True)
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=salt.encode()[:64], digest_size=32).hexdigest()

    return {label: hashed(label, value) for label, value in facts.items()}


def _facts(config: Config) -> Iterable[tuple[str, str, Facts, tuple[tuple[str, str], ...], bool]]:
    """Yield kind, name, values, texts of each entry, and whether it is harmless."""
    for name, server in config.servers.items():
        variables = config.variables_of("servers", name)
        yield "server", name, *_of_server(server, variables), _is_harmless_server(server, variables)
    for name, client in config.clients.items():
        models = [model for model, row in config.models.items() if row.client == name]
        used = [
            *config.variables_of("clients", name),
            *(each for model in models for each in config.variables_of("models", model)),
        ]
        variables = tuple(dict.fromkeys(used))
        hosted = {model: config.models[model].hosted_tools for model in models if config.models[model].hosted_tools}
        facts = _of_client(client, variables, hosted)
        yield "client", name, *facts, not hosted and _is_harmless_client(client, variables)


def _of_server(server: ServerConfig, variables: tuple[str, ...]) -> tuple[Facts, tuple[tuple[str, str], ...]]:
    # Iterating a section masks what could be a secret.
    masked = dict(server)
    values = {name: None if _is_secret(name) else value.get_secret_value() for name, value in server.env.items()}
    auth = "" if server.auth is None else "oauth" if server.auth.get_secret_value() == "oauth" else "token"
    facts: Facts = {
        "command": server.command,
        "arguments": server.args,
        "bundled": server.bundled,
        "folder": server.cwd,
        "environment": values,
        "address": server.url,
        "transport": server.transport,
        "headers": sorted(server.headers),
        "sign-in": auth,
        "variables": sorted(variables),
        "approval": server.approval,
        "enabled": server.enabled,
        # Only where they are set: what was accepted before there were such fields stays accepted.
        **({"shared folders": server.roots} if server.roots else {}),
        **({"sampling": True} if server.sampling else {}),
    }
    words = " ".join(map(exact_word, masked["args"]))
    texts = {
        "command": exact_word(str(masked["command"])) if server.command else "",
        "bundled": exact(server.bundled) if server.bundled else "",
        "arguments": words,
        "folder": exact(str(masked["cwd"])) if server.cwd else exact(str(Path.cwd())) if server.command else "",
        "shared folders": " ".join(exact_word(str(root)) for root in masked["roots"]),
        "environment": _names(server.env),
        "address": exact(str(masked["url"])) if server.url else "",
        "headers": _names(server.headers),
        "sign-in": auth,
        "variables": _names(variables),
        "approval": json.dumps(server.approval) if isinstance(server.approval, Mapping) else server.approval or "",
        "sampling": "yes, it may ask for answers of your model" if server.sampling else "",
        "enabled": "" if server.enabled else "no, not started unless you turn it on",
    }
    return facts, tuple((label, text) for label, text in texts.items() if text)


def _of_client(
    client: ClientConfig, variables: tuple[str, ...], hosted: Mapping[str, Mapping[str, Any]]
) -> tuple[Facts, tuple[tuple[str, str], ...]]:
    spec = spec_of(client.provider)
    key = "none" if client.key_state == "not set" else client.key_variable or "in the config"
    home = f"https://{spec.homes[0]}" if spec.homes else "none" if not spec.is_language_model else "the provider's own"
    address = str(dict(client)["base_url"]) if client.base_url else home
    facts: Facts = {
        "provider": client.provider,
        "address": client.base_url,
        "key": key,
        "headers": sorted(client.headers),
        "variables": sorted(variables),
        # These can send what is in a conversation elsewhere. Not there without them, as with servers.
        **({"hosted tools": hosted} if hosted else {}),
    }
    texts = {
        "provider": exact(client.provider),
        "address": exact(address),
        "key": exact(key),
        "headers": _names(client.headers),
        "variables": _names(variables),
        "hosted tools": _names(dict.fromkeys(name for tools in hosted.values() for name in tools)),
    }
    return facts, tuple((label, text) for label, text in texts.items() if text)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(exact_word, names))


def _is_secret(name: str) -> bool:
    """Return whether a variable's value may change without being noticed, as tokens do: it holds a key by its name."""
    return name.upper().rpartition("_")[2] in _SECRET_ENDINGS


def _is_harmless_server(server: ServerConfig, variables: tuple[str, ...]) -> bool:
    own = server.args or server.env or server.cwd or server.approval or server.roots or server.sampling
    bundled = BUNDLED.get(server.bundled or "")
    return bundled is not None and bundled.credentials is None and not (own or variables)


def _is_harmless_client(client: ClientConfig, variables: tuple[str, ...]) -> bool:
    if client.headers or variables:
        return False
    try:
        return not client.base_url or urlsplit(client.base_url).hostname in _LOOPBACK
    except ValueError:
        return False
