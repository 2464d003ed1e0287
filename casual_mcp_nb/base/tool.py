"""Tools: names, definitions, the catalog, and who decided whether a call may run."""

from __future__ import annotations

import difflib
import hashlib
import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, overload, runtime_checkable

from casual_mcp_nb.base.displayable import Displayable, count
from casual_mcp_nb.base.iterables import drop_none, field_names, grouped
from casual_mcp_nb.base.limits import strict_json
from casual_mcp_nb.base.schema import MAX_PARAMETERS, limited_parameters, too_long
from casual_mcp_nb.base.tokens import text_tokens
from casual_mcp_nb.base.wire_names import MAX_WIRE_NAME, is_wire_name, plain_characters
from casual_mcp_nb.errors import (
    ConnectError,
    UnknownNameError,
    UsageError,
    closest,
    did_you_mean,
    shown,
)

MAX_DESCRIPTION = 10_000
"""How long a description sent to a model may be, in characters."""
MAX_TOOLS_ON_LOOP = 1_000
"""Work on more tools than this runs on another thread, so that the event loop is not blocked."""
Restriction = Literal["app only", "task only"]
SYNTHETIC = "_synthetic"
"""The server name under which synthetic tools, such as the search tool, are counted."""
_MAX_READ = 1_000


@dataclass(frozen=True, slots=True, order=True)
class ToolName:
    """A tool on a server. The server is known from the tool's connection, never from text."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}"

    @property
    def joined(self) -> str:
        """`server__tool`: the wire name, unless it is too long, taken, or has characters that
        providers refuse.
        """
        return f"{self.server}__{self.tool}"

    @classmethod
    def split(cls, text: str, servers: Iterable[str] = ()) -> ToolName:
        """Split `server:tool` or `server__tool` without a catalog.

        Any other text's server is empty. Both names can have colons: of the known `servers`, the
        one with the longest name counts. Without one, the last colon does, because MCP advises
        against colons in tools' names.
        """
        for server in sorted(servers, key=len, reverse=True):
            if text.startswith(f"{server}:"):
                return cls(server, text[len(server) + 1 :])
        if ":" in text:
            server, _, tool = text.rpartition(":")
        else:
            server, separator, tool = text.partition("__")
            if not separator:
                server, tool = "", text
        return cls(server, tool)


def wire_name(name: ToolName, *, suffixed: bool = False) -> str:
    """Build a tool's name in a form that providers accept: `server__tool`, `[A-Za-z0-9_-]`, at most
    64 characters.

    A name that is too long ends in eight hex digits from the full name's hash.
    """
    if not suffixed and is_wire_name(joined := name.joined):
        return joined
    text = ToolName(_wire_part(name.server), _wire_part(name.tool)).joined
    read_whole = max(len(name.server), len(name.tool)) <= _MAX_READ
    if not suffixed and read_whole and len(text) <= MAX_WIRE_NAME:
        return text
    digest = hashlib.sha256(
        f"{name.server}\0{name.tool}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:8]
    return f"{text[: MAX_WIRE_NAME - 9]}_{digest}"


def _wire_part(text: str) -> str:
    # The hash covers the rest: a huge name costs no more than a short one.
    beginning = text[:_MAX_READ]
    if not beginning.isascii():
        letters = unicodedata.normalize("NFKD", beginning)
        beginning = "".join(each for each in letters if not unicodedata.combining(each))
    return plain_characters(beginning)


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """A server's claims about a tool's behaviour, as in MCP. `None` means unspecified.

    Claims, never proof.
    """

    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    @property
    def badges(self) -> tuple[str, ...]:
        """The claims that are true, in words: `read-only`, `destructive`, `idempotent`,
        `open-world`.
        """
        claims = {
            "read-only": self.read_only,
            "destructive": self.destructive,
            "idempotent": self.idempotent,
            "open-world": self.open_world,
        }
        return tuple(word for word, holds in claims.items() if holds)


class Definition(dict[str, Any]):
    """A tool's definition as it is sent to models.

    Attributes:
        read_only: Whether the server claims that the tool only reads, or None if it claims neither
            that nor a change. It is not sent: the offline planner guesses, and must not guess a
            tool that writes.
    """

    read_only: bool | None = None


def hash_of(text: str) -> str:
    """Hash a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


_sorted = json.JSONEncoder(sort_keys=True, default=str).encode
_CLAIMS = field_names(ToolAnnotations)


class Risk(IntEnum):
    """A server's claim about the harm that a tool can do.

    The greater it is, the more often approval is needed.
    """

    HARMLESS = 0
    UNKNOWN = 1
    DESTRUCTIVE = 2


@dataclass(frozen=True, eq=False)
class ToolSpec(Displayable):
    """One tool of one server, as the server lists it.

    Args:
        server: The server's name in the config.
        name: The tool's own name.
        description: The server's text. May be empty.
        input_schema: JSON schema for the arguments.
        annotations: The server's claims about behaviour, if any.
        output_schema: JSON schema for structured results, if any.
        title: A name for people, if any.
        tags: The server's tags for it, which are categories to browse.
        restriction: Why it is never offered to a model: `app only` if it is meant only for an app's
            user interface (MCP Apps), `task only` if it runs only as a protocol task. Otherwise,
            None.
        always_load: Whether the server wants it loaded even if others are deferred.
        app: The URI of the resource that shows its results as an app (MCP Apps), or empty.
        for_apps: Whether apps of its server may call it.
        wire_name: The wire name. Derived from server and name unless a catalog assigns another one.
    """

    server: str
    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    annotations: ToolAnnotations | None = None
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    wire_name: str = ""
    restriction: Restriction | None = None
    tags: tuple[str, ...] = ()
    always_load: bool = False
    app: str = ""
    for_apps: bool = True

    def __post_init__(self) -> None:
        if not self.wire_name:
            object.__setattr__(self, "wire_name", wire_name(self.tool_name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolSpec) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.server, self.name))

    @cached_property
    def tool_name(self) -> ToolName:
        """Server and tool as one value."""
        return ToolName(self.server, self.name)

    @property
    def aliases(self) -> frozenset[str]:
        """Other names that people and models use for this tool. They may not be unique."""
        names = (
            self.name,
            str(self.tool_name),
            f"{self.server}_{self.name}",
            self.tool_name.joined,
        )
        return frozenset(names)

    @property
    def definition(self) -> Definition:
        """The definition sent to a model: `name` (the wire name), `description` and `parameters` (a
        JSON schema).

        Very long descriptions and parameter lists are cut. See `cuts`.
        """
        return self._defined[0]

    @property
    def cuts(self) -> tuple[str, ...]:
        """The parts that the definition leaves out, in words. Usually none."""
        return self._defined[1]

    @cached_property
    def _defined(self) -> tuple[Definition, tuple[str, ...], int]:
        parameters, cuts = limited_parameters(self.input_schema)
        text = self.description or self.name
        # The search tool's description contains the manifest, which has its own limit.
        if len(text) > MAX_DESCRIPTION and self.server != SYNTHETIC:
            cuts = [f"its description to {MAX_DESCRIPTION:,} of {len(text):,} characters", *cuts]
            text = f"{text[:MAX_DESCRIPTION]} [...]"
        # A provider would refuse the whole request for a lone surrogate. Written once, for its
        # length and its tokens.
        definition, written = strict_json(
            {"name": self.wire_name, "description": text, "parameters": parameters}
        )
        if len(written) > MAX_PARAMETERS and (cut := too_long(parameters)):
            cuts = [*cuts, cut]
            definition, written = strict_json(
                {**definition, "parameters": {"type": "object", "properties": {}}}
            )
        defined = Definition(definition)
        if self.read_only or self.declared_to_write:
            defined.read_only = self.read_only
        return defined, tuple(cuts), text_tokens(written)

    @property
    def tokens(self) -> int:
        """Estimated tokens for offering this tool to a model."""
        return self._defined[2]

    @cached_property
    def digest(self) -> str:
        """A hash of the wire name and all that the server declares about this tool."""
        whole = [self.server, self.name, self.as_listed, self.wire_name]
        return hash_of(_sorted(whole))

    @cached_property
    def meaning(self) -> str:
        """A short hash of what a description in place of the server's has to fit: its description,
        hints and parameters.
        """
        listed = self.as_listed
        parameters = sorted(map(str, self.input_schema.get("properties") or ()))
        whole = [
            listed["description"],
            listed["annotations"],
            parameters,
            self.input_schema.get("required") or [],
        ]
        return hash_of(_sorted(whole))[:16]

    @property
    def as_listed(self) -> dict[str, Any]:
        """The server's statements about this tool, apart from its name."""
        claims = {name: getattr(self.annotations, name, None) for name in _CLAIMS}
        statements: dict[str, Any] = {
            "title": self.title,
            "description": self.description,
            "parameters": self.input_schema,
            "result": self.output_schema,
            "annotations": drop_none(claims),
        }
        for name in ("restriction", "tags", "always_load", "app"):
            if value := getattr(self, name):
                statements[name] = value
        if not self.for_apps:
            statements["for_apps"] = False
        return statements

    @property
    def read_only(self) -> bool:
        """Whether the server claims that the tool changes nothing."""
        return bool(self.annotations and self.annotations.read_only)

    @property
    def declared_to_write(self) -> bool:
        """Whether the server claims that the tool changes something. Silence is no claim."""
        hints = self.annotations
        if hints is None or hints.read_only:
            return False
        # By MCP, the last two mean something only for a tool that is not read-only.
        claims = (hints.read_only, hints.destructive, hints.idempotent)
        return any(claim is not None for claim in claims)

    @property
    def destructive(self) -> bool:
        """Whether the tool may destroy something: claimed, or not denied by a tool that is not
        read-only (MCP's default).
        """
        if self.read_only:
            return False
        return self.annotations is None or self.annotations.destructive is not False

    @cached_property
    def risk(self) -> Risk:
        """The claimed harm; `unknown` for a tool that writes and does not declare whether it is
        destructive.
        """
        hints = self.annotations
        if hints is None:
            return Risk.UNKNOWN
        if hints.read_only or hints.destructive is False:
            return Risk.HARMLESS
        return Risk.DESTRUCTIVE if hints.destructive else Risk.UNKNOWN


@dataclass(frozen=True)
class ToolChange:
    """A tool whose definition differs from the one first listed or last accepted, and which may be
    blocked until it is.
    """

    before: ToolSpec
    after: ToolSpec
    blocked: bool = False

    @property
    def tool(self) -> ToolName:
        """Which tool."""
        return self.after.tool_name

    @property
    def diff(self) -> str:
        """Old and new text as a unified diff."""
        old, new = _definition_lines(self.before), _definition_lines(self.after)
        return "\n".join(difflib.unified_diff(old, new, "before", "now", n=3, lineterm=""))


def _definition_lines(tool: ToolSpec) -> list[str]:
    return json.dumps(tool.as_listed, indent=2, ensure_ascii=False, default=str).splitlines()


class _Owned(Protocol):
    @property
    def server(self) -> str: ...


class _Offer(_Owned, Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Owned)


def by_server(items: Iterable[T]) -> dict[str, tuple[T, ...]]:
    """Group tools, prompts or skills by server, in the order given."""
    groups = grouped(items, "server")
    return {server: tuple(owned) for server, owned in groups.items()}


def of_server(items: Iterable[T], server: str) -> list[T]:
    """List those of the tools, skills or names that are of one server."""
    return [item for item in items if item.server == server]


def forget_server(values: MutableMapping[ToolName, Any], server: str) -> None:
    """Delete what is stored for the tools of a server."""
    for name in of_server(values, server):
        del values[name]


def full_names(items: Iterable[_Offer]) -> list[str]:
    """List the names of tools, prompts or skills, each with its server: `server:name`."""
    return [f"{item.server}:{item.name}" for item in items]


def hash_of_tools(tools: Iterable[ToolSpec]) -> str:
    """Hash the definitions of the tools, in order."""
    return hash_of("".join(tool.digest for tool in tools))


def by_tool_name(tools: Iterable[ToolSpec]) -> dict[ToolName, ToolSpec]:
    """Index the tools by server and name. The last one counts if several have them."""
    return {tool.tool_name: tool for tool in tools}


def by_wire_name(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """Index the tools by wire name. The last one counts if several have it."""
    return {tool.wire_name: tool for tool in tools}


def tool_names(tools: Iterable[ToolSpec]) -> set[ToolName]:
    """Collect the tools' names, each with its server."""
    return {tool.tool_name for tool in tools}


def for_models(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """List the tools that a model can be offered: those without a `restriction`."""
    return [tool for tool in tools if tool.restriction is None]


def servers_of(tools: Iterable[ToolSpec]) -> set[str]:
    """Collect the names of the servers that have these tools."""
    return {tool.server for tool in tools}


@runtime_checkable
class ToolCatalog(Protocol):
    """A source of tools: a `Catalog` in memory, or your database or registry.

    The manifest, the search index, `SearchToolsTool`, `evaluate` and `lint` read tools through
    these methods alone. No two tools have the same wire name.
    """

    def __len__(self) -> int:
        """Count the tools."""

    def __iter__(self) -> Iterator[ToolSpec]:
        """Yield every tool, in the same order each time."""

    def get(self, name: str | ToolName, /) -> ToolSpec | None:
        """Find the tool with this wire name, or `server:tool`, or None if there is none."""


class Catalog(Sequence[ToolSpec]):
    """All servers' tools, each with a unique wire name. A `ToolCatalog` in memory. Immutable.

    If two tools have the same server and name, the first counts. Tools whose wire names collide all
    get a suffix derived from their full name, so names do not depend on which server is ready
    first.

    Args:
        tools: The tools, in order.
        absent: Returns the servers whose tools are unknown, each with why, such as "did not start:
            …". None for those of `tools`, if that is a catalog.
    """

    def __init__(
        self, tools: Iterable[ToolSpec] = (), absent: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        if absent is None:
            absent = tools.absent if isinstance(tools, Catalog) else dict
        self.absent: Callable[[], Mapping[str, str]] = absent
        unique = by_tool_name(reversed(list(tools)))
        groups: dict[str, list[ToolSpec]] = defaultdict(list)
        for tool in reversed(unique.values()):
            groups[wire_name(tool.tool_name)].append(tool)
        named: dict[ToolName, ToolSpec] = {}
        for name, group in groups.items():
            for tool in group:
                own = name if len(group) == 1 else wire_name(tool.tool_name, suffixed=True)
                named[tool.tool_name] = _with_wire_name(tool, own)
        self._tools = tuple(named[name] for name in reversed(unique))

    @overload
    def __getitem__(self, index: int) -> ToolSpec: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ToolSpec, ...]: ...
    def __getitem__(self, index: int | slice) -> ToolSpec | tuple[ToolSpec, ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"<Catalog: {count(len(self), 'tool')} of {count(len(self.by_server), 'server')}>"

    @cached_property
    def version(self) -> str:
        """A content hash: the same tools always have the same version."""
        return hash_of_tools(self._tools)[:16]

    @cached_property
    def by_server(self) -> Mapping[str, tuple[ToolSpec, ...]]:
        """The tools by server."""
        return by_server(self._tools)

    @cached_property
    def by_wire_name(self) -> Mapping[str, ToolSpec]:
        """The tools by wire name: the only place where wire names are resolved."""
        return by_wire_name(self._tools)

    @cached_property
    def _by_alias(self) -> Mapping[str, tuple[ToolSpec, ...]]:
        aliases: dict[str, list[ToolSpec]] = defaultdict(list)
        for tool in self._tools:
            for alias in tool.aliases:
                aliases[alias].append(tool)
        return {alias: tuple(tools) for alias, tools in aliases.items()}

    def get(self, name: str | ToolName) -> ToolSpec | None:
        """Find the tool with this name, in any form that `resolve` accepts, or None if there is
        none or more than one.
        """
        matches = self.matches(name)
        return matches[0] if len(matches) == 1 else None

    def matches(self, name: str | ToolName) -> tuple[ToolSpec, ...]:
        """Find the tools with this name, in any form that `resolve` accepts: one for a wire name,
        else all that share it.
        """
        if isinstance(name, str) and name in self.by_wire_name:
            return (self.by_wire_name[name],)
        return self._by_alias.get(str(name), ())

    def named(self, name: str) -> bool:
        """Check whether any tool has this name."""
        return name in self.by_wire_name or name in self._by_alias

    def resolve(self, name: str | ToolName) -> ToolSpec:
        """Find the tool by its wire name, `server:tool`, `server_tool`, or the bare tool name if it
        is unique.

        An UnknownNameError suggests the closest names, a UsageError lists the tools if several
        servers have one, and a ConnectError says why the tools of its server are unknown.
        """
        tools = self.matches(name)
        if len(tools) == 1:
            return tools[0]
        if tools:
            owners = ", ".join(shown(str(tool.tool_name)) for tool in tools[:12])
            raise UsageError(
                f"Several servers have a tool {shown(str(name))}.",
                hint=f"Add the server's name: {owners}.",
            )
        absent = self.absent()
        if (owner := self.absent_owner(str(name))) is not None:
            raise ConnectError(
                f"Tool {shown(str(name))} is not available: server {shown(owner)}"
                f" {absent.get(owner, 'is gone')}.",
                hint="Fix it and reconnect: session.servers.reconnect(name).",
                server=owner,
            )
        hint = f"{self._suggestion(str(name))} {self.why_incomplete()}".strip()
        raise UnknownNameError("tool", str(name), full_names(self._tools), hint=hint)

    def why_incomplete(self) -> str:
        """Say whose tools are unknown, and why. Empty if all are known."""
        absent = list(self.absent().items())
        if not absent:
            return ""
        reasons = [f"{shown(server)} {reason.rstrip('.')}" for server, reason in absent]
        text = f"Not all tools are known: {'; '.join(reasons[:_MAX_ABSENT])}"
        return text if text.endswith("?") else f"{text}."

    def absent_owner(self, name: str) -> str | None:
        """Find the server whose tools are unknown, and whose name that of a tool begins with, or
        None.
        """
        return next((server for server in self.absent() if _can_be_of(name, server)), None)

    def _suggestion(self, name: str) -> str:
        spellings: dict[str, str] = {}
        for tool in self._tools:
            spellings.update(dict.fromkeys((tool.wire_name, *tool.aliases), str(tool.tool_name)))
        nearest = dict.fromkeys(spellings[alias] for alias in closest(name, spellings, n=12))
        return did_you_mean(list(nearest)[:3], full_names(self._tools))


_MAX_ABSENT = 3


def _can_be_of(name: str, server: str) -> bool:
    """Check whether a name, in any form that `Catalog.resolve` accepts, begins with a server's."""
    return name.startswith((f"{server}:", f"{server}_", wire_name(ToolName(server, ""))))


def _with_wire_name(tool: ToolSpec, name: str) -> ToolSpec:
    return tool if tool.wire_name == name else replace(tool, wire_name=name)


Authority = Literal["policy", "person", "remembered", "nobody", "mock", "built-in", "direct"]
"""Who decided: the tool's `policy`, without asking; the `person`, or an approver that answers for
them; an answer `remembered` from this conversation; `nobody`, if no one could be asked or answered.

A `mock` ran nothing. A `built-in` tool such as `search_tools` reaches no server. A `direct` call
was made by the person.
"""


@dataclass(frozen=True)
class Permission:
    """Whether a call may run, and who decided it.

    The policy is empty if none applies, and so is the answer's scope (the `call`, the `tool`, or
    the `server`) if no one answered. The reason is in the words of whoever denied it. `definition`
    is a hash of the approved definition.
    """

    by: Authority
    allowed: bool = True
    policy: str = ""
    scope: str = ""
    reason: str = ""
    definition: str = ""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a tool's calls need approval, and are denied if nobody can be asked, with the option that
    allows them, if any.
    """

    tool: ToolName
    reason: str
    option: str
