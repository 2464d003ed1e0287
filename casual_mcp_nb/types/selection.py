"""What the person chose: one small model that widgets and magics edit and the engine reads at each turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSet
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PrivateAttr

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.rich import Rich

Mode = Literal["loaded", "deferred", "off"]
"""Whether the model sees a server's tools at once, finds them by search, or never sees them."""

Strategy = Literal["search", "browse"]
"""How the model finds deferred tools: by words, or by looking through categories."""

Listener = Callable[[], None]


class ServerModes(MutableMapping[str, Mode]):
    """The mode of each server; refuses a word that is no mode and tells its owner of each change."""

    def __init__(self, modes: Mapping[str, Mode] | None = None) -> None:
        self.changed: Listener = _nothing
        self._modes: dict[str, Mode] = {}
        for name, mode in (modes or {}).items():
            self._modes[name] = _mode(mode)

    def __getitem__(self, name: str) -> Mode:
        return self._modes[name]

    def __setitem__(self, name: str, mode: Mode) -> None:
        self._modes[name] = _mode(mode)
        self.changed()

    def __delitem__(self, name: str) -> None:
        del self._modes[name]
        self.changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._modes.copy())

    def __len__(self) -> int:
        return len(self._modes)

    def __repr__(self) -> str:
        return repr(self._modes)


class ToolsOff(MutableSet[str]):
    """The tools that are taken out one by one, by any name that the catalog resolves; tells its owner of each change."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.changed: Listener = _nothing
        self._names: set[str] = set(names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def add(self, value: str) -> None:
        self._names.add(value)
        self.changed()

    def discard(self, value: str) -> None:
        self._names.discard(value)
        self.changed()

    def __repr__(self) -> str:
        return repr(set(self))


class Selection(Rich, BaseModel):
    """What the model is shown. Assign to a field, or to an entry of `servers`; it holds from the next turn on.

    Args:
        tool_set: Name of a toolset of the config, a toolset of its own, or None for all tools.
        servers: `loaded`, `deferred` or `off` for each server; one that is not named has the mode of its config.
        tools_off: Single tools that are left out.
        discovery: Whether deferred tools are hidden behind the search tool. When False nothing is deferred.
        defer_all: Treat every loaded server as deferred.
        max_search_results: How many tools one search finds at most; 1 or more.
        strategy: How deferred tools are found: `search` or `browse`.
        manifest_max_tokens: What the manifest may cost at most, in estimated tokens.
        max_active_tools: How many tools may be loaded at a time by browsing; 1 or more.
    """

    model_config = ConfigDict(validate_assignment=True, extra="forbid", arbitrary_types_allowed=True)

    tool_set: str | ToolSetConfig | None = None
    servers: Annotated[
        ServerModes,
        BeforeValidator(lambda value: value if isinstance(value, ServerModes) else ServerModes(value)),
        PlainSerializer(dict),
    ] = Field(default_factory=ServerModes)
    tools_off: Annotated[
        ToolsOff,
        BeforeValidator(lambda value: value if isinstance(value, ToolsOff) else ToolsOff(value)),
        PlainSerializer(list),
    ] = Field(default_factory=ToolsOff)
    discovery: bool = False
    defer_all: bool = False
    max_search_results: int = Field(default=5, ge=1)
    strategy: Strategy = "search"
    manifest_max_tokens: int = Field(default=2_000, ge=1)
    max_active_tools: int = Field(default=20, ge=1)

    _listeners: list[Listener] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        """Listen to the two fields that are edited in place."""
        self.servers.changed = self.tools_off.changed = self._tell

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in type(self).model_fields:
            self.servers.changed = self.tools_off.changed = self._tell
            self._tell()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.key() == other.key()

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called after each change, on the thread that made it.

        Returns:
            A function that ends it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def assign(self, other: Selection) -> None:
        """Take over all of another selection; whoever holds or watches this one sees it."""
        for name in type(self).model_fields:
            setattr(self, name, getattr(other.snapshot(), name))

    def snapshot(self) -> Selection:
        """A copy that later changes do not touch."""
        return Selection.model_validate(self.model_dump())

    def key(self) -> str:
        """A text that is the same for equal selections: what a compiled view is cached by."""
        return self.model_dump_json()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _mode(mode: object) -> Mode:
    if mode not in get_args(Mode):
        raise UnknownNameError("server mode", str(mode), get_args(Mode))
    return cast(Mode, mode)


def _nothing() -> None:
    return None
