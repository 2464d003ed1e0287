"""Read a server's description: an entry of a registry, MCP's `server.json`, or a server card.

It is the one reader of this format, for listings that are found and for files. Everything in a
description is foreign: bounded, cleaned, and made into an entry of a config. What would start
something else than its package is refused.

Format:
https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.ip_addresses import host_in
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.named_address import AddressGuard, AddressRefusedError
from casual_mcp_nb.config.document import list_in, object_in
from casual_mcp_nb.config.inputs import Input, variable_name

Way = Literal["http", "sse", "npm", "pypi", "oci", "nuget", "other"]
"""How a server is reached: at an address, or as a package that a command of this computer fetches
and runs.
"""

_MAX_TEXT = 300
_MAX_INPUTS = 40
FULL_NAME = re.compile(r"[A-Za-z0-9.-]{1,100}/[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class FoundServer(Displayable):
    """A way to reach a server that a catalog or a registry lists.

    Nothing of it was started or contacted.

    Attributes:
        name: Its full name, such as `com.example/weather`.
        source: The address at which it is described.
        way: How it is reached.
        entry: An entry of a config's `servers`. Values that the person has to give are
            `${input:NAME}`.
        needs: The names of those values, which are environment variables too.
        inputs: The same, as the description has them.
        optional: Values that are not set, because they need not be.
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
    inputs: tuple[Input, ...] = field(default=(), repr=False)
    optional: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def short_name(self) -> str:
        """The name for a config: what is after the slash, in plain characters."""
        return (
            re.sub(r"[^A-Za-z0-9_-]+", "-", self.name.rpartition("/")[2]).strip("-")[:40]
            or "server"
        )

    @property
    def target(self) -> str:
        """The command line or the address, whole."""
        words = [str(self.entry.get("command", "")), *map(str, self.entry.get("args", ()))]
        return str(self.entry.get("url", "")) or " ".join(words)


class UnreadableError(Exception):
    """A document cannot be read. The message has the reason."""


def servers_of(
    card: Mapping[str, Any], source: str, catalog: str | None, local: bool
) -> Iterator[FoundServer]:
    """Make a server of each way to reach the one that a card or an entry of a registry describes,
    addresses first.
    """
    name = card.get("name")
    if not isinstance(name, str) or FULL_NAME.fullmatch(name) is None:
        yield FoundServer(
            line_of(name) or "server", source, "other", problem="its name is not valid"
        )
        return
    base = FoundServer(
        name,
        source,
        "other",
        title=line_of(card.get("title")),
        description=line_of(card.get("description")),
        version=line_of(card.get("version"))[:100],
    )
    for remote in objects_of(card.get("remotes")):
        way: Way = "sse" if remote.get("type") == "sse" else "http"
        read = partial(_remote, catalog=catalog, local=local)
        yield _with_way(replace(base, way=way), remote, read)
    if catalog is not None:
        # Cards have no packages, since they come from whoever runs the server.
        return
    for package in objects_of(card.get("packages")):
        kind = line_of(_field(package, "registryType"))
        way = next((known for known in _KINDS if known == kind), "other")
        yield _with_way(replace(base, way=way), package, _package)


def _with_way(base: FoundServer, described: Mapping[str, Any], read: Any) -> FoundServer:
    inputs = _Values(base.short_name)
    try:
        entry, notes = read(base, described, inputs)
    except UnreadableError as error:
        return replace(base, problem=str(error))
    return replace(
        base,
        entry=entry,
        needs=tuple(inputs.needs),
        inputs=tuple(inputs.needs.values()),
        optional=tuple(inputs.optional),
        notes=tuple(notes),
    )


def _remote(
    base: FoundServer, remote: Mapping[str, Any], inputs: _Values, catalog: str | None, local: bool
) -> tuple[dict[str, Any], list[str]]:
    if remote.get("type") not in ("streamable-http", "sse"):
        raise UnreadableError(
            f"its transport {line_of(remote.get('type')) or 'is not named and'} is not known"
        )
    written = remote.get("url")
    if not isinstance(written, str) or " " in written or not _is_plain(written):
        raise UnreadableError("its address is not valid")
    entry: dict[str, Any] = {"url": inputs.filled(written, object_in(remote, "variables"))}
    host = _checked_host(entry["url"], local)
    if base.way == "sse":
        entry["transport"] = "sse"
    headers: dict[str, str] = {}
    for header in objects_of(remote.get("headers")):
        name = header.get("name")
        if not isinstance(name, str) or _OWN_HEADER.fullmatch(name):
            raise UnreadableError(f"its header {line_of(name) or 'without a name'} cannot be set")
        if (value := inputs.value(header, f"{inputs.prefix}_{name}")) is not None:
            headers[name] = value
    if headers:
        entry["headers"] = headers
    if not any(name.lower() == "authorization" for name in headers):
        # It is used only if the server requires it.
        entry["auth"] = "oauth"
    notes = []
    home = host_in(catalog)
    if home and host != home and not host.endswith(f".{home}"):
        notes.append(
            f"Its address is on another host, {host}, than the catalog, which is on {home}."
        )
    return entry, notes


_OWN_HEADER = re.compile(
    r"connection|content-length|content-type|cookie|host|te|transfer-encoding|upgrade|mcp-.*",
    re.IGNORECASE | re.DOTALL,
)


def _checked_host(url: str, local: bool) -> str:
    """Read the host of an endpoint.

    It has to be public, unless what names it is on this computer, too.
    """
    if "{" in url.partition("://")[2].partition("/")[0]:
        raise UnreadableError("its address has a placeholder for its host")
    try:
        named_by = "http://localhost" if local else ""
        AddressGuard(named_by).check(url)
    except AddressRefusedError as error:
        raise UnreadableError(f"its address cannot be used: {error}") from None
    return host_in(url).lower()


@dataclass(frozen=True)
class _Kind:
    """A kind of package.

    Args:
        identifier: What the names of its packages look like.
        homes: Where its command fetches them.
        command: The command, up to the package.
        options: Options of the command that are there anyway. Others could do anything, so an entry
            that wants them is left to the person.
        before_version: What is between a package and its version.
    """

    identifier: re.Pattern[str]
    homes: tuple[str, ...]
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    before_version: str = "@"


_KINDS: Mapping[Way, _Kind] = {
    "npm": _Kind(
        re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE),
        ("https://registry.npmjs.org",),
        ("npx", "-y"),
        ("-y", "--yes"),
    ),
    "pypi": _Kind(
        re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.IGNORECASE),
        ("https://pypi.org", "https://pypi.org/simple"),
        ("uvx",),
        before_version="==",
    ),
    "nuget": _Kind(
        re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?", re.IGNORECASE),
        ("https://api.nuget.org", "https://api.nuget.org/v3/index.json"),
        ("dnx",),
        ("--yes",),
    ),
    "oci": _Kind(
        re.compile(
            r"[a-z0-9][a-z0-9.-]*(?::\d{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*(?::\w[\w.-]*)?(?:@sha256:[0-9a-f]{64})?"
        ),
        ("https://docker.io", "https://ghcr.io"),
        ("docker", "run", "-i", "--rm"),
        ("run", "-i", "--interactive", "--rm", "-e", "--env"),
        ":",
    ),
}
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,100}")
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_OF_RUNNERS = re.compile(
    r"(?:npm_|node|uv_|pip_|python|docker|container|ld_|dyld_|ssl_|curl_|git_|bash_|xdg_).*|"
    r"path|home|user|shell|env|ifs|tmpdir|temp|tmp|comspec|pathext|(?:http|https|all|no)_proxy",
    re.IGNORECASE,
)
"""Variables that make a runner start something else, or get it from elsewhere."""


def _package(
    base: FoundServer, package: Mapping[str, Any], inputs: _Values
) -> tuple[dict[str, Any], list[str]]:
    way, kind = base.way, _KINDS.get(base.way)
    if kind is None:
        raise UnreadableError(
            f"packages of {line_of(_field(package, 'registryType')) or 'this kind'} cannot be"
            " started here"
        )
    identifier = _matching(
        package.get("identifier"), kind.identifier, f"its {way} package has no valid name"
    )
    version = package.get("version")
    if version is not None:
        version = _matching(version, _VERSION, f"its {way} package has no valid version")
    home = _field(package, "registryBaseUrl")
    if home is not None and str(home).rstrip("/") not in kind.homes:
        raise UnreadableError(
            f"its package is in another place than {kind.homes[0]}, from where it would be fetched"
        )
    if object_in(package, "transport").get("type", "stdio") != "stdio":
        raise UnreadableError(
            "its package is started as a service: start it yourself, and connect to its address"
        )
    for option in objects_of(_field(package, "runtimeArguments")):
        if (option.get("name") or option.get("value")) not in kind.options:
            raise UnreadableError(
                "it wants options for the command that starts it: add it by hand, as a command"
            )
    env: dict[str, str] = {}
    for variable in objects_of(_field(package, "environmentVariables")):
        name = _matching(
            variable.get("name"), _VARIABLE, "it has an environment variable without a valid name"
        )
        if _OF_RUNNERS.fullmatch(name):
            raise UnreadableError(
                f"it sets {name}, which changes what is started, or from where it is fetched"
            )
        if (value := inputs.value(variable, name)) is not None:
            env[name] = value
    arguments = list(_arguments(objects_of(_field(package, "packageArguments")), inputs))
    has_tag = way == "oci" and ":" in identifier.rpartition("/")[2]
    pinned = identifier
    if version and not has_tag:
        pinned = f"{identifier}{kind.before_version}{version}"
    command = [*kind.command]
    if way == "oci":
        for name in env:
            command += ("-e", name)
    command.append(pinned)
    if way == "nuget":
        command.append("--yes")
        if arguments:
            command.append("--")
    notes: list[str] = []
    if not version and not has_tag:
        notes.append("Its package has no fixed version.")
    if shutil.which(command[0]) is None:
        notes.append(f"The command {command[0]} is not installed here.")
    entry: dict[str, Any] = {"command": command[0], "args": [*command[1:], *arguments]}
    if env:
        entry["env"] = env
    return entry, notes


def _matching(value: object, pattern: re.Pattern[str], problem: str) -> str:
    if not isinstance(value, str) or len(value) > 300 or pattern.fullmatch(value) is None:
        raise UnreadableError(problem)
    return value


def _arguments(described: Iterable[Mapping[str, Any]], inputs: _Values) -> Iterator[str]:
    for argument in described:
        name = argument.get("name")
        named = argument.get("type") == "named" and isinstance(name, str)
        hint = _field(argument, "valueHint")
        label = hint if isinstance(hint, str) else "argument"
        if named:
            label = str(name)
        value = inputs.value(argument, f"{inputs.prefix}_{label}")
        if named and (value is not None or _field(argument, "isRequired") is True):
            yield _escaped(label[:200])
        if value is not None:
            yield value


class _Values:
    """Makes values of a config's entry from the inputs that a document describes, and notes those
    that a person has to give.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.needs: dict[str, Input] = {}
        self.optional: dict[str, None] = {}

    def value(self, described: Mapping[str, Any], variable: str) -> str | None:
        """Build a value: as described, the default, a reference to `variable` if it is required, or
        None to leave it out.
        """
        for key in ("value", "default"):
            text = described.get(key)
            if isinstance(text, str | int | float) and str(text):
                variables = object_in(described, "variables") if key == "value" else {}
                return self.filled(_checked_text(text), variables)
        if _field(described, "isRequired") is True:
            return self._reference(variable, described)
        name = line_of(described.get("name")) or line_of(_field(described, "valueHint"))
        self.optional[name] = None
        return None

    def filled(self, text: str, variables: Mapping[str, Any]) -> str:
        """Replace `{name}` in a text by the values of these variables.

        Nothing else in it refers to anything.
        """
        pieces: list[str] = []
        end = 0
        for match in re.finditer(r"\{([A-Za-z_]\w{0,99})\}", text):
            if match[1] not in variables:
                continue
            pieces.append(_escaped(text[end : match.start()]))
            inner = object_in(variables, match[1])
            given = [inner[key] for key in ("value", "default") if isinstance(inner.get(key), str)]
            if given:
                pieces.append(_escaped(_checked_text(given[0])))
            else:
                pieces.append(self._reference(f"{self.prefix}_{match[1]}", inner))
            end = match.end()
        return "".join([*pieces, _escaped(text[end:])])

    def _reference(self, variable: str, described: Mapping[str, Any]) -> str:
        name = variable_name(variable)
        if len(self.needs) >= _MAX_INPUTS or not name:
            raise UnreadableError(f"it asks for more than {_MAX_INPUTS} values")
        options = tuple(map(line_of, list_in(described, "choices")[:_MAX_INPUTS]))
        # Hidden while it is typed, unless the description says that it is not secret.
        secret = _field(described, "isSecret") is not False
        self.needs[name] = Input(
            name, line_of(described.get("description")), secret, options=options
        )
        return f"${{input:{name}}}"


def _checked_text(value: Any) -> str:
    text = str(value)
    if not _is_plain(text):
        raise UnreadableError("it has a value that is too long, or has control characters")
    return text


def _is_plain(text: str) -> bool:
    return len(text) <= 2_000 and text.isprintable()


def _escaped(text: str) -> str:
    """Write a text so that a config takes it as it is: a reference in it would read the person's
    environment.
    """
    return text.replace("${", "$${")


def _field(package: Mapping[str, Any], name: str) -> Any:
    """Read a field, also as it was written before September 2025, such as `registry_type`."""
    return package.get(name, package.get(re.sub(r"(?=[A-Z])", "_", name).lower()))


def objects_of(value: Any) -> list[dict[str, Any]]:
    """Take the objects of a list, and not more of them than anybody would read."""
    if not isinstance(value, list):
        return []
    return of_type(value[:_MAX_INPUTS], dict)


def line_of(value: Any) -> str:
    """Clean a foreign text: one line, without invisible characters, cut in length."""
    text = value[:_MAX_TEXT] if isinstance(value, str) else ""
    printable = [character if character.isprintable() else " " for character in text]
    return " ".join("".join(printable).split())
