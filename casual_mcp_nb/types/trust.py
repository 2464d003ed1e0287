"""The programs a config would start and the hosts its keys would go to, and whether the person has accepted them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from casual_mcp_nb.types.displayable import Displayable, DisplayableList

TrustState = Literal["harmless", "trusted", "new", "changed"]
"""`harmless` starts nothing of somebody else's and sends no key elsewhere; `trusted` is as it was accepted."""

_PLAIN = re.compile(r"[\w@%+=:,./*~<>()\[\]{} -]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TrustEntry(Displayable):
    """A server or a client of a config, or the config's own settings.

    Args:
        kind: Which of them.
        name: Its name in the config; for the config itself, that of its file.
        facts: What it would start, or where it would send what, as labels with texts: complete, with secrets masked.
        state: Whether it was accepted.
        changed: The labels of what has changed since it was accepted.
    """

    kind: Literal["config", "server", "client"]
    name: str
    facts: tuple[tuple[str, str], ...]
    state: TrustState
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trust(DisplayableList[TrustEntry]):
    """The programs that a config would start and the hosts its keys would go to.

    Args:
        source: The config's file; empty for a config made in Python.
        entries: The servers and clients, after the settings of the config itself.
        required: Whether the person must accept it before anything starts.
        why: Why they need not; empty if they must.
        on_accept: Remembers that they have.
    """

    source: str
    entries: tuple[TrustEntry, ...] = field(default=(), repr=False)
    required: bool = False
    why: str = ""
    on_accept: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def _items(self) -> tuple[TrustEntry, ...]:
        return self.entries

    @property
    def text(self) -> str:
        """Everything, in lines, with nothing cut."""
        return "\n".join(f"{title_of(entry)}\n{lines_of(entry)}" for entry in self.entries)

    def accept(self) -> None:
        """Accept it as it is now. That is remembered for this file, on this computer, until something of it changes.

        Raises:
            UsageError: It cannot be remembered, because the user's config folder cannot be written.
        """
        self.on_accept()


def title_of(entry: TrustEntry) -> str:
    """Describe an entry: its kind, and whether it was accepted."""
    state = f"changed: {', '.join(entry.changed)}" if entry.changed else entry.state
    return f"{entry.kind} {exact(entry.name)} ({state})"


def lines_of(entry: TrustEntry) -> str:
    """Format the facts of an entry, one per line; changes are marked with `*`."""
    return "\n".join(f"{'*' if label in entry.changed else ' '} {label:12} {text}" for label, text in entry.facts)


def exact(text: str) -> str:
    """Format a text so that it cannot be mistaken for another one: as it is if it is plain ASCII on one line, else as JSON."""
    return text if _PLAIN.fullmatch(text) and text == text.strip() else json.dumps(text)


def exact_word(text: str) -> str:
    """Format a word of a command so that it is clear where it ends, see `exact`."""
    return text if " " not in text and exact(text) == text else json.dumps(text)
