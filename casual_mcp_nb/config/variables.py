"""Replace `${NAME}`, and other MCP hosts' variables, in the values of a config.

VS Code and Cursor: `${env:NAME}`, `${input:ID}`, `${workspaceFolder}`, `${userHome}`, `${pathSeparator}`
(https://code.visualstudio.com/docs/reference/variables-reference). Windsurf's `${file:PATH}` is refused.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from casual_mcp_nb.config.inputs import Inputs
from casual_mcp_nb.config.problems import ConfigProblem, KeyPath

MAX_VALUE = 1_000_000
MAX_ALL = 8_000_000
"""Maximum length of one value, and of all values together, after variables are replaced."""

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_HELD_AS_TEXT = {"clients": {"base_url"}, "models": {"extra_body"}, "servers": {"command", "args", "cwd", "roots", "url"}}
_NO_SECRETS = frozenset({"HOME", "LANG", "PATH", "PWD", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "USERNAME", "USERPROFILE"})
_FOLDERS_OF_HOSTS = frozenset({".claude", ".cursor", ".gemini", ".github", ".kiro", ".roo", ".vscode", ".zed"})
_NO_VARIABLE = "this is not a variable; write ${NAME}, ${NAME:-default}, or $${ for a literal ${"


@dataclass
class Substitution:
    """Replaces variables and records each replacement. Its repr shows no values.

    Args:
        environ: Values by name.
        folder: The config file's folder; None for a config made in Python.
        inputs: The answers to inputs; None to prompt nobody.
        problems: Unset variables, invalid variables, and strings that cannot be encoded.
        sensitive: Values inserted into fields whose type is not secret.
        left: How many more characters may be inserted.
        used: The names of the variables that were inserted, by section and name of the entry.
        written: The original texts that were changed.
    """

    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    inputs: Inputs | None = None
    problems: list[ConfigProblem] = field(default_factory=list)
    sensitive: set[str] = field(default_factory=set, repr=False)
    left: int = MAX_ALL
    used: dict[KeyPath, dict[str, None]] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict, repr=False)

    def apply(self, value: Any, at: KeyPath = ()) -> Any:
        """Replace `${NAME}` and `${NAME:-default}` in every string of `value`; `$${` becomes `${`.

        Args:
            value: A string, an object or a list; anything else is returned unchanged. Keys are not expanded.
            at: Its key path.
        """
        if isinstance(value, dict):
            for key in value:
                self._check(key, (*at, key))
            return {key: self.apply(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.apply(item, (*at, index)) for index, item in enumerate(value)]
        return self._text(value, at) if isinstance(value, str) else value

    def _text(self, text: str, at: KeyPath) -> str:
        if "$" not in text:
            return self._check(text, at)
        self.written[at] = text
        pieces: list[str] = []
        size = 0
        for piece in self._pieces(text, at):
            size += len(piece)
            self.left -= len(piece)
            if size > MAX_VALUE or self.left < 0:
                most = f"{MAX_VALUE:,} characters" if size > MAX_VALUE else f"{MAX_ALL:,} characters in all values together"
                self.problems.append(ConfigProblem(at, f"with its variables replaced it is longer than {most}"))
                self.left = max(self.left, 0)
                return ""
            pieces.append(piece)
        return self._check("".join(pieces), at)

    def _pieces(self, text: str, at: KeyPath) -> Iterator[str]:
        end = 0
        for match in _REFERENCE.finditer(text):
            yield text[end : match.start()]
            yield self._replacement(match, at)
            end = match.end()
        yield text[end:]

    def _check(self, text: str, at: KeyPath) -> str:
        if _SURROGATE.search(text):
            self.problems.append(ConfigProblem(at, "must be valid Unicode"))
        return text

    def _replacement(self, match: re.Match[str], at: KeyPath) -> str:
        if match["escaped"]:
            return match["escaped"]
        body = match["body"]
        if not match["end"] or "${" in body:
            return self._problem(at, _NO_VARIABLE)
        kind, colon, name = body.partition(":")
        if kind == "input" and colon and not name.startswith("-"):
            return self._input(name, at)
        if kind == "file" and colon and not name.startswith("-"):
            # Somebody else's config could send any file on this computer to their own server.
            return self._problem(at, "a config cannot read files; put the text in an environment variable")
        if body in _PREDEFINED:
            return _PREDEFINED[body](workspace_of(self.folder))
        parts = _BODY.fullmatch(body)
        if parts is None:
            return self._problem(at, _NO_VARIABLE)
        return self._variable(parts["name"], parts["default"], at)

    def _variable(self, name: str, default: str | None, at: KeyPath) -> str:
        value = self.environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            return self._problem(at, f"the environment variable {name} is not set")
        self._note(name, at)
        return value if name in _NO_SECRETS else self._marked_sensitive(value, at)

    def _input(self, body: str, at: KeyPath) -> str:
        # ${input:ID:question} is the syntax of prompt files.
        wanted = (self.inputs or Inputs((), {})).defined(body.partition(":")[0])
        answer = self.inputs.answer(wanted.id) if self.inputs else None
        if answer is None:
            return self._problem(
                at, f"there is no one to ask for the input {wanted.id}; set the environment variable {wanted.variable}"
            )
        if wanted.variable in self.environ:
            self._note(wanted.variable, at)
        value = answer.get_secret_value()
        return self._marked_sensitive(value, at) if wanted.secret else value

    def _note(self, name: str, at: KeyPath) -> None:
        # An entry of a `.env` file can hold another variable's value.
        references = getattr(self.environ, "references", lambda _: ())
        self.used.setdefault(at[:2], {}).update(dict.fromkeys([name, *references(name)]))

    def _marked_sensitive(self, value: str, at: KeyPath) -> str:
        if len(at) > 2 and at[2] in _HELD_AS_TEXT.get(str(at[0]), ()):
            self.sensitive.add(value)
        return value

    def _problem(self, at: KeyPath, text: str) -> str:
        self.problems.append(ConfigProblem(at, text))
        return ""


def workspace_of(folder: Path | None) -> Path:
    """Find the workspace folder: the config file's folder, or its parent if that is a host's folder (like `.vscode`)."""
    directory = folder or Path.cwd()
    return directory.parent if directory.name in _FOLDERS_OF_HOSTS else directory


_PREDEFINED: dict[str, Callable[[Path], str]] = {
    "workspaceFolder": str,
    "workspaceRoot": str,
    "workspaceFolderBasename": lambda workspace: workspace.name,
    "cwd": str,
    "userHome": lambda _: str(Path.home()),
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}


def expanded(values: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Replace `${NAME}` in the entries of a `.env` file from the environment and the entries above.

    An entry that refers to an unset variable is left out, so that it is reported as missing where it is needed.

    Returns:
        The entries, and for each the names of the variables that it refers to, also through other entries.
    """
    variables: dict[str, str] = {}
    references: dict[str, tuple[str, ...]] = {}
    outer = getattr(environ, "references", lambda _: ())
    together = ChainMap(cast(dict[str, str], environ), variables)
    for name, value in values.items():
        substitution = Substitution(together)
        text = substitution.apply(value)
        if text is not None and not substitution.problems:
            variables[name] = text
            direct = substitution.used.get((), {})
            references[name] = tuple(
                dict.fromkeys(each for used in direct for each in (used, *references.get(used, outer(used))))
            )
    return variables, references
