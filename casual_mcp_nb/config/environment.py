"""Read environment variables and `.env` files, and replace the variables in a config.

They are `${NAME}`, and those of other MCP hosts. VS Code and Cursor: `${env:NAME}`, `${input:ID}`,
`${workspaceFolder}`, `${userHome}`, `${pathSeparator}`
(https://code.visualstudio.com/docs/reference/variables-reference). Windsurf's `${file:PATH}` is
refused.
"""

from __future__ import annotations

import io
import os
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from casual_mcp_nb.config.document import ConfigProblem, KeyPath, read_text
from casual_mcp_nb.config.inputs import Input, Inputs
from casual_mcp_nb.errors import ConfigError

MAX_VALUE = 1_000_000
MAX_ALL = 8_000_000
"""Maximum length for one value, and for all together, after variables are replaced."""

_MAX_CHAIN = 20
"""How many variables of an entry may refer to each other in a row."""

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_HELD_AS_TEXT = {
    "clients": {"base_url"},
    "models": {"extra_body"},
    "servers": {"command", "args", "cwd", "roots", "url"},
}
_ADDRESSES = ("url", "base_url", "registry")
_NO_SECRETS = frozenset(
    {
        "HOME",
        "LANG",
        "PATH",
        "PWD",
        "SHELL",
        "TEMP",
        "TMP",
        "TMPDIR",
        "USER",
        "USERNAME",
        "USERPROFILE",
    }
)
_FOLDERS_OF_HOSTS = frozenset(
    {".claude", ".cursor", ".gemini", ".github", ".kiro", ".roo", ".vscode", ".zed"}
)
_NO_VARIABLE = "this is not a variable. Write ${NAME}, ${NAME:-default}, or $${ for a literal ${"
_HOW_TO_SET = (
    "Set it before the start with export {name}=VALUE, or write {name}=VALUE into a .env file"
    ' beside the config. In Python: os.environ["{name}"] = "VALUE".'
)


class Piece(NamedTuple):
    """A piece of a text: as it is used, with `before` as it is until the person has typed what it
    asks for, and the inputs that it asks for.
    """

    text: str
    before: str
    inputs: tuple[Input, ...] = ()

    def __repr__(self) -> str:
        return "<piece>"


def _plain(text: str) -> Piece:
    return Piece(text, text)


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Join the pieces of a text. What is not typed is written as in a file, so that it cannot pass
    for a question.
    """
    text = "".join(piece.text for piece in pieces)
    inputs = dict.fromkeys(chain.from_iterable(piece.inputs for piece in pieces))
    if not inputs:
        return _plain(text)
    before: list[str] = []
    for piece in pieces:
        before.append(piece.before if piece.inputs else piece.text.replace("${", "$${"))
    return Piece(text, "".join(before), tuple(inputs))


@dataclass
class Substitution:
    """Replaces variables and records each replacement. Its repr shows no values.

    `problems` are unset variables, invalid variables, and strings that cannot be encoded.
    `sensitive` are values inserted into fields whose type is not secret, and `inserted` the values
    of variables of the environment. `left` is how many more
    characters may be inserted. `used` has the inserted variables by section and entry, `written`
    the original texts, and `typed` those in which the person types something. `own` are the
    variables that each server's entry sets, as written: they are used where the environment has
    none of that name. `of_host` says that the config is another host's file, in which the text of a
    shell's command can have variables of the shell.
    """

    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    inputs: Inputs | None = None
    problems: list[ConfigProblem] = field(default_factory=list)
    sensitive: set[str] = field(default_factory=set, repr=False)
    inserted: set[str] = field(default_factory=set, repr=False)
    left: int = MAX_ALL
    used: dict[KeyPath, dict[str, None]] = field(default_factory=dict)
    written: dict[KeyPath, str | None] = field(default_factory=dict, repr=False)
    typed: dict[KeyPath, Piece] = field(default_factory=dict, repr=False)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    of_host: bool = False
    _shell_texts: set[KeyPath] = field(default_factory=set)
    _entered: list[KeyPath] = field(default_factory=list)
    _own_values: dict[KeyPath, Piece] = field(default_factory=dict, repr=False)

    def apply(self, value: Any, at: KeyPath = ()) -> Any:
        """Replace `${NAME}` and `${NAME:-default}` in every string of `value`, except keys.

        `$${` becomes `${`.
        """
        if isinstance(value, dict):
            if self.of_host and at[:1] == ("servers",) and len(at) == 2:
                self._shell_texts.update((*at, "args", index) for index in shell_texts(value))
            for key in value:
                self._check(key, (*at, key))
            return {key: self.apply(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.apply(item, (*at, index)) for index, item in enumerate(value)]
        return self._text(value, at).text if isinstance(value, str) else value

    def _text(self, text: str, at: KeyPath) -> Piece:
        if "$" not in text:
            return _plain(self._check(text, at))
        self.written[at] = text
        pieces: list[Piece] = []
        size = 0
        for piece in self._pieces(text, at):
            size += len(piece.text)
            self.left -= len(piece.text)
            if size > MAX_VALUE or self.left < 0:
                most = f"{MAX_ALL:,} characters in all values together"
                if size > MAX_VALUE:
                    most = f"{MAX_VALUE:,} characters"
                self.left = max(self.left, 0)
                return self._problem(at, f"with its variables replaced it is longer than {most}")
            pieces.append(piece)
        joined = _joined(pieces)
        self._check(joined.text, at)
        if joined.inputs:
            self.typed[at] = joined
        return joined

    def _pieces(self, text: str, at: KeyPath) -> Iterator[Piece]:
        end = 0
        for match in _REFERENCE.finditer(text):
            yield _plain(text[end : match.start()])
            yield self._replacement(match, at)
            end = match.end()
        yield _plain(text[end:])

    def _check(self, text: str, at: KeyPath) -> str:
        if _SURROGATE.search(text):
            self.problem(at, "must be valid Unicode")
        return text

    def _replacement(self, match: re.Match[str], at: KeyPath) -> Piece:
        if match["escaped"]:
            return _plain(match["escaped"])
        body = match["body"]
        if at in self._shell_texts and not (match["end"] and self._is_set(body)):
            # It is a variable of the shell, which replaces it.
            return _plain(match[0])
        if not match["end"] or "${" in body:
            return self._problem(at, _NO_VARIABLE)
        kind, colon, name = body.partition(":")
        is_of_kind = bool(colon) and not name.startswith("-")
        if kind == "input" and is_of_kind:
            return self._input(name, at, is_beginning=match.start() == 0)
        if kind == "file" and is_of_kind:
            # Somebody else's config could send any file on this computer to their own server.
            return self._problem(
                at, "a config cannot read files. Put the text in an environment variable"
            )
        predefined = _predefined(body, self.folder)
        if predefined is not None:
            return _plain(predefined)
        parts = _BODY.fullmatch(body)
        if parts is None:
            return self._problem(at, _NO_VARIABLE)
        return self._variable(parts["name"], parts["default"], at)

    def _variable(self, name: str, default: str | None, at: KeyPath) -> Piece:
        value = self.environ.get(name)
        if value is None and (own := self._own_value(name, at)) is not None:
            return own
        if default is not None and not value:
            return _plain(default)
        if value is None:
            return self._problem(
                at, f"the environment variable {name} is not set", _HOW_TO_SET.format(name=name)
            )
        self.note(at, name)
        if name not in _NO_SECRETS:
            self.inserted.add(value)
            self._mark_sensitive(value, at)
        return _plain(value)

    def _is_set(self, body: str) -> bool:
        """Check whether a reference is one of ours, and not one of a shell, which has a value only
        when it runs.
        """
        parts = _BODY.fullmatch(body)
        if body.startswith("input:") or _predefined(body, self.folder) is not None:
            return True
        return parts is not None and parts["name"] in self.environ

    def _own_value(self, name: str, at: KeyPath) -> Piece | None:
        """Build the value that the server's entry itself gives a variable, or None.

        One cannot refer to itself.
        """
        if at[:1] != ("servers",) or len(at) <= 2:
            return None
        text = self.own.get(str(at[1]), {}).get(name)
        there = (*at[:2], "env", name)
        refers_to_itself = at == there or there in self._entered
        if not isinstance(text, str) or refers_to_itself or len(self._entered) == _MAX_CHAIN:
            return None
        # Kept, because variables that refer to each other twice would take exponential time.
        if there not in self._own_values:
            self._entered.append(there)
            self._own_values[there] = self._text(text, there)
            self._entered.pop()
        self._mark_sensitive(self._own_values[there].text, at)
        return self._own_values[there]

    def _input(self, body: str, at: KeyPath, *, is_beginning: bool) -> Piece:
        # ${input:ID:question} is the syntax of prompt files.
        name = body.partition(":")[0]
        wanted, answer = Input(name), None
        if self.inputs is not None:
            wanted = self.inputs.defined(name)
            answer = self.inputs.answer(name, is_address=is_beginning and at[-1] in _ADDRESSES)
        if answer is None:
            return self._problem(
                at,
                f"no one can enter the input {wanted.id} here. Set the environment variable"
                f" {wanted.variable}",
            )
        value = answer.get_secret_value()
        if wanted.secret:
            self._mark_sensitive(value, at)
        if wanted.variable in self.environ:
            self.note(at, wanted.variable)
            return _plain(value)
        return Piece(value, wanted.as_written, (wanted,))

    def note(self, at: KeyPath, *names: str) -> None:
        """Note that an entry uses these variables, and those that they refer to."""
        noted = self.used.setdefault(at[:2], {})
        for name in names:
            # A `.env` entry can hold another variable's value.
            noted.update(dict.fromkeys([name, *references_of(self.environ, name)]))

    def _mark_sensitive(self, value: str, at: KeyPath) -> None:
        if value and len(at) > 2 and at[2] in _HELD_AS_TEXT.get(str(at[0]), ()):
            self.sensitive.add(value)

    def problem(self, at: KeyPath, text: str, hint: str = "") -> None:
        """Report a problem."""
        self.problems.append(ConfigProblem(at, text, hint))

    def _problem(self, at: KeyPath, text: str, hint: str = "") -> Piece:
        """Report a problem with a text. What is in its place is empty."""
        self.problem(at, text, hint)
        return _plain("")


_SHELLS = frozenset(
    {"ash", "bash", "cmd", "dash", "fish", "ksh", "powershell", "pwsh", "sh", "zsh"}
)
_SHELL_OPTION = re.compile(r"-[a-z]*c|/c|-command", re.IGNORECASE)


def shell_texts(server: Mapping[str, Any]) -> Iterator[int]:
    """Find the arguments of a server's entry that a shell runs as its program: those behind
    `-c`.
    """
    command, args = server.get("command"), server.get("args")
    if not isinstance(command, str) or not isinstance(args, list):
        return
    program = re.split(r"[/\\]", command)[-1].lower().removesuffix(".exe")
    if program not in _SHELLS:
        return
    for index, word in enumerate(args):
        if _SHELL_OPTION.fullmatch(str(word)):
            yield from range(index + 1, len(args))
            return


def workspace_of(folder: Path | None) -> Path:
    """Find the workspace folder: the config file's folder, or its parent if that is a host's folder
    (like `.vscode`).
    """
    directory = folder or Path.cwd()
    return directory.parent if directory.name in _FOLDERS_OF_HOSTS else directory


def _predefined(name: str, folder: Path | None) -> str | None:
    """Build the value of a variable that hosts define, or None if they have none of that name."""
    match name:
        case "workspaceFolder" | "workspaceRoot" | "cwd":
            return str(workspace_of(folder))
        case "workspaceFolderBasename":
            return workspace_of(folder).name
        case "userHome":
            return str(Path.home())
        case "pathSeparator" | "/":
            return os.sep
    return None


class Environment(Mapping[str, str]):
    """Variables by name, looked up on access.

    Its repr shows nothing, so that tracebacks never contain them.

    It is not a `dict`, and no method that can fail holds one in a local variable: traceback tools
    would print its contents.
    """

    __slots__ = ("_layers", "_references")

    def __init__(
        self, *layers: Mapping[str, str], references: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._layers = layers
        self._references = references or {}

    def __getitem__(self, name: str) -> str:
        if name not in self:
            raise KeyError(name)
        return next(layer[name] for layer in self._layers if name in layer)

    def __contains__(self, name: object) -> bool:
        return any(name in layer for layer in self._layers)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(self._layers)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "<environment>"

    def references(self, name: str) -> tuple[str, ...]:
        """List the variables that a variable from a `.env` file refers to."""
        layer = next((layer for layer in self._layers if name in layer), None)
        if isinstance(layer, Environment):
            return layer.references(name)
        return self._references.get(name, ())


def references_of(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """List the variables that a variable refers to: none, unless it is from a `.env` file."""
    return environ.references(name) if isinstance(environ, Environment) else ()


def read_environment(
    folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> Environment:
    """Read the environment and the `.env` files in `folder` and the working directory.

    Variables that are already set override the files, and the first file overrides the second. The
    process's environment is not changed.
    """
    if not isinstance(environ, Mapping | None):
        raise ConfigError("environ must map names to strings.")
    if environ is None:
        environ = os.environ
    merged = Environment(environ)
    for directory in dict.fromkeys((folder or Path.cwd(), Path.cwd())):
        path = directory / ".env"
        if path.is_file():
            merged = Environment(merged, env_entries(path, merged))
    return merged


def env_entries(path: Path, environ: Mapping[str, str]) -> Environment:
    """Read the variables in an env file, replacing each `${NAME}` from the environment and the
    entries above it.

    An entry that refers to an unset variable is left out, so that it is reported as missing where
    it is needed.
    """
    from dotenv import dotenv_values

    # dotenv would look variables up in the process's environment instead of the one passed in.
    values = dotenv_values(stream=io.StringIO(read_text(path)), interpolate=False)
    entries: dict[str, str] = {}
    references: dict[str, tuple[str, ...]] = {}
    together = ChainMap(cast(dict[str, str], environ), entries)
    for name, value in values.items():
        substitution = Substitution(together)
        text = substitution.apply(value)
        if text is not None and not substitution.problems:
            entries[name] = text
            reached: list[str] = []
            for used in substitution.used.get((), {}):
                reached += [used, *references.get(used, references_of(environ, used))]
            references[name] = tuple(dict.fromkeys(reached))
    return Environment(entries, references=references)
