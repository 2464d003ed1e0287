"""Problems in a config, described without ever including a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from casual_mcp_nb.errors import ConfigError, closest, did_you_mean
from casual_mcp_nb.providers.registry import specs
from casual_mcp_nb.types.config import Config, ExcludeSpec, unknown_clients
from casual_mcp_nb.types.server import server_problem

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]
"""Line and column, both from 1."""

_SECTIONS = ("clients", "models", "servers", "tool_sets")
_WORDS = {
    "missing": "is required",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
}
_TOOLS_OF_A_SERVER = 'must be true, a list of tool names, or {"exclude": [tool names]}'


@dataclass(frozen=True)
class ConfigProblem:
    """One problem: its key path and a description without any value."""

    path: KeyPath
    text: str


MAX_PROBLEMS = 50
"""Maximum number of problems that an error lists after the first."""


def raise_problems(
    problems: Iterable[ConfigProblem],
    *,
    path: str | None = None,
    locate: Callable[[KeyPath], Position | None] = lambda _: None,
) -> None:
    """Raise one error listing all problems, one per line, in file order; do nothing if there are none.

    Args:
        problems: The problems; duplicates count once.
        path: The file.
        locate: Return the line and column of a key.

    Raises:
        ConfigError: There are problems. Its path, line, column and key are those of the first.
    """
    located = [(locate(problem.path), problem) for problem in dict.fromkeys(problems)]
    if not located:
        return
    located.sort(key=lambda item: item[0] or (0, 0))
    (position, first), *others = located
    more = "".join(f"\n{_error(problem, path, at)}" for at, problem in others[:MAX_PROBLEMS])
    if len(others) > MAX_PROBLEMS:
        more += f"\n… and {len(others) - MAX_PROBLEMS:,} more"
    raise _error(first, path, position, more=more)


def _error(problem: ConfigProblem, path: str | None, position: Position | None, more: str = "") -> ConfigError:
    line, column = position or (None, None)
    key = dotted(problem.path)
    text = f"{key}: {problem.text}" if key else problem.text
    return ConfigError(text + more, path=path, line=line, column=column, key=key or None)


def dotted(path: KeyPath) -> str:
    """Format a key path, such as `servers.time.args[0]`, with unusual characters escaped and long names cut."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_name(part)}" for part in path)
    return text.removeprefix(".")


def _name(part: str) -> str:
    plain = part if part.isprintable() else part.encode("unicode_escape").decode()
    return plain if len(plain) <= 60 else f"{plain[:60]}…"


def problems_of(error: ValidationError, within: KeyPath = ()) -> list[ConfigProblem]:
    """Convert pydantic's validation errors to problems.

    Args:
        error: The error that pydantic raised.
        within: The key path of the validated value in the config.
    """
    # `cross_problems` reports unknown names, even when there are other errors.
    items = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [item for item in items if item["type"] != "unknown_reference"]
    return [_problem((*within, *item["loc"]), item["type"], item["msg"]) for item in errors]


def _problem(loc: KeyPath, kind: str, message: str) -> ConfigProblem:
    if loc[0:1] == ("tool_sets",) and len(loc) > 4:
        return _tools_problem(loc[:4], loc[4:], kind)
    if kind == "extra_forbidden":
        return ConfigProblem(loc, _unknown_key(str(loc[-1]), _model_at(loc[:-1])))
    if loc[-1:] == ("[key]",):
        return ConfigProblem(
            loc[:-1], message.removeprefix("Value error, ") if kind == "value_error" else "the name must be a string"
        )
    return ConfigProblem(loc, _WORDS.get(kind) or message.removeprefix("Value error, ").replace("Input should", "must"))


def _tools_problem(path: KeyPath, within: KeyPath, kind: str) -> ConfigProblem:
    """Report one problem for a toolset value that matches none of the allowed types."""
    if kind == "extra_forbidden":
        return ConfigProblem((*path, within[-1]), _unknown_key(str(within[-1]), ExcludeSpec))
    return ConfigProblem(path, _TOOLS_OF_A_SERVER)


def _model_at(path: KeyPath) -> type[BaseModel]:
    """Find the model whose fields are the keys at a path: the config's own, or that of the entries of a section."""
    return next(_models_in(Config.model_fields[str(path[0])].annotation), Config) if path else Config


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def _unknown_key(name: str, model: type[BaseModel]) -> str:
    return f"unknown key. {did_you_mean(closest(name, model.model_fields, 1), model.model_fields)}"


def cross_problems(data: Mapping[str, Any], field_problems: Iterable[ConfigProblem]) -> list[ConfigProblem]:
    """Find problems between fields, even if single fields are invalid too.

    Args:
        data: The config as plain objects.
        field_problems: The problems of single fields; servers that have one are skipped.
    """
    sections = {name: data.get(name, {}) for name in _SECTIONS}
    if not all(isinstance(section, Mapping) for section in sections.values()):
        return []
    problems = [ConfigProblem(path, text) for path, text in unknown_clients(sections["clients"], sections["models"])]
    problems += _unknown_providers(sections["clients"])
    faulty = {problem.path[:2] for problem in field_problems}
    for name, server in sections["servers"].items():
        text = server_problem(server) if isinstance(server, Mapping) and ("servers", name) not in faulty else None
        if text:
            problems.append(ConfigProblem(("servers", name), text))
    return problems


def _unknown_providers(clients: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    *names, last = (f"'{name}'" for name in specs())
    for name, client in clients.items():
        provider = client.get("provider") if isinstance(client, Mapping) else None
        if isinstance(provider, str) and provider not in specs():
            yield ConfigProblem(("clients", name, "provider"), f"must be {', '.join(names)} or {last}")
