"""Values that the person is prompted for when a config is read: `${input:ID}`, as in VS Code.

Form: https://code.visualstudio.com/docs/copilot/reference/mcp-configuration (`promptString`,
`pickString`, `command`).
"""

from __future__ import annotations

import builtins
import getpass
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from casual_mcp_nb.base.iterables import by_id
from casual_mcp_nb.errors import shown

_WORD = re.compile(r"[\w%+,./:=@~-]+", re.ASCII)
_ADDRESS = "https://stand-in.invalid"
_MAX_QUESTION = 300


@dataclass(frozen=True)
class Input:
    """One value to prompt for; `secret` if the answer is hidden while typing.

    An empty answer has the default as its value. Without options any answer is valid. If it `runs`,
    only the host can run the command that returns its value.
    """

    id: str
    description: str = ""
    secret: bool = True
    default: str | None = field(default=None, repr=False)
    options: tuple[str, ...] = field(default=(), repr=False)
    runs: bool = False

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Input:
        """Parse an entry in `inputs`, ignoring malformed parts."""
        options = entry.get("options")
        if not isinstance(options, list):
            options = []
        values = [each.get("value") if isinstance(each, Mapping) else each for each in options]
        default = entry.get("default")
        return cls(
            id=str(entry.get("id", "")),
            description=str(entry.get("description") or ""),
            secret=bool(entry.get("password"))
            or entry.get("type") not in ("promptString", "pickString"),
            default=default if isinstance(default, str) else None,
            options=tuple(map(str, values)),
            runs=entry.get("type") == "command",
        )

    @property
    def choices(self) -> str:
        """The options, as they are shown behind a question."""
        return f" ({' / '.join(self.options)})" if self.options else ""

    @property
    def as_written(self) -> str:
        """What stands for the answer until the person types it: `${input:region (eu / us) [eu]}`.

        It has all that the config decides about the answer, and no two inputs have the same.
        """
        words = _word(self.id)
        if self.options:
            words += f" ({' / '.join(map(_word, self.options))})"
        if self.default is not None:
            words += f" [{_word(self.default)}]"
        return f"${{input:{words}}}"

    @property
    def question(self) -> str:
        """What the person is asked, with the id first. It says what is not hidden when it is typed."""
        words = self.id
        if self.description:
            words += f": {self.description}"
        if not self.secret:
            words += " (not hidden)"
        return words

    @property
    def placeholder(self) -> str:
        """An answer that the config itself names. Empty if it names none."""
        return self.default or next(iter(self.options), "")

    @property
    def variable(self) -> str:
        """The environment variable that can provide the value."""
        return variable_name(self.id) or "INPUT"


def _word(text: str) -> str:
    """Write a text so that it is clear where it ends: as JSON, unless it is a plain word."""
    return text if _WORD.fullmatch(text) else json.dumps(text)


def variable_name(text: str) -> str:
    """Make the name of an environment variable of a text. It is empty without a letter or digit."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper()


class Inputs:
    """The answers to one config's inputs. An environment variable answers without a prompt.

    Without `ask`, inputs without a variable get a placeholder.

    Attributes:
        placeholders: How many have one.
    """

    def __init__(
        self, defined: Iterable[Input], environ: Mapping[str, str], *, ask: bool = True
    ) -> None:
        self._defined = by_id(defined)
        self._environ = environ
        self._ask = ask
        self.placeholders = 0
        self._answers: dict[str, SecretStr | None] = {}

    def __repr__(self) -> str:
        return "<inputs>"

    def defined(self, name: str) -> Input:
        """Look up an input by id.

        One that the config does not define is a secret without a description.
        """
        return self._defined.get(name, Input(name))

    def answer(self, name: str, *, is_address: bool = False) -> SecretStr | None:
        """Look up or prompt for the answer to an input, or None if there is no variable and no one
        to ask.

        Args:
            name: The input.
            is_address: Whether an address begins with it, as its placeholder has to.
        """
        wanted = self.defined(name)
        if not self._ask and wanted.variable not in self._environ:
            self.placeholders += 1
            return SecretStr(wanted.placeholder or (_ADDRESS if is_address else "stand-in"))
        if name not in self._answers:
            self._answers[name] = self._find(wanted)
        return self._answers[name]

    def _find(self, wanted: Input) -> SecretStr | None:
        if wanted.variable in self._environ:
            return SecretStr(self._environ[wanted.variable])
        if wanted.runs:
            return None
        answer = _prompted(wanted)
        if answer is not None and not answer.get_secret_value() and wanted.default is not None:
            return SecretStr(wanted.default)
        return answer


def _prompted(wanted: Input) -> SecretStr | None:
    words = " ".join((wanted.description or wanted.id).split()) + wanted.choices
    if wanted.default and not wanted.secret:
        words += f" [{wanted.default}]"
    # The words are the file's, which may not be the person's own.
    question = f"The config asks for {shown(words, _MAX_QUESTION)}: "
    ask: Callable[[str], str] = getpass.getpass if wanted.secret else builtins.input
    while somebody_is_there():
        try:
            answer = SecretStr(ask(question))
        except (EOFError, NotImplementedError):
            # A kernel whose front end does not support input raises the second.
            return None
        if not wanted.options or answer.get_secret_value() in ("", *wanted.options):
            return answer
    return None


def somebody_is_there() -> bool:
    """Check whether a prompt can be answered: in a terminal, or in a kernel, which replaces
    Python's `getpass`.
    """
    ask: Callable[..., str] = getpass.getpass
    if ask.__module__ != "getpass":
        return True
    return sys.stdin is not None and sys.stdin.isatty()
