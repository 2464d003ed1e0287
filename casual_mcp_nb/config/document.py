"""Parse config files, JSON (with comments), TOML or YAML, into plain objects, and describe problems
without any value.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from casual_mcp_nb.base.config import Config, server_problem, unknown_clients
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.yaml_text import YamlError, read_yaml
from casual_mcp_nb.errors import ConfigError, MissingFileError, closest, did_you_mean
from casual_mcp_nb.providers.registry import specs

OTHER_FORMATS = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}
"""The formats besides JSON, by the ends of files' names."""

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]
"""Line and column, both from 1."""

_SECTIONS = ("clients", "models", "servers", "tool_sets")
_WORDS = {
    "missing": "is required",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
}
_KEY = "[key]"
"""How pydantic marks that a key itself is wrong, behind it."""
_TOOLS_OF_A_SERVER = 'must be true, a list of tool names, or {"exclude": [tool names]}'


@dataclass(frozen=True)
class ConfigProblem:
    """One problem: its key path, a description without any value, and the next step where the
    description has none.
    """

    path: KeyPath
    text: str
    hint: str = ""


MAX_PROBLEMS = 50
"""How many problems an error lists after the first."""


def raise_problems(problems: Iterable[ConfigProblem], document: Document) -> None:
    """Raise one ConfigError listing all problems, one per line, in file order, with the first hint.

    Nothing if there are none.

    It has the first problem's path, line, column and key.
    """
    path = str(document.path) if document.path else None
    located = [(document.locate(problem.path), problem) for problem in dict.fromkeys(problems)]
    if not located:
        return
    located.sort(key=lambda item: item[0] or (0, 0))
    (position, first), *others = located
    more = "".join(f"\n{_error(problem, path, at)}" for at, problem in others[:MAX_PROBLEMS])
    if len(others) > MAX_PROBLEMS:
        more += f"\n… and {len(others) - MAX_PROBLEMS:,} more"
    hint = next((problem.hint for _, problem in located if problem.hint), "")
    end = ""
    if hint:
        end = "\n" if more else "."
    raise _error(first, path, position, more=more + end, hint=hint)


def _error(
    problem: ConfigProblem,
    path: str | None,
    position: Position | None,
    *,
    more: str = "",
    hint: str = "",
) -> ConfigError:
    line, column = position or (None, None)
    key = dotted(problem.path)
    text = f"{key}: {problem.text}" if key else problem.text
    return ConfigError(text + more, path=path, line=line, column=column, key=key or None, hint=hint)


def dotted(path: KeyPath) -> str:
    """Format a key path, such as `servers.time.args[0]`, with unusual characters escaped and long
    names cut.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{_name(part)}"
    return text.removeprefix(".")


def _name(part: str) -> str:
    plain = part if part.isprintable() else part.encode("unicode_escape").decode()
    return plain if len(plain) <= 60 else f"{plain[:60]}…"


def problems_of(
    error: ValidationError, data: Mapping[str, Any], within: KeyPath = ()
) -> list[ConfigProblem]:
    """Convert validation errors from pydantic to problems, one for each value.

    Args:
        error: What pydantic raised.
        data: What it checked.
        within: The key path of the data.
    """
    # `cross_problems` reports unknown names, even when there are other errors.
    items = error.errors(include_url=False, include_context=False, include_input=False)
    texts: dict[KeyPath, list[str]] = {}
    problems: list[ConfigProblem] = []
    values_of_a_union: set[KeyPath] = set()
    for item in items:
        if item["type"] == "unknown_reference":
            continue
        path = _path_in(data, item["loc"], item["type"])
        problem = _problem((*within, *path), item["type"], item["msg"])
        if path[-1:] == (_KEY,):
            # Another problem, of the value, is no other form of it.
            problems.append(problem)
            continue
        texts.setdefault(problem.path, []).append(problem.text)
        if len(path) < len(item["loc"]):
            values_of_a_union.add(problem.path)
    with_problems_inside = {path[:size] for path in texts for size in range(len(path))}
    for path, each in texts.items():
        # A value of the right form with a problem inside does not have to be of another form.
        if path not in values_of_a_union or path not in with_problems_inside:
            problems.append(ConfigProblem(path, _one_text(path, each)))
    return problems


def _path_in(data: Any, loc: KeyPath, kind: str) -> KeyPath:
    """Leave only keys and positions in a location: pydantic adds a part for each member of a
    union.
    """
    path: list[str | int] = []
    for part in loc:
        is_key = isinstance(data, Mapping) and part in data
        if is_key or (isinstance(data, list | tuple) and isinstance(part, int)):
            data = data[part]
        elif part != _KEY and not (kind == "missing" and part == loc[-1]):
            continue
        path.append(part)
    return tuple(path)


def _one_text(path: KeyPath, texts: list[str]) -> str:
    """Join the forms that a value could have."""
    if len(texts) > 1 and path[0] == "tool_sets":
        return _TOOLS_OF_A_SERVER
    first, *others = dict.fromkeys(texts)
    return " or ".join([first, *(text.removeprefix("must be ") for text in others)])


def _problem(loc: KeyPath, kind: str, message: str) -> ConfigProblem:
    if kind == "extra_forbidden":
        return ConfigProblem(loc, _unknown_key(str(loc[-1]), _model_at(loc[:-1])))
    if loc[-1:] == (_KEY,):
        text = "the name must be a string"
        if kind == "value_error":
            text = message.removeprefix("Value error, ")
        return ConfigProblem(loc[:-1], text)
    words = message.removeprefix("Value error, ")
    text = _WORDS.get(kind) or re.sub(r"^(?:Input|String) should", "must", words)
    if kind == "literal_error":
        text = text.replace("True", "true").replace("False", "false")
    return ConfigProblem(loc, text)


def _model_at(path: KeyPath) -> type[BaseModel]:
    """Find the model whose fields are the keys at a path: the config itself, a section's entry, or
    a part of it.
    """
    model: type[BaseModel] = Config
    parts = iter(path)
    for part in parts:
        annotation = model.model_fields[str(part)].annotation
        model = next(_models_in(annotation), model)
        if get_origin(annotation) is dict:
            # The next part is a name that the person chose.
            next(parts, None)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def _unknown_key(name: str, model: type[BaseModel]) -> str:
    return f"unknown key. {did_you_mean(closest(name, model.model_fields, 1), model.model_fields)}"


def cross_problems(
    data: Mapping[str, Any], field_problems: Iterable[ConfigProblem]
) -> list[ConfigProblem]:
    """Find problems between fields, even if single fields are invalid too.

    Servers with `field_problems` are skipped.
    """
    sections = {name: data.get(name, {}) for name in _SECTIONS}
    if not all_are(sections.values(), Mapping):
        return []
    embedding = object_in(data, "tool_discovery").get("embedding")
    unknown = unknown_clients(sections["clients"], sections["models"], embedding)
    problems = [ConfigProblem(path, text) for path, text in unknown]
    problems += _unknown_providers(sections["clients"])
    faulty = {problem.path[:2] for problem in field_problems}
    for name, server in sections["servers"].items():
        if not isinstance(server, Mapping) or ("servers", name) in faulty:
            continue
        text = server_problem(server)
        if text:
            problems.append(ConfigProblem(("servers", name), text))
    return problems


def _unknown_providers(clients: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    *names, last = (f"'{name}'" for name in specs())
    for name, client in clients.items():
        provider = client.get("provider") if isinstance(client, Mapping) else None
        if isinstance(provider, str) and provider not in specs():
            yield ConfigProblem(
                ("clients", name, "provider"), f"must be {', '.join(names)} or {last}"
            )


# An unclosed string or comment matches up to the end, so that no part is scanned twice.
_TOKEN_OR_COMMENT = re.compile(
    r'"(?:[^"\\]|\\.)*+"?|//[^\r\n]*|/\*.*?(?:\*/|\Z)|[{}\[\],:]|[^\s{}\[\],:"/]+|/', re.DOTALL
)
_VISIBLE = re.compile(r"[^\r\n]")
_BEFORE_A_VALUE = ("", "{", "[", ",", ":")


def plain_json(text: str) -> str:
    """Replace comments and trailing commas in JSON with spaces.

    Every other character keeps its position.
    """
    blanks: list[tuple[int, int]] = []
    comma, last = -1, ""
    for match in _TOKEN_OR_COMMENT.finditer(text):
        token = match[0]
        if token.startswith("//") or (
            token.startswith("/*") and len(token) > 3 and token.endswith("*/")
        ):
            blanks.append(match.span())
            continue
        if token in ("}", "]") and comma >= 0:
            blanks.append((comma, comma + 1))
        comma = match.start() if token == "," and last not in _BEFORE_A_VALUE else -1
        last = token
    return "".join(_blanked(text, sorted(blanks)))


def has_comments(text: str, suffix: str) -> bool:
    """Check whether a file's text has comments: JSON's anywhere, those of TOML and YAML on separate
    lines.
    """
    if suffix.casefold() in OTHER_FORMATS:
        return re.search(r"^[ \t]*#", text, re.MULTILINE) is not None
    return any(match[0].startswith(("//", "/*")) for match in _TOKEN_OR_COMMENT.finditer(text))


_INDENT = re.compile(r'\n([ \t]+)"')


def indent_of(text: str) -> str:
    """Read how a JSON text is indented. Two spaces if it is not."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _blanked(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    end = 0
    for start, stop in spans:
        yield text[end:start]
        yield _VISIBLE.sub(" ", text[start:stop])
        end = stop
    yield text[end:]


MAX_BYTES = 16_000_000
"""Maximum file size: far more than any config needs, and small enough to read in a second or two.
"""

MAX_PATH = 4_096
"""How much of a path an error shows. No path of a file is longer."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True)
class Document:
    """A parsed config file: plain objects, line and column for each key and list item, and
    duplicate keys as problems.

    `moved` has where in the file something was, by the key path that it has in the converted
    config.
    """

    data: dict[str, Any] = field(repr=False)
    path: Path | None = None
    positions: Mapping[KeyPath, Position] = field(default_factory=dict, repr=False)
    problems: tuple[ConfigProblem, ...] = ()
    moved: Mapping[KeyPath, KeyPath] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """The file's folder, if there is one."""
        return self.path.parent if self.path else None

    def as_written(self, path: KeyPath) -> KeyPath:
        """Convert the key path to the one in the file."""
        return before_move(path, self.moved)

    def locate(self, path: KeyPath) -> Position | None:
        """Find where a key is, or its nearest enclosing key."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)


def before_move(path: KeyPath, moved: Mapping[KeyPath, KeyPath]) -> KeyPath:
    """Convert a key path to the one before it, or one around it, moved."""
    for size in range(len(path), 0, -1):
        if path[:size] in moved:
            return moved[path[:size]] + path[size:]
    return path


def read_document(path: Path) -> Document:
    """Read a file in UTF-8, with or without a byte order mark: TOML or YAML if its name ends so,
    otherwise JSON.

    A ConfigError if it cannot be read or is not an object, with line and column if known.
    """
    return parse_document(read_text(path), path)


def parse_document(text: str, path: Path) -> Document:
    """Parse a file's text into objects.

    The path that errors name determines the format by its suffix.
    """
    parsed = _parsed(text, path)
    # A traceback that shows local variables would show the keys in the text.
    del text
    if isinstance(parsed, ConfigError):
        raise parsed
    return parsed


def _parsed(text: str, path: Path) -> Document | ConfigError:
    """Parse a document, or describe its first error.

    Nothing is raised while a local variable holds the text.
    """
    if not text.strip():
        return ConfigError("the file is empty. It must contain a JSON object.", path=str(path))
    form = OTHER_FORMATS.get(path.suffix.casefold(), "JSON")
    positions: Mapping[KeyPath, Position] = {}
    doubles: Iterable[KeyPath] = ()
    line, column = 1, 1
    try:
        match form:
            case "TOML":
                data: Any = tomllib.loads(text)
            case "YAML":
                data, positions, doubles = read_yaml(text)
            case _:
                text = plain_json(text)
                data = json.loads(text)
                positions, doubles = _scan(text)
    except YamlError as error:
        problem, line, column = f"not YAML that can be read: {error}", error.line, error.column
    except json.JSONDecodeError as error:
        problem, line, column = f"not JSON: {error.msg}", error.lineno, error.colno
    except tomllib.TOMLDecodeError as error:
        reason, _, where = str(error).partition(" (at line ")
        problem = f"not TOML: {reason.splitlines()[0][:200]}"
        line, column, *_ = (*map(int, re.findall(r"\d+", where)), 1, 1)
    except RecursionError:
        problem = f"not {form}: nested too deeply"
    except ValueError:
        problem = f"not {form}: a number with too many digits"
    else:
        if isinstance(data, dict):
            twice = [ConfigProblem(key, "the same key twice in one object") for key in doubles]
            return Document(data, path, positions, tuple(twice))
        kind = "mapping" if form == "YAML" else "JSON object"
        problem = f"the top level must be a {kind}"
    return ConfigError(f"{problem}.", path=str(path), line=line, column=column)


def read_text(path: Path, error: type[ConfigError] = ConfigError) -> str:
    """Read a UTF-8 file, without its byte order mark.

    A ConfigError, without any of its text, if it cannot be read.
    """
    try:
        if not path.is_file():
            raise _not_a_file(path, error)
        if path.stat().st_size > MAX_BYTES:
            raise error(f"the file is larger than {MAX_BYTES // 1_000_000} MB.", path=str(path))
        content = path.read_bytes()
    except MissingFileError:
        raise
    except OSError as cause:
        raise error(f"cannot be read: {cause.strerror}.", path=str(path)[:MAX_PATH]) from cause
    # The codec's error carries the whole content, so ours is raised after both are gone.
    text, wrong = _decoded(content)
    del content
    if wrong is not None:
        line, column = wrong
        raise error(
            "not UTF-8 text.",
            path=str(path),
            line=line,
            column=column,
            hint="Save the file as UTF-8.",
        )
    return text


def _decoded(content: bytes) -> tuple[str, Position | None]:
    """Decode a file's text, or return where the first byte is that is not UTF-8."""
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        good = content[: error.start].decode("utf-8-sig")
        return "", _position(_line_starts(good), len(good))


def _not_a_file(path: Path, error: type[ConfigError]) -> ConfigError:
    if path.is_dir():
        return error("this is a folder, not a file.", path=str(path))
    if path.exists():
        return error("this is not a regular file.", path=str(path))
    near = closest(path.name, [other.name for other in path.parent.glob(f"*{path.suffix}")])
    hint = did_you_mean(near, near) if near else ""
    if error is ConfigError:
        error = MissingFileError
    return error("there is no such file.", path=str(path), hint=hint)


def _scan(text: str) -> tuple[dict[KeyPath, Position], list[KeyPath]]:
    """Locate each key and list item in valid JSON, and find duplicate keys."""
    starts = _line_starts(text)
    positions: dict[KeyPath, Position] = {}
    doubles: dict[KeyPath, None] = {}
    for path, offset in _walk(text):
        begins = (path[:size] for size in range(1, len(path) + 1))
        if path in positions and doubles.keys().isdisjoint(begins):
            doubles[path] = None
        positions[path] = _position(starts, offset)
    return positions, list(doubles)


def _walk(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield each key and list item with its offset, in order."""
    path: list[str | int] = []
    key_next = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        last = path[-1] if path else ""
        if isinstance(last, int) and token not in ",]":
            yield tuple(path), match.start()
        if token in "{[":
            path.append("" if token == "{" else 0)
            key_next = token == "{"
        elif token in "}]":
            path.pop()
            key_next = False
        elif token == "," and isinstance(last, int):
            path[-1] = last + 1
        elif token == ",":
            key_next = True
        elif key_next:
            path[-1], key_next = json.loads(token), False
            yield tuple(path), match.start()


def object_in(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Read an object of a file's data. Anything else counts as empty."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def list_in(data: Mapping[str, Any], key: str) -> list[Any]:
    """Read a list of a file's data. Anything else counts as empty."""
    value = data.get(key)
    return value if isinstance(value, list) else []


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Copy a file's data, with each text in it changed. Its keys stay."""
    if isinstance(value, Mapping):
        return {str(key): mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _position(starts: list[int], offset: int) -> Position:
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1
