"""What a session says about itself in its saved conversations, so that it can be opened again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import Config, ServerConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.conversation.conversation import SavedSession
from casual_mcp_nb.errors import ConfigError, UsageError
from casual_mcp_nb.notebook.caller import shell
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

if TYPE_CHECKING:
    from casual_mcp_nb.engine.chat import McpToolChat

MAX_CHARACTERS = 100_000
"""How long the config of a session may be as text that is saved with each of its conversations."""

_IN_KERNEL = "It was an object in the kernel. Run the cell that makes it, and add it again."
_HOLDS_SECRET = "Its entry has values that may be secret, which are not saved. Add it again."
_TOO_LONG = "The config is too long to be saved with a conversation."
_FUNCTIONS = "They were in the kernel. Run the cells that define them again."


def notebook_place() -> str:
    """Find out which notebook this is.

    That is its file, if the front end tells it, otherwise the working folder. Empty outside of
    IPython.
    """
    running = shell()
    if running is None:
        return ""
    named = os.environ.get("JPY_SESSION_NAME") or running.user_ns.get("__vsc_ipynb_file__")
    if isinstance(named, str) and os.path.isabs(named):
        return named
    return os.getcwd()


def typing_place() -> str:
    """Identify the notebook with its working folder, which a command's meaning depends on.

    Empty outside of IPython, and in a folder that is gone.
    """
    try:
        notebook, folder = notebook_place(), os.getcwd()
    except OSError:
        return ""
    if not notebook:
        return ""
    return f"{notebook}, folder {folder}"


@dataclass(eq=False)
class SessionMemory:
    """Describes a session for its saved conversations, see `SavedSession`.

    Args:
        chat: The session's chat.
        config: Its config.
        name: Its name, if it has one.
        strict: Whether the session was opened as a strict one.

    Attributes:
        widgets: The widgets that were shown.
        variables: The notebook's variables, see `SavedSession`.
    """

    chat: McpToolChat
    config: Config
    name: str | None = None
    strict: bool = False
    widgets: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    _notebook: str = field(default_factory=notebook_place)
    _basis: SavedSession | None = None
    _returned: SavedSession | None = None
    _servers: Mapping[str, ServerConfig | None] = field(default_factory=dict)

    def saved(self) -> SavedSession | None:
        """Describe the session as it is now. None for one that plays a cassette."""
        if self.chat.tape.replays:
            return None
        manager = self.chat.server_manager
        servers = {name: manager.config_of(name) for name in manager.names}
        if self._basis is None or servers != self._servers:
            self._basis = self._described(servers)
            self._servers = servers
        return replace(
            self._basis,
            approval=self.chat.consent.policies,
            widgets=self.widgets,
            variables=self.variables,
        )

    def typed(self) -> Config | None:
        """Build what the person typed, as it is read again when the session is resumed.

        What a config file, an earlier session, a catalog or a registry said is not theirs.

        Returns:
            The config, or None if there is nothing new since the last call.
        """
        saved = self.saved()
        if saved is None or self._basis is self._returned:
            return None
        self._returned = self._basis
        content, elsewhere = saved.content, {*saved.found}
        if self.config.path is not None or self.config.recalled:
            content = {}
            elsewhere |= set(self.config.servers)
        servers: dict[str, Any] = {}
        for name, server in saved.added.items():
            if name not in elsewhere:
                servers[name] = server
        if not content and not servers:
            return None
        try:
            return load_config({**content, "servers": servers})
        except ConfigError:
            return None

    def take_over(self, saved: SavedSession) -> None:
        """Add the widgets and variables of a conversation that is continued."""
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
            # Servers are described one by one, so that one with a secret costs the others nothing.
            others = self.config.model_copy(update={"servers": {}})
            try:
                content = others.model_dump(mode="json", exclude_defaults=True)
            except UsageError:
                lost["models"] = _HOLDS_SECRET
        if len(str(content)) + len(str(added)) > MAX_CHARACTERS:
            content, added, lost = {}, {}, {"config": _TOO_LONG}
        path = None
        if self.config.path:
            path = str(self.config.path)
        return SavedSession(
            notebook=self._notebook,
            config=path,
            content=content,
            added=added,
            found=tuple(found),
            lost=lost,
            name=self.name,
            strict=self.strict,
        )
