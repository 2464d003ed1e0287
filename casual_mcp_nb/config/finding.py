"""Find servers: in the AI catalog of a domain and the server cards that it lists, and in a registry.

Only the catalog, its cards and the registry are read, and only for a name that a person typed. Everything in them is foreign:
bounded, cleaned, and made into an entry of a config that the person has to accept before anything starts or is contacted.

Catalogs and cards: https://modelcontextprotocol.io/seps/2127-mcp-server-cards and https://github.com/Agent-Card/ai-catalog.
Registry: https://github.com/modelcontextprotocol/registry, `docs/reference/api/openapi.yaml` and `server.json`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urljoin, urlsplit

from casual_mcp_nb.base.config import REGISTRY, Config, ServerConfig
from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.named_address import AddressGuard, AddressRefusedError
from casual_mcp_nb.base.service import is_this_computer
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.trust import Trust, TrustStore, lines_of
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError, shown

Way = Literal["http", "sse", "npm", "pypi", "oci", "other"]
"""How a server is reached: at an address, or as a package that a command of this computer fetches and runs."""

MAX_CATALOG_BYTES = 1_000_000
MAX_CARD_BYTES = 200_000
MAX_CARDS = 20
MAX_SEARCHED = 20
SECONDS = 30.0
_MAX_TEXT = 300
_MAX_INPUTS = 40
_CARD_TYPES = ("application/mcp-server-card+json", "application/mcp-server+json")
_CATALOG_PATHS = ("/.well-known/ai-catalog.json", "/.well-known/mcp/catalog.json")
"""The second is that of the drafts, which had a catalog for MCP alone."""

_NAME = re.compile(r"[A-Za-z0-9.-]{1,100}/[A-Za-z0-9._-]{1,100}")
_TYPED_NAME = re.compile(
    rf"(?P<name>(?=[A-Za-z0-9-]+\.[A-Za-z0-9]){_NAME.pattern})(?:@(?P<version>[\w.+-]{{1,100}}))?", re.ASCII
)
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9](?::\d{1,5})?", re.IGNORECASE)
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\]):\d{1,5}", re.IGNORECASE)
_OF_FILES = frozenset(
    {"bat", "cfg", "cjs", "cmd", "exe", "ini", "ipynb", "js", "json", "jsonc", "lock", "md", "mjs", "ps1", "py"}
    | {"rb", "rs", "sh", "toml", "ts", "txt", "yaml", "yml"}
)
"""Endings of files that are, or could be, top-level domains."""


@dataclass(frozen=True, slots=True)
class FoundServer(Displayable):
    """A way to reach a server that a catalog or a registry lists. Nothing of it was started or contacted.

    Attributes:
        name: Its full name, such as `com.example/weather`.
        source: The address at which it is described.
        way: How it is reached.
        entry: An entry of a config's `servers`. Values that the person has to give are `${input:NAME}`.
        needs: The names of those values, which are environment variables too.
        notes: Remarks to read before accepting it.
        problem: Why it cannot be used, or empty.
    """

    name: str
    source: str
    way: Way
    title: str = ""
    description: str = ""
    version: str = ""
    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def short_name(self) -> str:
        """The name for a config: what is after the slash, in plain characters."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name.rpartition("/")[2]).strip("-")[:40] or "server"

    @property
    def target(self) -> str:
        """The command line or the address, whole."""
        words = [str(self.entry.get("command", "")), *map(str, self.entry.get("args", ()))]
        return str(self.entry.get("url", "")) or " ".join(words)


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
        """Choose a server by name, or a way by `npm`, `pypi`, `oci`, `http` or `sse`; by default, the only server's first way.

        Raises:
            UsageError: There are several servers, or none that can be used. The message names them, or the reason.
        """
        named = [each for each in self.servers if wanted in (None, each.name, each.short_name, each.way)]
        if not named and wanted is not None:
            raise UnknownNameError("server", wanted, dict.fromkeys(each.short_name for each in self.servers))
        usable = [each for each in named if not each.problem]
        if not usable:
            reasons = "; ".join(dict.fromkeys(f"{each.short_name}: {each.problem}" for each in named)) or "it lists no server"
            raise UsageError(f"{shown(self.target)} has no server that can be added: {reasons}.")
        if len({each.name for each in usable}) > 1:
            names = ", ".join(dict.fromkeys(each.short_name for each in usable))
            raise UsageError(f"{shown(self.target)} has several servers: {names}.", hint="Write the name of one behind it.")
        return usable[0]


def is_registry_name(text: str) -> bool:
    """Check whether a text is a name in a registry, such as `io.github.user/weather` or `io.github.user/weather@1.0.0`."""
    return _TYPED_NAME.fullmatch(text) is not None and not Path(text).expanduser().exists()


def is_site(text: str) -> bool:
    """Check whether a text is a domain, or the address of one without a path, whose catalog can be read. No file or command."""
    if text.startswith(("https://", "http://")):
        try:
            parts = urlsplit(text)
            local = is_this_computer(parts.hostname or "")
        except ValueError:
            return False
        return parts.path in ("", "/") and not parts.query and (parts.scheme == "https" or local)
    if _LOCAL.fullmatch(text):
        return True
    if _DOMAIN.fullmatch(text) is None or text.partition(":")[0].rpartition(".")[2].lower() in _OF_FILES:
        return False
    return not Path(text).exists() and shutil.which(text) is None


def is_findable(text: str) -> bool:
    """Check whether a server has to be looked up: a domain, the address of one, or a name in a registry."""
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
        raise UsageError(f"{shown(target)} could not be looked up within {SECONDS:g} seconds.") from None


def _import_client() -> None:
    """Import the HTTP client, which would hold the loop for a second, by making one."""
    import httpx2

    from casual_mcp_nb.bundled.web_server import tls

    httpx2.AsyncClient(trust_env=False, verify=tls())


class _Unreadable(Exception):
    """A document cannot be read. The message has the reason."""


async def _in_catalog(target: str) -> FoundServers:
    site = target.rstrip("/")
    if "://" not in site:
        site = f"{'http' if _LOCAL.fullmatch(site) else 'https'}://{site}"
    local = is_this_computer(urlsplit(site).hostname or "")
    reasons: list[str] = []
    for path in _CATALOG_PATHS:
        try:
            document = await _document(f"{site}{path}", local, MAX_CATALOG_BYTES, "application/ai-catalog+json")
        except _Unreadable as error:
            reasons.append(str(error))
            continue
        entries = document.get("entries")
        if not isinstance(entries, list):
            reasons.append("it is not a catalog")
            continue
        return await _of_catalog(target, f"{site}{path}", entries, local)
    reason = next((each for each in reasons if "404" not in each), reasons[0])
    hint = "If you know the address of its server, give that, with its path: https://example.com/mcp."
    raise UsageError(f"{shown(target)} has no AI catalog that can be read: {reason}.", hint=hint)


async def _of_catalog(target: str, source: str, entries: list[Any], local: bool) -> FoundServers:
    cards = [entry for entry in entries if isinstance(entry, dict) and _type_of(entry) in _CARD_TYPES]
    notes = [f"{len(cards) - MAX_CARDS} more servers are not shown."] if len(cards) > MAX_CARDS else []
    if others := sum(1 for entry in entries if isinstance(entry, dict)) - len(cards):
        notes.append(f"{others} {'entry is' if others == 1 else 'entries are'} not MCP servers.")
    read = await asyncio.gather(*(_of_card(entry, source, local) for entry in cards[:MAX_CARDS]))
    return FoundServers(target, source, tuple(server for servers in read for server in servers), tuple(notes))


def _type_of(entry: Mapping[str, Any]) -> Any:
    kind = entry.get("type", entry.get("mediaType"))
    return kind.partition(";")[0].strip().lower() if isinstance(kind, str) else kind


async def _of_card(entry: Mapping[str, Any], catalog: str, local: bool) -> list[FoundServer]:
    name = _line(entry.get("displayName")) or _line(entry.get("identifier")) or "server"
    if isinstance(entry.get("data"), dict):
        return list(_servers_of(entry["data"], catalog, catalog, local)) or [_useless(name, catalog)]
    url = entry.get("url")
    if not isinstance(url, str):
        return [FoundServer(name, catalog, "other", problem="its card has no address")]
    address = urljoin(catalog, url.strip())
    try:
        card = await _document(address, local, MAX_CARD_BYTES, _CARD_TYPES[0])
    except _Unreadable as error:
        return [FoundServer(name, _line(address), "other", problem=f"its card cannot be read: {error}")]
    return list(_servers_of(card, _line(address), catalog, local)) or [_useless(name, _line(address))]


def _useless(name: str, source: str) -> FoundServer:
    return FoundServer(name, source, "other", problem="it lists no address and no package")


async def _in_registry(target: str, registry: str) -> FoundServers:
    match = _TYPED_NAME.fullmatch(target)
    assert match is not None
    version = quote(match["version"] or "latest", safe="")
    source = f"{registry.rstrip('/')}/v0/servers/{quote(match['name'], safe='')}/versions/{version}"
    local = is_this_computer(urlsplit(registry).hostname or "")
    try:
        answer = await _document(source, local, MAX_CARD_BYTES, "application/json")
    except _Unreadable as error:
        if "404" in str(error):
            hint = f"%mcp find {match['name'].rpartition('/')[2]} searches the registry."
            raise UsageError(f"The registry has no server {shown(target)}.", hint=hint) from None
        raise UsageError(f"The registry {shown(registry)} cannot be asked: {error}.") from None
    servers = _of_answer(answer, source, local)
    if any(server.name != match["name"] for server in servers):
        raise UsageError(f"The registry {shown(registry)} answered with another server than {shown(target)}.")
    return FoundServers(target, source, tuple(servers))


async def _search(words: str, registry: str) -> FoundServers:
    source = f"{registry.rstrip('/')}/v0/servers?search={quote(words[:200], safe='')}&version=latest&limit={MAX_SEARCHED}"
    local = is_this_computer(urlsplit(registry).hostname or "")
    try:
        answer = await _document(source, local, MAX_CATALOG_BYTES, "application/json")
    except _Unreadable as error:
        raise UsageError(f"The registry {shown(registry)} cannot be asked: {error}.") from None
    rows = answer.get("servers")
    rows = [row for row in rows if isinstance(row, dict)][:MAX_SEARCHED] if isinstance(rows, list) else []
    return FoundServers(words, source, tuple(server for row in rows for server in _of_answer(row, source, local)))


def _of_answer(answer: Mapping[str, Any], source: str, local: bool) -> list[FoundServer]:
    described = answer.get("server", answer)
    if not isinstance(described, dict):
        return []
    servers = list(_servers_of(described, source, None, local)) or [_useless(_line(described.get("name")), source)]
    meta = answer.get("_meta")
    official = meta.get("io.modelcontextprotocol.registry/official") if isinstance(meta, dict) else None
    status = official.get("status") if isinstance(official, dict) else described.get("status")
    if status == "deleted":
        return [replace(server, problem="it was deleted from the registry") for server in servers]
    if status == "deprecated":
        return [replace(server, notes=("It is deprecated.", *server.notes)) for server in servers]
    return servers


def _servers_of(card: Mapping[str, Any], source: str, catalog: str | None, local: bool) -> Iterator[FoundServer]:
    """Make a server of each way to reach the one that a card or an entry of a registry describes, addresses first."""
    name = card.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        yield FoundServer(_line(name) or "server", source, "other", problem="its name is not valid")
        return
    base = FoundServer(
        name,
        source,
        "other",
        title=_line(card.get("title")),
        description=_line(card.get("description")),
        version=_line(card.get("version"))[:100],
    )
    for remote in _objects(card.get("remotes")):
        yield _with_way(replace(base, way="sse" if remote.get("type") == "sse" else "http"), remote, _remote, catalog, local)
    # Cards have no packages, since they come from whoever runs the server.
    for package in _objects(card.get("packages")) if catalog is None else ():
        way = {"npm": "npm", "pypi": "pypi", "oci": "oci"}.get(_line(_field(package, "registryType")), "other")
        yield _with_way(replace(base, way=way), package, _package, catalog, local)  # type: ignore[arg-type]


def _with_way(base: FoundServer, described: Mapping[str, Any], read: Any, catalog: str | None, local: bool) -> FoundServer:
    inputs = _Values(base.short_name)
    try:
        entry, notes = read(base, described, inputs, catalog, local)
    except _Unreadable as error:
        return replace(base, problem=str(error))
    return replace(base, entry=entry, needs=tuple(inputs.needs), notes=tuple(notes))


def _remote(
    base: FoundServer, remote: Mapping[str, Any], inputs: _Values, catalog: str | None, local: bool
) -> tuple[dict[str, Any], list[str]]:
    if remote.get("type") not in ("streamable-http", "sse"):
        raise _Unreadable(f"its transport {_line(remote.get('type')) or 'is not named and'} is not known")
    written = remote.get("url")
    if not isinstance(written, str) or len(written) > 2_000 or not written.isprintable() or " " in written:
        raise _Unreadable("its address is not valid")
    host = _checked_host(written, local)
    entry: dict[str, Any] = {"url": inputs.filled(written, remote.get("variables"))}
    if base.way == "sse":
        entry["transport"] = "sse"
    headers: dict[str, str] = {}
    for header in _objects(remote.get("headers")):
        name = header.get("name")
        if not isinstance(name, str) or name.lower() in _OWN_HEADERS or name.lower().startswith("mcp-"):
            raise _Unreadable(f"its header {_line(name) or 'without a name'} cannot be set")
        if (value := inputs.value(header, f"{inputs.prefix}_{name}")) is not None:
            headers[name] = value
    if headers:
        entry["headers"] = headers
    if not any(name.lower() == "authorization" for name in headers):
        # It is used only if the server requires it.
        entry["auth"] = "oauth"
    notes = []
    home = urlsplit(catalog).hostname if catalog else None
    if home is not None and host != home and not host.endswith(f".{home}"):
        notes.append(f"Its address is on another host, {host}, than the catalog, which is on {home}.")
    return entry, notes


_OWN_HEADERS = frozenset(
    {"connection", "content-length", "content-type", "cookie", "host", "te", "transfer-encoding", "upgrade"}
)


def _checked_host(url: str, local: bool) -> str:
    """Read the host of an endpoint. It has to be public, unless what names it is on this computer, too."""
    if "{" in url.partition("://")[2].partition("/")[0]:
        raise _Unreadable("its address has a placeholder for its host")
    try:
        AddressGuard("http://localhost" if local else "").check(url)
    except AddressRefusedError as error:
        raise _Unreadable(f"its address cannot be used: {error}") from None
    return (urlsplit(url).hostname or "").lower()


_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE),
    "pypi": re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.IGNORECASE),
    "oci": re.compile(r"[a-z0-9][a-z0-9.-]*(?::\d{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*(?::\w[\w.-]*)?(?:@sha256:[0-9a-f]{64})?"),
}
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,100}")
_HOMES = {
    "npm": ("https://registry.npmjs.org",),
    "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "oci": ("https://docker.io", "https://ghcr.io"),
}
_USUAL_OPTIONS = {"npm": ("-y", "--yes"), "pypi": (), "oci": ("run", "-i", "--interactive", "--rm", "-e", "--env")}
"""Options of the runners that are there anyway. Others could do anything, so an entry that wants them is left to the person."""
_OF_RUNNERS = re.compile(
    r"(?:npm_|node|uv_|pip_|python|docker|container|ld_|dyld_|ssl_|curl_|git_|bash_|xdg_).*|"
    r"path|home|user|shell|env|ifs|tmpdir|temp|tmp|comspec|pathext|(?:http|https|all|no)_proxy",
    re.IGNORECASE,
)
"""Variables that make a runner start something else, or get it from elsewhere."""


def _package(
    base: FoundServer, package: Mapping[str, Any], inputs: _Values, catalog: str | None, local: bool
) -> tuple[dict[str, Any], list[str]]:
    kind, identifier, version = base.way, package.get("identifier"), package.get("version")
    if kind not in _IDENTIFIERS:
        raise _Unreadable(f"packages of {_line(_field(package, 'registryType')) or 'this kind'} cannot be started here")
    if not isinstance(identifier, str) or len(identifier) > 300 or _IDENTIFIERS[kind].fullmatch(identifier) is None:
        raise _Unreadable(f"its {kind} package has no valid name")
    if version is not None and (not isinstance(version, str) or _VERSION.fullmatch(version) is None):
        raise _Unreadable(f"its {kind} package has no valid version")
    home = _field(package, "registryBaseUrl")
    if home is not None and str(home).rstrip("/") not in _HOMES[kind]:
        raise _Unreadable(f"its package is in another place than {_HOMES[kind][0]}, from where it would be fetched")
    transport = package.get("transport")
    if isinstance(transport, dict) and transport.get("type", "stdio") != "stdio":
        raise _Unreadable("its package is started as a service: start it yourself, and connect to its address")
    for option in _objects(_field(package, "runtimeArguments")):
        if (option.get("name") or option.get("value")) not in _USUAL_OPTIONS[kind]:
            raise _Unreadable("it wants options for the command that starts it: add it by hand, as a command")
    env: dict[str, str] = {}
    for variable in _objects(_field(package, "environmentVariables")):
        name = variable.get("name")
        if not isinstance(name, str) or re.fullmatch(r"[A-Za-z_]\w{0,99}", name, re.ASCII) is None:
            raise _Unreadable("it has an environment variable without a valid name")
        if _OF_RUNNERS.fullmatch(name):
            raise _Unreadable(f"it sets {name}, which changes what is started, or from where it is fetched")
        if (value := inputs.value(variable, name)) is not None:
            env[name] = value
    arguments = list(_arguments(_objects(_field(package, "packageArguments")), inputs))
    pinned = f"{identifier}{'==' if kind == 'pypi' else ':' if kind == 'oci' else '@'}{version}" if version else identifier
    if kind == "npm":
        command = ["npx", "-y", pinned]
    elif kind == "pypi":
        command = ["uvx", pinned]
    else:
        tagged = version and ":" not in identifier.rpartition("/")[2]
        passed = [word for name in env for word in ("-e", name)]
        command = ["docker", "run", "-i", "--rm", *passed, pinned if tagged else identifier]
    notes = [] if version or (kind == "oci" and pinned.count(":")) else ["Its package has no fixed version."]
    if shutil.which(command[0]) is None:
        notes.append(f"The command {command[0]} is not installed here.")
    entry = {"command": command[0], "args": [*command[1:], *arguments], **({"env": env} if env else {})}
    return entry, notes


def _arguments(described: Iterable[Mapping[str, Any]], inputs: _Values) -> Iterator[str]:
    for argument in described:
        name = argument.get("name")
        named = argument.get("type") == "named" and isinstance(name, str)
        hint = argument.get("valueHint")
        label = name if named else hint if isinstance(hint, str) else "argument"
        value = inputs.value(argument, f"{inputs.prefix}_{label}")
        if named and (value is not None or argument.get("isRequired") is True):
            yield _escaped(str(name)[:200])
        if value is not None:
            yield value


class _Values:
    """Makes values of a config's entry from the inputs that a document describes, and notes those that a person has to give."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.needs: dict[str, None] = {}

    def value(self, described: Mapping[str, Any], variable: str) -> str | None:
        """Build a value: as described, the default, a reference to `variable` if it is required, or None to leave it out."""
        for key in ("value", "default"):
            text = described.get(key)
            if isinstance(text, str | int | float) and str(text):
                return self.filled(_checked_text(text), described.get("variables") if key == "value" else None)
        return self._reference(variable) if described.get("isRequired") is True else None

    def filled(self, text: str, variables: Any) -> str:
        """Replace `{name}` in a text by the values of these variables. Nothing else in it refers to anything."""
        described = variables if isinstance(variables, dict) else {}
        pieces: list[str] = []
        end = 0
        for match in re.finditer(r"\{([A-Za-z_]\w{0,99})\}", text):
            if match[1] not in described:
                continue
            pieces.append(_escaped(text[end : match.start()]))
            inner = described[match[1]] if isinstance(described[match[1]], dict) else {}
            plain = next((inner[key] for key in ("value", "default") if isinstance(inner.get(key), str)), None)
            name = f"{self.prefix}_{match[1]}"
            pieces.append(self._reference(name) if plain is None else _escaped(_checked_text(plain)))
            end = match.end()
        return "".join([*pieces, _escaped(text[end:])])

    def _reference(self, variable: str) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "_", variable).strip("_").upper()
        if len(self.needs) >= _MAX_INPUTS or not name:
            raise _Unreadable(f"it asks for more than {_MAX_INPUTS} values")
        self.needs[name] = None
        return f"${{input:{name}}}"


def _checked_text(value: Any) -> str:
    text = str(value)
    if len(text) > 2_000 or not text.isprintable():
        raise _Unreadable("it has a value that is too long, or has control characters")
    return text


def _escaped(text: str) -> str:
    """Write a text so that a config takes it as it is: a reference in it would read the person's environment."""
    return text.replace("${", "$${")


def _field(package: Mapping[str, Any], name: str) -> Any:
    """Read a field, also as it was written before September 2025, such as `registry_type`."""
    return package.get(name, package.get(re.sub(r"(?=[A-Z])", "_", name).lower()))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value[:_MAX_INPUTS] if isinstance(each, dict)] if isinstance(value, list) else []


def _line(value: Any) -> str:
    """Clean a foreign text: one line, without invisible characters, cut in length."""
    text = value[:_MAX_TEXT] if isinstance(value, str) else ""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


async def _document(url: str, local: bool, max_bytes: int, accept: str) -> dict[str, Any]:
    """Read a JSON object. From the public internet over https, or from this computer if the person typed its address."""
    from mcp.server.mcpserver.exceptions import ToolError

    from casual_mcp_nb.bundled.web_server import fetch

    allowed = ("127.0.0.1", "::1") if local else ()
    try:
        page = await fetch(url, allowed, max_bytes, accept=f"{accept}, application/json;q=0.9", https_only=not local)
    except ToolError as error:
        raise _Unreadable(_line(str(error)).rstrip(".")) from None
    if page.cut:
        raise _Unreadable(f"it has more than {max_bytes:,} bytes")
    try:
        document = await asyncio.to_thread(json.loads, page.body)
    except (ValueError, RecursionError):
        raise _Unreadable("it is not JSON") from None
    if not isinstance(document, dict):
        raise _Unreadable("it is not a JSON object")
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
        """Build the entry as `config` does, for use: its address has to be public, unless it was found on this computer."""
        entry = self.config(environ).servers[self.name]
        entry._origin = replace(entry._origin, found=not is_this_computer(urlsplit(self.server.source).hostname or ""))
        return entry

    def config(self, environ: Mapping[str, str] | None = None) -> Config:
        """Build a config with the entry and its values, for which the person is prompted if no environment variable has them.

        Raises:
            ConfigError: A required value is missing. The message names them.
        """
        missing = [name for name in self.server.needs if not (environ or {}).get(name)]
        try:
            return load_config({"servers": {self.name: dict(self.server.entry)}}, environ=environ)
        except ConfigError:
            if not missing:
                raise
            hint = f"Set the environment {'variable' if len(missing) == 1 else 'variables'} {', '.join(missing)}."
            raise ConfigError(
                f"{self.server.name} needs {', '.join(missing)}.", key=f"servers.{self.name}", hint=hint
            ) from None

    def report(self) -> Trust:
        """Report which program or host would be used, and whether the person must accept it first."""
        # Without values: the person is prompted for them only after they have accepted it.
        stand_ins = dict.fromkeys(self.server.needs, "stand-in")
        config = self.config(stand_ins)
        store = TrustStore()
        entries = store.entries(config, self._key)
        accepted = all(entry.state == "trusted" for entry in entries)
        why = "It is as you accepted it." if accepted else ""
        return Trust(self.server.source, entries, not accepted, why, lambda: store.accept(config, self._key))

    @property
    def question(self) -> str:
        """Everything to know before accepting it, in lines with nothing cut."""
        server, report = self.server, self.report()
        lines = [f"Add the server {server.name} {server.version}".rstrip() + "? You have not accepted this yet:"]
        lines += [f"  {'found at':12} {server.source}"]
        lines += [f"  {'describes as':12} {server.description}"] if server.description else []
        lines += map(lines_of, report.entries)
        lines += [f"  {'asks for':12} {', '.join(server.needs)}"] if server.needs else []
        return "\n".join([*lines, *(f"! {note}" for note in server.notes)])
