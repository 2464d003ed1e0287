"""The selection, which widgets and magics edit and the engine reads at each turn, and its
listeners.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSet
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    cast,
    get_args,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
)

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Discovery, DiscoveryOptions, Strategy, ToolSetConfig
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.model_options import DELIVERY_SETTINGS
from casual_mcp_nb.errors import (
    MissingDependencyError,
    UnknownNameError,
    UsageError,
    brief,
    install,
)

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class Listeners(Generic[P]):
    """Functions that are called on a notification, in the order in which they were added."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def __len__(self) -> int:
        return len(self._functions)

    def add(self, listener: Callable[P, object]) -> Callable[[], None]:
        """Add a listener, called on the notifying thread, and return a function that removes it,
        even if called twice.
        """
        self._functions.append(listener)

        def remove() -> None:
            if listener in self._functions:
                self._functions.remove(listener)

        return remove

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every listener with these arguments."""
        for listener in tuple(self._functions):
            try:
                listener(*args, **kwargs)
            except Exception:
                _log.exception("A listener failed.")

    def clear(self) -> None:
        """Remove all listeners without calling them."""
        self._functions.clear()


Mode = Literal["loaded", "deferred", "off"]
"""Whether a server's tools are sent with every request, found by search, or never offered."""


class SelectionNames(Protocol):
    """Checks the names in a selection.

    The engine has the only one, which this room may not import. Each method raises a `UsageError`
    for a name that does not exist.
    """

    def check_tool_set(self, tool_set: str | ToolSetConfig) -> None:
        """Check a toolset's name, or the servers and tools that a toolset names."""

    def check_server(self, name: str) -> None:
        """Check a server's name."""

    def check_tool(self, name: str) -> None:
        """Check a tool's name."""


class ServerModes(MutableMapping[str, Mode]):
    """Each server's mode. Refuses unknown names and modes, and notifies its owner of changes."""

    def __init__(self, modes: Mapping[str, Mode] | None = None) -> None:
        self.changed: Callable[[], object] = ignore
        self.check: Callable[[str], None] = ignore
        self._modes: dict[str, Mode] = {}
        for name, mode in (modes or {}).items():
            self._modes[name] = _mode(mode)

    def __getitem__(self, name: str) -> Mode:
        return self._modes[name]

    def __setitem__(self, name: str, mode: Mode) -> None:
        self.check(name)
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
    """The individually excluded tools, by any name that the catalog resolves.

    It refuses unknown names, and notifies its owner of changes.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.changed: Callable[[], object] = ignore
        self.check: Callable[[str], None] = ignore
        self._names: set[str] = set(names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def add(self, value: str) -> None:
        """Exclude a tool."""
        self.check(value)
        self._names.add(value)
        self.changed()

    def discard(self, value: str) -> None:
        """Stop excluding a tool."""
        self._names.discard(value)
        self.changed()

    def __repr__(self) -> str:
        return repr(set(self))


def _server_modes(value: object) -> ServerModes:
    if not isinstance(value, Mapping):
        raise ValueError("use a mapping from server names to modes")
    return ServerModes(value)


def _tools_off(value: object) -> ToolsOff:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError("use a set of tool names")
    names = list(value)
    if not all_are(names, str):
        raise ValueError("use a set of tool names, as strings")
    return ToolsOff(names)


class Selection(Displayable, DiscoveryOptions):
    """The tools that the model sees. Assign to a field, or to an entry of `servers`.

    Changes apply from the next turn.

    Assigning an unknown name or a value out of range raises a `UsageError`. Tool names are checked
    once their server has listed them. A selection also has the fields in `DiscoveryOptions`.

    Args:
        tool_set: A toolset name from the config, a custom toolset, or None for all tools.
        servers: `loaded`, `deferred` or `off` for each server. The default is the mode in its
            config.
        tools_off: Individually excluded tools.
        discovery: Whether deferred tools are hidden behind the search tool. If False, nothing is
            deferred. `auto` means True if all definitions together take more than `auto_threshold`
            percent of the model's context window.
        always_loaded: Servers that `defer_all` leaves loaded, and tools (`server:tool`) that are
            loaded even if their server is deferred.
        instructions: Whether servers' instructions go into the system prompt.
    """

    model_config = ConfigDict(
        validate_assignment=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True
    )

    tool_set: str | ToolSetConfig | None = None
    servers: Annotated[
        ServerModes,
        BeforeValidator(_server_modes),
        PlainSerializer(dict),
    ] = Field(default_factory=ServerModes)
    tools_off: Annotated[
        ToolsOff,
        BeforeValidator(_tools_off),
        PlainSerializer(list),
    ] = Field(default_factory=ToolsOff)
    discovery: Discovery = False
    always_loaded: tuple[str, ...] = ()
    instructions: bool = True

    _listeners: Listeners[[]] = PrivateAttr(default_factory=lambda: Listeners[[]]())
    _names: SelectionNames | None = PrivateAttr(default=None)
    _changes: int = PrivateAttr(default=0)
    _keyed: tuple[int, str] = PrivateAttr(default=(-1, ""))

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            for name in values:
                self._check_field(name)
            check_code(values.get("delivery"))
            try:
                super().__init__(**values)
            except ValidationError as error:
                problem = error.errors(
                    include_url=False, include_context=False, include_input=False
                )[0]
            else:
                return
            # Raised outside the handler, so that pydantic's error is not shown as its context.
            raise _refusal(str(problem["loc"][0]), values, problem["msg"])

    def model_post_init(self, context: Any, /) -> None:
        """Watch the two fields that are edited in place."""
        self._listen()

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        self._check_field(name)
        checked = getattr(Selection(**{name: value}), name)
        self._check_names(name, checked)
        super().__setattr__(name, checked)
        self._listen()
        self._changed()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.key() == other.key()

    def __reduce__(self) -> tuple[Callable[[Any], Selection], tuple[dict[str, Any]]]:
        # Without the listeners, which belong to this process.
        return Selection.model_validate, (self.model_dump(),)

    def __copy__(self) -> Selection:
        return self.snapshot()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Selection:
        return self.snapshot()

    def bind(self, names: SelectionNames) -> None:
        """Check names now and on every change.

        Raises:
            UsageError: A name does not exist.
        """
        self._names = names
        for field in type(self).model_fields:
            self._check_names(field, getattr(self, field), before=False)
        self._listen()

    def set_option(self, name: str, value: object) -> None:
        """Set one of the `DiscoveryOptions` by name.

        Args:
            name: The option.
            value: Its value. A number can be given as a string.

        Raises:
            UnknownNameError: There is no such option.
            UsageError: The value is not valid.
        """
        if name not in DiscoveryOptions.model_fields:
            raise UnknownNameError("option", name, DiscoveryOptions.model_fields)
        setattr(self, name, value)

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` after each change, on the thread that made it.

        Returns:
            A function that removes the listener.
        """
        return self._listeners.add(listener)

    def assign(self, other: Selection) -> None:
        """Copy all fields from another selection, or none on error. Listeners are notified.

        Raises:
            UsageError: It names something that does not exist here.
        """
        if not isinstance(other, Selection):
            raise UsageError(
                f"A {type(other).__name__} is not a selection.",
                hint="Assign a Selection(…), or one of its fields.",
            )
        new = other.snapshot()
        for name in type(self).model_fields:
            self._check_names(name, getattr(new, name))
        for name in type(self).model_fields:
            if getattr(self, name) != getattr(new, name):
                setattr(self, name, getattr(new, name))

    def snapshot(self) -> Selection:
        """Create an independent copy."""
        # Without checking values again: a service makes a copy for each request.
        copied = super().__copy__()
        copied.__dict__.update(
            servers=ServerModes(self.servers), tools_off=ToolsOff(self.tools_off)
        )
        if isinstance(self.tool_set, ToolSetConfig):
            copied.__dict__["tool_set"] = self.tool_set.model_copy(deep=True)
        copied._listeners, copied._names, copied._keyed = Listeners(), None, (-1, "")
        copied._listen()
        return copied

    def key(self) -> str:
        """Compute a string that is the same for equal selections: the cache key for compiled
        views.
        """
        # Each turn calls this, and pydantic looks for a private attribute everywhere else first.
        private = self.__pydantic_private__ or {}
        changes, key = private["_keyed"]
        if changes != private["_changes"]:
            # Counted before: an edit on another thread meanwhile makes the next call dump it again.
            changes = private["_changes"]
            key = self.model_dump_json()
            private["_keyed"] = changes, key
        return str(key)

    def _check_field(self, name: str) -> None:
        if name not in type(self).model_fields:
            raise UnknownNameError("field of the selection", name, type(self).model_fields)

    def _check_names(self, field: str, value: Any, before: bool = True) -> None:
        """Check the names in a field's value, except those already in it, which may have become
        stale.
        """
        if self._names is None:
            return
        old = getattr(self, field) if before else None
        match field:
            case "tool_set" if value is not None and value != old:
                self._names.check_tool_set(value)
            case "servers":
                for name in value.keys() - (old or {}).keys():
                    self._names.check_server(name)
            case "tools_off":
                for name in set(value) - set(old or ()):
                    self._names.check_tool(name)

    def _changed(self) -> None:
        self._changes += 1
        self._listeners.notify()

    def _listen(self) -> None:
        self.servers.changed = self.tools_off.changed = self._changed
        self.servers.check = self._names.check_server if self._names else ignore
        self.tools_off.check = self._names.check_tool if self._names else ignore


def _mode(mode: object) -> Mode:
    if mode not in get_args(Mode):
        raise UnknownNameError("server mode", str(mode), get_args(Mode))
    return cast(Mode, mode)


def check_code(delivery: object) -> None:
    """Raise a MissingDependencyError if `delivery` is `code`, and programs cannot run here."""
    if delivery == "code":
        try:
            missing = importlib.util.find_spec("pydantic_monty") is None
        except ImportError:
            missing = True
        if missing:
            raise MissingDependencyError(
                "The delivery 'code' needs the package pydantic-monty.", hint=install("code")
            )


def _refusal(field: str, values: Mapping[str, Any], message: str) -> UsageError:
    value = values.get(field)
    if field == "strategy":
        return UnknownNameError("strategy", str(value), get_args(Strategy))
    if field == "delivery":
        return UnknownNameError("delivery", str(value), DELIVERY_SETTINGS)
    if field == "tool_set":
        message = "use the name of a toolset, a ToolSetConfig, or None"
    reason = message.removeprefix("Value error, ").replace("Input should", "it must")
    return UsageError(f"{field} of the selection cannot be {brief(value)}: {reason}.")
