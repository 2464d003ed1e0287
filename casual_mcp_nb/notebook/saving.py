"""Save a session's conversation while it runs, and export conversations to files."""

from __future__ import annotations

import html
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict
from urllib.parse import quote

from casual_mcp_nb.base.content import size_in_words
from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.errors import ConfigError, UsageError, did_you_mean, shown
from casual_mcp_nb.notebook.caller import shell

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from casual_mcp_nb.base.config import Config, Policies
    from casual_mcp_nb.base.tool import Catalog
    from casual_mcp_nb.conversation.conversation import (
        Conversation,
        ConversationHead,
        SavedSession,
    )
    from casual_mcp_nb.conversation.store import ConversationStore, SavedTurns
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.conversation.written_program import WrittenProgram
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.notebook.session_memory import SessionMemory


TITLE = "A conversation with casual_mcp_nb"
_FORMATS: Mapping[str, Any] = {
    ".html": "html",
    ".md": "markdown",
    ".json": None,
    ".ipynb": "notebook",
}
"""Document formats, or None for the conversation itself."""


def export(
    conversation: Conversation,
    path: Path,
    *,
    overwrite: bool = False,
    secrets: Iterable[str] = (),
    player: Callable[..., str] | None = None,
    programs: Iterable[WrittenProgram] = (),
    session: SavedSession | None = None,
    tools: Catalog | None = None,
) -> Path:
    """Write a conversation to a file, in the format of its extension.

    Secrets are masked even where a model repeats them.

    Args:
        conversation: The conversation.
        path: The file: `.html`, `.md`, `.json` or `.ipynb`.
        overwrite: Whether to replace an existing file.
        secrets: The texts to mask.
        player: Builds a page that steps through the conversation, in place of the page without
            scripts. Its arguments are the conversation, a title and the `programs`.
        programs: The programs that were written for cells meanwhile. All formats have them.
        session: What opens the conversation's session again, for a notebook.
        tools: The tools that are known, for a notebook.

    Returns:
        The file.

    Raises:
        UsageError: There is no such format, or the file exists, or it cannot be written.
    """
    suffix = path.suffix.casefold()
    if suffix not in _FORMATS:
        hint = did_you_mean([], _FORMATS)
        raise UsageError(
            f"A conversation cannot be saved as {shown(path.suffix or path.name)}.", hint=hint
        )
    if player and suffix != ".html":
        raise UsageError(
            f"A player is an .html file, not {shown(path.suffix)}.", hint="For example: lesson.html"
        )
    form, secrets = _FORMATS[suffix], tuple(secrets)
    programs = [_masked_program(program, secrets) for program in programs]
    if form is None:
        text = _masked_text(conversation.to_json(programs), secrets)
    elif form == "notebook":
        from casual_mcp_nb.base.tool import Catalog
        from casual_mcp_nb.notebook.as_notebook import notebook_of

        text = notebook_of(
            _masked(conversation, secrets), path.stem, session, tools or Catalog(()), programs
        )
    elif player:
        text = player(_masked(conversation, secrets), TITLE, programs=programs)
    else:
        text = display().document(_masked(conversation, secrets), form, TITLE, programs)
    path = ExportedFile(path.expanduser())
    write_text(
        path,
        text,
        overwrite=overwrite,
        hint="To replace it: overwrite=True, or %mcp export with --overwrite.",
    )
    return path


class ExportedFile(type(Path())):  # type: ignore[misc]
    """A file that was written. A cell shows it with a link and its size."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        size = ""
        with suppress(OSError):
            size = f", {size_in_words(self.stat().st_size)}"
        name = html.escape(str(self))
        link = name
        with suppress(ValueError):
            # A notebook's page opens files in its own folder and in those below.
            inside = self.absolute().relative_to(Path.cwd())
            link = f'<a href="{html.escape(quote(inside.as_posix()))}" target="_blank">{name}</a>'
        return {"text/plain": f"{self}{size}", "text/html": f"{link}{size}"}


def _masked(conversation: Conversation, secrets: Iterable[str]) -> Conversation:
    from casual_mcp_nb.conversation.conversation import Conversation

    text = conversation.to_json()
    masked = _masked_text(text, secrets)
    if masked is text:
        return conversation
    return Conversation.from_json(masked)


def _masked_text(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets in a conversation's JSON. If it has none, return the same object."""
    from casual_mcp_nb.cassettes.format import scrubbed

    document = json.loads(text)
    masked = scrubbed(document, secrets)
    if masked == document:
        return text
    return json.dumps(masked, ensure_ascii=False, indent=1)


def _masked_program(program: WrittenProgram, secrets: Iterable[str]) -> WrittenProgram:
    from casual_mcp_nb.cassettes.format import scrubbed

    texts = attributes(program, ("task", "code", "difference", "error"))
    return replace(program, **scrubbed(texts, secrets))


STORE_VARIABLE = "MCP_STORE"
"""The environment variable that names the file. With `off`, nothing is saved."""
DEFAULT = "default"
_OFF = ("off", "none", "no", "false", "0")

StoreLike: TypeAlias = "ConversationStore | str | Path | None"
"""Where conversations are saved: a store, its file's path, or None for nowhere.

`default` follows the environment, then the config. Otherwise, it is the user's data folder in
IPython, and nowhere in a script.
"""


class QuickOptions(TypedDict, total=False):
    """The `Session` options that `Session.quick` takes too, with the same defaults."""

    name: str | None
    system: str | None
    prices: str | Path | Mapping[str, Any] | None
    approval: Mapping[str, Policies] | None
    strict: bool
    quiet: bool
    store: StoreLike


class SessionOptions(QuickOptions, total=False):
    """Options for `Session`."""

    model: str | None
    in_process: Mapping[str, FastMCP[Any]] | None
    trust: bool


def store_of(store: StoreLike, config: Config) -> ConversationStore | None:
    """Open the store in which conversations are saved. None if they are not saved.

    Args:
        store: The caller's choice, see `StoreLike`.
        config: The session's config.

    Raises:
        ConfigError: The config names a file outside its folder.
    """
    from casual_mcp_nb.conversation.store import ConversationStore, store_path

    if store is None or isinstance(store, ConversationStore):
        return store
    if store != DEFAULT:
        return ConversationStore.at(store)
    variable = os.environ.get(STORE_VARIABLE, "").strip()
    if variable.lower() in _OFF:
        return None
    if variable:
        return ConversationStore.at(variable)
    if config.store:
        return ConversationStore.at(_file_of(config.store, config))
    if config.store is not None or shell() is None:
        # An empty `store` turns saving off, and a script saves nothing by itself.
        return None
    return ConversationStore.at(store_path())


def _file_of(store: str, config: Config) -> Path:
    file = (config.folder or Path()) / Path(store).expanduser()
    # A config from elsewhere must not choose who else can read the conversations.
    if config.folder is not None and not file.resolve().is_relative_to(config.folder.resolve()):
        raise ConfigError(
            f"{shown(file)} is outside the config's folder.",
            key="store",
            hint="Name it yourself: Session(…, store=…), or MCP_STORE in the environment.",
        )
    return file


class ConversationSaver:
    """Saves a session's conversation while it runs.

    Attributes:
        store: The store, or None if this session saves nothing.
        memory: What the session says about itself in its saved conversations.
        current: The current conversation in the store, or None if it is not saved.
    """

    def __init__(
        self, store: ConversationStore | None, chat: McpToolChat, memory: SessionMemory
    ) -> None:
        self.store = store
        self.memory = memory
        self._chat = chat
        self.current: SavedTurns | None = None
        self.begin()

    @property
    def head(self) -> ConversationHead:
        """The conversation's current set-up."""
        from casual_mcp_nb.conversation.conversation import ConversationHead

        return ConversationHead(
            self._chat.models.default,
            self._chat.system,
            self._chat.selection.model_dump(mode="json"),
            session=self.memory.saved(),
        )

    @property
    def id(self) -> str | None:
        """The current conversation's id, or None if it is not saved."""
        if self.current is None:
            return None
        return self.current.id

    @property
    def spends_as(self) -> str:
        """The key under which the conversation's requests to models are counted: its id, if it is
        saved.
        """
        if self.current is None:
            return self._unsaved
        return self.current.id or self.current.next_id

    def begin(self, *, private: bool = False) -> None:
        """Begin another conversation. A private one is not saved."""
        from casual_mcp_nb.conversation.store import SavedTurns

        self.current = None
        self._unsaved = uuid.uuid4().hex
        if self.store and not private:
            self.current = SavedTurns(self.store, lambda: self.head)

    def fork(self, turn: int, step: int | None = None) -> None:
        """Begin a fork of the current conversation. A private one's fork is private.

        Args:
            turn: The index of the last turn that both have.
            step: The index of the step in that turn before which they part, or None for the turn's
                end.
        """
        from casual_mcp_nb.conversation.conversation import ForkedFrom

        if self.store is None or self.current is None:
            self._unsaved = uuid.uuid4().hex
            return
        self.store.flush()
        id = self.current.id
        self.begin()
        if id is not None:
            self.current.forked_from = ForkedFrom(id, turn, step)

    def open(self, id: str) -> Conversation:
        """Open a saved conversation, and continue it."""
        from casual_mcp_nb.conversation.store import SavedTurns

        store = self.required
        saved = SavedTurns(store, lambda: self.head)
        conversation = store.open(id, saved)
        self.current = saved
        return conversation

    @property
    def required(self) -> ConversationStore:
        """The store. A UsageError if this session saves nothing."""
        if self.store is None:
            raise UsageError(
                "This session saves no conversations.",
                hint=(
                    "Open it with store='default' or the path of a file. In a notebook, check"
                    " MCP_STORE and the config."
                ),
            )
        return self.store

    def note(self, *, first: bool) -> str:
        """Say what the person should know about how the conversation is saved.

        Empty if there is nothing to say.

        Args:
            first: Whether it has no turns yet. Then its place is told.
        """
        if self.store is None:
            return ""
        if self.store.problem:
            return f"Conversations cannot be saved: {self.store.problem}"
        if self.current is None:
            return "This conversation is private: it is not saved."
        # Once for each kernel and file.
        if not first or _told_by.setdefault(self.store.path, id(self)) != id(self):
            return ""
        place = f"Conversations are saved in {_short(self.store.path)}."
        return f"{place} To save nothing, set MCP_STORE=off, or store=None in Session(…)."


_told_by: dict[Path, int] = {}
"""Which saver has told the person where conversations are saved, by file."""


def save(saved: SavedTurns | None, turns: Sequence[Turn]) -> None:
    """Save turns, if they are to be saved."""
    if saved is not None:
        saved.save(turns)


def _short(path: Path) -> str:
    home = Path.home()
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)
