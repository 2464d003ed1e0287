"""What a saved conversation needs to open its session again: its config, the servers that were added
to it, its widgets, and the variables whose values no file has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from casual_mcp_nb.base.config import Config, ServerConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.conversation.conversation import (
    SavedSession,
    StoredConversation,
    StoredConversations,
)
from casual_mcp_nb.errors import ConfigError, UsageError, shown
from casual_mcp_nb.notebook.caller import notebook_shell, shell
from casual_mcp_nb.notebook.payloads import place_gone_values
from casual_mcp_nb.notebook.saving import DEFAULT, STORE_VARIABLE, StoreLike, store_of
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.store import ConversationStore
    from casual_mcp_nb.engine.chat import McpToolChat

S = TypeVar("S", bound=Any)

MAX_CHARACTERS = 100_000
"""How long the config of a session may be as text that is saved with each of its conversations."""

_IN_KERNEL = "It was an object in the kernel. Run the cell that makes it, and add it again."
_HOLDS_SECRET = "Its entry has values that may be secret, which are not saved. Add it again."
_TOO_LONG = "The config is too long to be saved with a conversation."
_FUNCTIONS = "They were in the kernel. Run the cells that define them again."


def notebook_place() -> str:
    """Find out which notebook this is: its file, as far as the front end tells, or else the working
    folder. Empty outside of IPython.
    """
    running = shell()
    if running is None:
        return ""
    named = os.environ.get("JPY_SESSION_NAME") or running.user_ns.get("__vsc_ipynb_file__")
    if isinstance(named, str) and os.path.isabs(named):
        return named
    return os.getcwd()


@dataclass(eq=False)
class SessionMemory:
    """Describes a session for its saved conversations, see `SavedSession`.

    Args:
        strict: Whether the session was opened as a strict one.
        approval: The policies that the session was given.

    Attributes:
        widgets: The widgets that were shown.
        variables: The notebook's variables, see `SavedSession`.
    """

    chat: McpToolChat
    config: Config
    name: str | None = None
    strict: bool = False
    approval: Mapping[str, Any] = field(default_factory=dict)
    widgets: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    _notebook: str = field(default_factory=notebook_place)
    _basis: SavedSession | None = None
    _servers: Mapping[str, ServerConfig | None] = field(default_factory=dict)

    def saved(self) -> SavedSession | None:
        """Describe the session as it is now. None for one that plays a cassette."""
        if self.chat.tape.replays:
            return None
        manager = self.chat.server_manager
        servers = {name: manager.config_of(name) for name in manager.names}
        if self._basis is None or servers != self._servers:
            self._servers = servers
            self._basis = self._described(servers)
        return replace(self._basis, widgets=self.widgets, variables=self.variables)

    def take_over(self, saved: SavedSession) -> None:
        """Keep what a conversation that is continued says about the notebook."""
        self.widgets = tuple(dict.fromkeys((*saved.widgets, *self.widgets)))
        self.variables = {**saved.variables, **self.variables}

    def _described(self, servers: Mapping[str, ServerConfig | None]) -> SavedSession:
        added: dict[str, Any] = {}
        found: list[str] = []
        lost: dict[str, str] = {}
        for name, server in servers.items():
            if name == NOTEBOOK:
                lost[name] = _FUNCTIONS
            elif server is None:
                if name not in self.config.unusable:
                    lost[name] = _IN_KERNEL
            elif server.file is None:
                try:
                    added[name] = server.model_dump(mode="json", exclude_defaults=True)
                except UsageError:
                    lost[name] = _HOLDS_SECRET
                    continue
                if server.is_found:
                    found.append(name)
        content: Mapping[str, Any] = {}
        if self.config.path is None:
            # Its servers are described one by one: one with a secret costs the others nothing.
            others = self.config.model_copy(update={"servers": {}})
            try:
                content = others.model_dump(mode="json", exclude_defaults=True)
            except UsageError:
                lost["models"] = _HOLDS_SECRET
        if len(str(content)) + len(str(added)) > MAX_CHARACTERS:
            content, added, lost = {}, {}, {"config": _TOO_LONG}
        return SavedSession(
            notebook=self._notebook,
            config=str(self.config.path) if self.config.path else None,
            content=content,
            added=added,
            found=tuple(found),
            lost=lost,
            name=self.name,
            strict=self.strict,
            approval=dict(self.approval),
        )


def conversation_to_resume(
    store: ConversationStore | None, id: str | None = None
) -> StoredConversation:
    """Find a saved conversation by its id, or else the last one of this notebook.

    Raises:
        UsageError: There is none. The hint says what to do next.
        UnknownNameError: There is none with that id.
    """
    if store is None:
        raise _nothing_is_saved()
    if id is not None:
        return store.get(id)
    notebook = notebook_place()
    if not notebook:
        raise UsageError(
            "Outside of IPython there is no last conversation.", hint="Give the id of one."
        )
    last = store.last_of(notebook)
    if last is not None:
        return last
    hint = "Start with %mcp demo or %mcp connect FILE-or-COMMAND."
    if store.find(limit=1):
        hint += " %mcp conversations lists those of other notebooks; %mcp resume ID continues one."
    raise UsageError("No conversation of this notebook is saved.", hint=hint)


@dataclass(frozen=True)
class Resumed(Generic[S]):
    """A session that was opened again.

    Args:
        session: The session.
        stored: The conversation as it was saved.
        problems: What could not be brought back, a sentence for each.
    """

    session: S
    stored: StoredConversation
    problems: tuple[str, ...]

    @property
    def note(self) -> str:
        """What was opened, and what could not be brought back."""
        stored = self.stored
        when = f"{stored.changed:%Y-%m-%d %H:%M}"
        continued = f"Continues {shown(stored.title)} of {when}. %mcp history shows it."
        return " ".join((continued, *self.problems))

    def show_widgets(self) -> None:
        """Show the widgets that were open, in a notebook."""
        if notebook_shell() is None or self.stored.head.session is None:
            return
        from IPython.display import display

        makers = {"explorer": self.session.explore, "panel": self.session.panel}
        for widget in self.stored.head.session.widgets:
            if widget in makers:
                display(makers[widget]())  # type: ignore[no-untyped-call]


def saved_conversations(words: str = "") -> StoredConversations:
    """Find saved conversations without a session."""
    store = store_of(DEFAULT, Config())
    if store is None:
        raise _nothing_is_saved()
    return store.find(words)


def _nothing_is_saved() -> UsageError:
    return UsageError(
        f"{STORE_VARIABLE} says that no conversations are saved.",
        hint="Start with %mcp demo or %mcp connect FILE-or-COMMAND.",
    )


def resume_session(open_session: Callable[..., S], id: str | None, store: StoreLike) -> Resumed[S]:
    """Open the session of a saved conversation, see `Session.resume`."""
    where = store_of(store, Config())
    stored = conversation_to_resume(where, id)
    config, options = reopened(stored)
    session = open_session(config, store=where, **options)
    _, problems = session.parts.turn_service.resume(stored.id)
    if stored.head.session is not None:
        # Those that have a mode are among the problems already.
        named = stored.head.selection.get("servers", {})
        for name, reason in stored.head.session.lost.items():
            if name not in named:
                problems.append(f"{shown(name)} is not back. {reason}")
    place_variables_of(stored)
    return Resumed(session, stored, tuple(problems))


def place_variables_of(stored: StoredConversation) -> None:
    """Have the notebook's variables that are gone say so."""
    running, saved = shell(), stored.head.session
    if running is not None and saved is not None:
        place_gone_values(running.user_ns, saved.variables)


def reopened(stored: StoredConversation) -> tuple[Config, dict[str, Any]]:
    """Build the config with which a conversation's session is opened again, and the session's other
    options.

    Nothing in it counts as accepted because it is saved: the person is asked as about a file.

    Raises:
        UsageError: It was saved without a config, or the file is gone.
        ConfigError: The config is not valid any more.
    """
    saved = stored.head.session
    again = f"Open another with %mcp connect FILE-or-COMMAND, then %mcp resume {stored.id}."
    if saved is None or "config" in saved.lost:
        why = saved.lost["config"] if saved else "It was saved without the config of its session."
        raise UsageError(
            f"The session of {shown(stored.title)} cannot be opened. {why}", hint=again
        )
    if saved.config is not None:
        if not Path(saved.config).exists():
            raise UsageError(
                f"The config of {shown(stored.title)} is gone: {shown(Path(saved.config))}.",
                hint=f"Put it back, and try again. {again}",
            )
        config = _read(saved.config, again)
    else:
        config = _read(saved.content, again).recalled_from(f"the session of {saved.notebook}")
    if saved.added:
        added = _read({"servers": dict(saved.added)}, again)
        config = config.with_servers(added, found=saved.found)
    names = {*config.servers, *config.unusable}
    approval = {name: value for name, value in saved.approval.items() if name in names}
    return config, {"name": saved.name, "strict": saved.strict, "approval": approval or None}


def _read(source: str | Mapping[str, Any], again: str) -> Config:
    try:
        return load_config(dict(source) if isinstance(source, Mapping) else source)
    except ConfigError as error:
        raise ConfigError(str(error), hint=again) from None
