"""Find servers: in the AI catalog of a domain and the server cards that it lists, and in a
registry.

Only the catalog, its cards and the registry are read, and only for a name that a person typed.
Everything in them is foreign: bounded, cleaned, and made into an entry of a config that the person
has to accept before anything starts or is contacted.

Catalogs and cards: https://modelcontextprotocol.io/seps/2127-mcp-server-cards and
https://github.com/Agent-Card/ai-catalog. Registry:
https://github.com/modelcontextprotocol/registry, `docs/reference/api/openapi.yaml` and
`server.json`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from casual_mcp_nb.base.config import REGISTRY, Config, ServerConfig
from casual_mcp_nb.base.displayable import DisplayableList
from casual_mcp_nb.base.ip_addresses import host_in, is_this_computer
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.config.document import object_in
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.registry_entry import (
    FULL_NAME,
    FoundServer,
    UnreadableError,
    line_of,
    objects_of,
    servers_of,
)
from casual_mcp_nb.config.trust import Trust, TrustStore, lines_of
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError, shown

MAX_CATALOG_BYTES = 1_000_000
MAX_CARD_BYTES = 200_000
MAX_CARDS = 20
MAX_SEARCHED = 20
SECONDS = 30.0
_CARD_TYPES = ("application/mcp-server-card+json", "application/mcp-server+json")
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_CATALOG_PATHS = ("/.well-known/ai-catalog.json", "/.well-known/mcp/catalog.json")
"""The second is that of the drafts, which had a catalog for MCP alone."""

_TYPED_NAME = re.compile(
    rf"(?P<name>(?=[A-Za-z0-9-]+\.[A-Za-z0-9]){FULL_NAME.pattern})(?:@(?P<version>[\w.+-]{{1,100}}))?",
    re.ASCII,
)
_DOMAIN = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9](?::\d{1,5})?",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\]):\d{1,5}", re.IGNORECASE)
_OF_FILES = frozenset(
    {
        "bat",
        "cfg",
        "cjs",
        "cmd",
        "exe",
        "ini",
        "ipynb",
        "js",
        "json",
        "jsonc",
        "lock",
        "md",
        "mjs",
        "ps1",
        "py",
    }
    | {"rb", "rs", "sh", "toml", "ts", "txt", "yaml", "yml"}
)
"""Endings of files that are, or could be, top-level domains."""


@dataclass(frozen=True, slots=True)
class FoundServers(DisplayableList[FoundServer], items="servers"):
    """The servers that a catalog or a registry lists, each as often as there are ways to reach it.

    Attributes:
        target: The domain or name that was looked up.
        source: The address that was read.
        notes: Remarks about omitted parts.
    """

    target: str
    source: str
    servers: tuple[FoundServer, ...] = ()
    notes: tuple[str, ...] = ()

    def choose(self, wanted: str | None = None) -> FoundServer:
        """Choose a server by name, or a way by `npm`, `pypi`, `oci`, `http` or `sse`; by default,
        the only server's first way.

        Raises:
            UsageError: There are several servers, or none that can be used. The message names them,
                or the reason.
        """
        named = [
            each for each in self.servers if wanted in (None, each.name, each.short_name, each.way)
        ]
        if not named and wanted is not None:
            raise UnknownNameError("server", wanted, (each.short_name for each in self.servers))
        usable = [each for each in named if not each.problem]
        if not usable:
            reasons = dict.fromkeys(f"{each.short_name}: {each.problem}" for each in named)
            reason = "; ".join(reasons) or "it lists no server"
            raise UsageError(f"{shown(self.target)} has no server that can be added: {reason}.")
        if len({each.name for each in usable}) > 1:
            names = ", ".join(dict.fromkeys(each.short_name for each in usable))
            raise UsageError(
                f"{shown(self.target)} has several servers: {names}.",
                hint="Write the name of one behind it.",
            )
        return usable[0]


def is_registry_name(text: str) -> bool:
    """Check whether a text is a name in a registry, such as `io.github.user/weather` or
    `io.github.user/weather@1.0.0`.
    """
    return _TYPED_NAME.fullmatch(text) is not None and not Path(text).expanduser().exists()


def is_site(text: str) -> bool:
    """Check whether a text is a domain, or the address of one without a path, whose catalog can be
    read.

    No file or command.
    """
    if text.startswith(("https://", "http://")):
        try:
            parts = urlsplit(text)
        except ValueError:
            return False
        may_be_read = parts.scheme == "https" or _is_local(text)
        return parts.path in ("", "/") and not parts.query and may_be_read
    if _LOCAL.fullmatch(text):
        return True
    ending = text.partition(":")[0].rpartition(".")[2]
    if _DOMAIN.fullmatch(text) is None or ending.lower() in _OF_FILES:
        return False
    return not Path(text).exists() and shutil.which(text) is None


def is_findable(text: str) -> bool:
    """Check whether a server has to be looked up: a domain, the address of one, or a name in a
    registry.
    """
    first = text.strip().partition(" ")[0]
    return len(text.split()) <= 2 and (is_registry_name(first) or is_site(first))


async def look_up(target: str, registry: str = REGISTRY) -> FoundServers:
    """Look up a domain's catalog, a name in a registry, or words in the registry.

    Raises:
        UsageError: It cannot be read. The message has the reason.
    """
    try:
        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread(_import_client)
            if is_registry_name(target):
                return await _in_registry(target, registry)
            if is_site(target):
                return await _in_catalog(target)
            return await _search(target, registry)
    except TimeoutError:
        raise UsageError(
            f"{shown(target)} could not be looked up within {SECONDS:g} seconds."
        ) from None


def _import_client() -> None:
    """Import the HTTP client, which would hold the loop for a second, by making one."""
    import httpx2

    from casual_mcp_nb.bundled.web_server import tls

    httpx2.AsyncClient(trust_env=False, verify=tls())


async def _in_catalog(target: str) -> FoundServers:
    site = target.rstrip("/")
    if "://" not in site:
        scheme = "http" if _LOCAL.fullmatch(site) else "https"
        site = f"{scheme}://{site}"
    local = _is_local(site)
    reasons: list[str] = []
    for path in _CATALOG_PATHS:
        try:
            document = await _document(
                f"{site}{path}", local, MAX_CATALOG_BYTES, "application/ai-catalog+json"
            )
        except UnreadableError as error:
            reasons.append(str(error))
            continue
        entries = document.get("entries")
        if not isinstance(entries, list):
            reasons.append("it is not a catalog")
            continue
        return await _of_catalog(target, f"{site}{path}", entries, local)
    reason = next((each for each in reasons if "404" not in each), reasons[0])
    hint = (
        "If you know the address of its server, give that, with its path: https://example.com/mcp."
    )
    raise UsageError(f"{shown(target)} has no AI catalog that can be read: {reason}.", hint=hint)


async def _of_catalog(target: str, source: str, entries: list[Any], local: bool) -> FoundServers:
    objects = of_type(entries, dict)
    cards = [entry for entry in objects if _type_of(entry) in _CARD_TYPES]
    notes: list[str] = []
    if len(cards) > MAX_CARDS:
        notes.append(f"{len(cards) - MAX_CARDS} more servers are not shown.")
    others = len(objects) - len(cards)
    if others:
        entries_are = "entry is" if others == 1 else "entries are"
        notes.append(f"{others} {entries_are} not MCP servers.")
    read = await asyncio.gather(*(_of_card(entry, source, local) for entry in cards[:MAX_CARDS]))
    return FoundServers(target, source, tuple(chain.from_iterable(read)), tuple(notes))


def _type_of(entry: Mapping[str, Any]) -> Any:
    kind = entry.get("type", entry.get("mediaType"))
    if isinstance(kind, str):
        return kind.partition(";")[0].strip().lower()
    return kind


async def _of_card(entry: Mapping[str, Any], catalog: str, local: bool) -> list[FoundServer]:
    name = line_of(entry.get("displayName")) or line_of(entry.get("identifier")) or "server"
    if isinstance(entry.get("data"), dict):
        return _of_description(entry["data"], name, catalog, catalog, local)
    url = entry.get("url")
    if not isinstance(url, str):
        return [FoundServer(name, catalog, "other", problem="its card has no address")]
    address = urljoin(catalog, url.strip())
    try:
        card = await _document(address, local, MAX_CARD_BYTES, _CARD_TYPES[0])
    except UnreadableError as error:
        problem = f"its card cannot be read: {error}"
        return [FoundServer(name, line_of(address), "other", problem=problem)]
    return _of_description(card, name, line_of(address), catalog, local)


def _of_description(
    card: Mapping[str, Any], name: str, source: str, catalog: str | None, local: bool
) -> list[FoundServer]:
    servers = list(servers_of(card, source, catalog, local))
    problem = "it lists no address and no package"
    return servers or [FoundServer(name, source, "other", problem=problem)]


async def _in_registry(target: str, registry: str) -> FoundServers:
    match = _TYPED_NAME.fullmatch(target)
    assert match is not None
    version = quote(match["version"] or "latest", safe="")
    source = f"{registry.rstrip('/')}/v0/servers/{quote(match['name'], safe='')}/versions/{version}"
    missing = UsageError(
        f"The registry has no server {shown(target)}.",
        hint=f"%mcp find {match['name'].rpartition('/')[2]} searches the registry.",
    )
    answer = await _asked(registry, source, MAX_CARD_BYTES, missing)
    servers = _of_answer(answer, source, _is_local(registry))
    if any(server.name != match["name"] for server in servers):
        raise UsageError(
            f"The registry {shown(registry)} answered with another server than {shown(target)}."
        )
    return FoundServers(target, source, tuple(servers))


async def _search(words: str, registry: str) -> FoundServers:
    source = f"{registry.rstrip('/')}/v0/servers?search={quote(words[:200], safe='')}&version=latest&limit={MAX_SEARCHED}"
    answer = await _asked(registry, source, MAX_CATALOG_BYTES)
    servers: list[FoundServer] = []
    for row in objects_of(answer.get("servers"))[:MAX_SEARCHED]:
        servers += _of_answer(row, source, _is_local(registry))
    return FoundServers(words, source, tuple(servers))


async def _asked(
    registry: str, source: str, max_bytes: int, missing: UsageError | None = None
) -> dict[str, Any]:
    """Ask a registry, or raise `missing` if it has nothing at that address."""
    try:
        return await _document(source, _is_local(registry), max_bytes, "application/json")
    except UnreadableError as error:
        if missing is not None and "404" in str(error):
            raise missing from None
        raise UsageError(f"The registry {shown(registry)} cannot be asked: {error}.") from None


def _is_local(address: str) -> bool:
    return is_this_computer(host_in(address))


def _of_answer(answer: Mapping[str, Any], source: str, local: bool) -> list[FoundServer]:
    described = answer.get("server", answer)
    if not isinstance(described, dict):
        return []
    servers = _of_description(described, line_of(described.get("name")), source, None, local)
    status = described.get("status")
    official = object_in(object_in(answer, "_meta"), _OFFICIAL)
    status = official.get("status", status)
    if status == "deleted":
        return [replace(server, problem="it was deleted from the registry") for server in servers]
    if status == "deprecated":
        return [replace(server, notes=("It is deprecated.", *server.notes)) for server in servers]
    return servers


async def _document(url: str, local: bool, max_bytes: int, accept: str) -> dict[str, Any]:
    """Read a JSON object.

    From the public internet over https, or from this computer if the person typed its address.
    """
    from mcp.server.mcpserver.exceptions import ToolError

    from casual_mcp_nb.bundled.web_server import fetch

    allowed = ("127.0.0.1", "::1") if local else ()
    try:
        page = await fetch(
            url,
            allowed,
            max_bytes,
            accept=f"{accept}, application/json;q=0.9",
            https_only=not local,
        )
    except ToolError as error:
        raise UnreadableError(line_of(str(error)).rstrip(".")) from None
    if page.cut:
        raise UnreadableError(f"it has more than {max_bytes:,} bytes")
    try:
        document = await asyncio.to_thread(json.loads, page.body)
    except (ValueError, RecursionError):
        raise UnreadableError("it is not JSON") from None
    if not isinstance(document, dict):
        raise UnreadableError("it is not a JSON object")
    return document


@dataclass(frozen=True)
class FoundTrust:
    """Whether the person has accepted a found server: what it would start, and where it was found.

    Args:
        server: The server, as it was found.
        name: Its name in the session.
    """

    server: FoundServer
    name: str

    @property
    def _key(self) -> str:
        return f"{self.server.name} of {self.server.source}"

    def entry(self, environ: Mapping[str, str] | None = None) -> ServerConfig:
        """Build the entry as `config` does, for use: its address has to be public, unless it was
        found on this computer.
        """
        entry = self.config(environ).servers[self.name]
        entry._origin = replace(entry._origin, found=not _is_local(self.server.source))
        return entry

    def config(self, environ: Mapping[str, str] | None = None) -> Config:
        """Build a config with the entry and its values, for which the person is prompted if no
        environment variable has them.

        Raises:
            ConfigError: A required value is missing. The message names them.
        """
        missing = [name for name in self.server.needs if not (environ or {}).get(name)]
        try:
            return load_config({"servers": {self.name: dict(self.server.entry)}}, environ=environ)
        except ConfigError:
            if not missing:
                raise
            variables = "variable"
            if len(missing) > 1:
                variables = "variables"
            raise ConfigError(
                f"{self.server.name} needs {', '.join(missing)}.",
                key=f"servers.{self.name}",
                hint=f"Set the environment {variables} {', '.join(missing)}.",
            ) from None

    def report(self) -> Trust:
        """Report which program or host would be used, and whether the person must accept it
        first.
        """
        # Without values: the person is prompted for them only after they have accepted it.
        stand_ins = dict.fromkeys(self.server.needs, "stand-in")
        config = self.config(stand_ins)
        store = TrustStore()
        entries = store.entries(config, self._key)
        accepted = all(entry.state == "trusted" for entry in entries)
        why = "It is as you accepted it." if accepted else ""
        accept = partial(store.accept, config, self._key)
        return Trust(self.server.source, entries, not accepted, why, accept)

    @property
    def question(self) -> str:
        """Everything to know before accepting it, in lines with nothing cut."""
        server, report = self.server, self.report()
        named = f"{server.name} {server.version}".rstrip()
        lines = [f"Add the server {named}? You have not accepted this yet:"]
        lines.append(f"  {'found at':12} {server.source}")
        if server.description:
            lines.append(f"  {'describes as':12} {server.description}")
        lines += map(lines_of, report.entries)
        if server.needs:
            lines.append(f"  {'asks for':12} {', '.join(server.needs)}")
        lines += [f"! {note}" for note in server.notes]
        return "\n".join(lines)
