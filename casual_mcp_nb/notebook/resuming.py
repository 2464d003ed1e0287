"""Open the session of a saved conversation again, with its config, its servers and its widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.config.loader import load_accepted
from casual_mcp_nb.config.quick import with_model
from casual_mcp_nb.conversation.conversation import (
    Conversation,
    StoredConversation,
    StoredConversations,
)
from casual_mcp_nb.errors import CasualMcpError, ConfigError, UsageError, shown
from casual_mcp_nb.notebook.caller import notebook_shell, shell
from casual_mcp_nb.notebook.consent import accept_first
from casual_mcp_nb.notebook.payloads import place_gone_values
from casual_mcp_nb.notebook.saving import DEFAULT, STORE_VARIABLE, StoreLike, store_of
from casual_mcp_nb.notebook.session_memory import notebook_place

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.store import ConversationStore
    from casual_mcp_nb.notebook.turn_service import TurnService

S = TypeVar("S", bound=Any)


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
        """Sentences that say what was opened, and what could not be brought back."""
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
    """Find saved conversations without a session.

    Args:
        words: A text in their title or messages, or empty for all.

    Raises:
        UsageError: No conversations are saved.
    """
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
    """Open the session of a saved conversation, see `Session.resume`.

    Args:
        open_session: Opens a session from a config and options.
        id: The conversation's id, or None for this notebook's last one.
        store: Where it is saved.
    """
    where = store_of(store, Config())
    stored = conversation_to_resume(where, id)
    config, options = reopened(stored)
    session = open_session(config, store=where, **options)
    _, problems = session.parts.turn_service.resume(stored.id, reopened=True)
    if stored.head.session is not None:
        # Servers with a mode in the selection are among the problems already.
        named = stored.head.selection.get("servers", {})
        for name, reason in stored.head.session.lost.items():
            if name not in named:
                problems.append(f"{shown(name)} is not back. {reason}")
    place_variables_of(stored)
    return Resumed(session, stored, tuple(problems))


def resume_here(turns: TurnService, id: str | None) -> tuple[Conversation, list[str]]:
    """Continue a saved conversation in a session that is open, see `SessionConversations.resume`.

    Args:
        turns: The session's turns.
        id: The conversation's id, or None for this notebook's last one.

    Returns:
        The conversation, and what could not be brought back, a sentence for each.
    """
    saver = turns.runner.saver
    stored = conversation_to_resume(saver.required, id)
    if id is None and stored.id == saver.id:
        raise UsageError(
            "This notebook's last conversation is the one that is open.",
            hint="%mcp conversations lists the others, and %mcp resume ID continues one.",
        )
    continued = turns.resume(stored.id)
    place_variables_of(stored)
    return continued


def place_variables_of(stored: StoredConversation) -> None:
    """Set the notebook's variables whose values are gone to values that say so."""
    running, saved = shell(), stored.head.session
    if running is not None and saved is not None:
        place_gone_values(running.user_ns, saved.variables)


def reopened(stored: StoredConversation) -> tuple[Config, dict[str, Any]]:
    """Build what a conversation's session is opened with again.

    Nothing counts as accepted because it is saved: the person is asked as about a file, except about
    what they typed in this notebook.

    Returns:
        The config, and other options for `Session`.

    Raises:
        UsageError: It was saved without a config, or the file is gone.
        ConfigError: The config is not valid any more.
    """
    saved = stored.head.session
    again = f"Open another with %mcp connect FILE-or-COMMAND, then %mcp resume {stored.id}."
    why = ""
    if saved is None:
        why = "It was saved without the config of its session."
    elif "config" in saved.lost:
        why = saved.lost["config"]
    if saved is None or why:
        raise UsageError(
            f"The session of {shown(stored.title)} cannot be opened. {why}", hint=again
        )
    if saved.config is not None:
        if not Path(saved.config).exists():
            raise UsageError(
                f"The config of {shown(stored.title)} is gone: {shown(Path(saved.config))}.",
                hint=f"Put it back, and try again. {again}",
            )
        config = _read(saved.config, again, _as_it_is, saved.strict)
    else:
        recalled = partial(Config.recalled_from, session=f"the session of {saved.notebook}")
        config = _read(saved.content, again, recalled, saved.strict)
    if saved.added:
        joined = partial(config.with_servers, found=saved.found)
        config = _read({"servers": dict(saved.added)}, again, joined, saved.strict)
    config = _with_its_model(config, stored.head.model)
    approval: dict[str, Any] = {}
    for name, policy in saved.approval.items():
        if name in config.servers or name in config.unusable:
            approval[name] = policy
    return config, {"name": saved.name, "strict": saved.strict, "approval": approval or None}


def _with_its_model(config: Config, model: str | None) -> Config:
    """Add the model of a conversation that its config file does not have. If it cannot be used now,
    that is said when the session is set up.
    """
    if model is None or model in config.models or ":" not in model:
        return config
    with suppress(CasualMcpError):
        return with_model(config, model)
    return config


def _as_it_is(config: Config) -> Config:
    return config


def _read(
    source: str | Mapping[str, Any],
    again: str,
    made_of: Callable[[Config], Config],
    strict: bool,
) -> Config:
    """Read a config, or a part of one, and return the session's config with it.

    The person accepts that one before they type values into it.
    """
    if isinstance(source, Mapping):
        source = dict(source)

    def accept(config: Config) -> None:
        accept_first(made_of(config), strict=strict)

    try:
        return made_of(load_accepted(source, accept))
    except ConfigError as error:
        raise ConfigError(str(error), hint=again) from None
