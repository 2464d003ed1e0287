"""Read environment variables and `.env` files, once, when a session starts."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from casual_mcp_nb.config.document import read_text
from casual_mcp_nb.config.variables import expanded
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.types.result_text import ResultFormat

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_OTHER_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_INVALID = object()


class Environment(Mapping[str, str]):
    """Variables by name, looked up on access. Its repr shows nothing, so that tracebacks never contain them.

    It is not a `dict`, and no method that can fail holds one in a local variable: traceback tools would print its contents.

    Args:
        layers: Where to look, in this order.
        references: The names of the variables that entries refer to, by name.
    """

    __slots__ = ("_layers", "_references")

    def __init__(self, *layers: Mapping[str, str], references: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._layers = layers
        self._references = references or {}

    def __getitem__(self, name: str) -> str:
        if name not in self:
            raise KeyError(name)
        return next(layer[name] for layer in self._layers if name in layer)

    def __contains__(self, name: object) -> bool:
        return any(name in layer for layer in self._layers)

    def __iter__(self) -> Iterator[str]:
        return iter({name: None for layer in self._layers for name in layer})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "<environment>"

    def references(self, name: str) -> tuple[str, ...]:
        """List the names of the variables whose values are part of a variable's value, if it comes from a `.env` file."""
        layer = next((layer for layer in self._layers if name in layer), None)
        return layer.references(name) if isinstance(layer, Environment) else self._references.get(name, ())

    def behind(self, other: Mapping[str, str]) -> Environment:
        """Merge this environment with another one, whose variables have lower priority."""
        return Environment(*self._layers, other)


def read_environment(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Environment:
    """Read the environment and the `.env` files in `folder` and the working directory.

    Variables that are already set override the files, and the first file overrides the second. The process's environment is
    not changed.

    Args:
        folder: The config file's folder, if there is one.
        environ: The environment; None for the process's own.

    Raises:
        ConfigError: A `.env` file cannot be read.
    """
    if not isinstance(environ, Mapping | None):
        raise ConfigError("environ must map names to strings.")
    merged = Environment(os.environ if environ is None else environ)
    for directory in dict.fromkeys((folder or Path.cwd(), Path.cwd())):
        path = directory / ".env"
        if path.is_file():
            merged = merged.behind(env_entries(path, merged))
    return merged


def env_entries(path: Path, environ: Mapping[str, str]) -> Environment:
    """Read the variables in an env file, replacing each `${NAME}` from the environment and the entries above it.

    Args:
        path: The file.
        environ: The environment.

    Raises:
        ConfigError: It cannot be read.
    """
    from dotenv import dotenv_values

    # dotenv would look variables up in the process's environment instead of the one passed in.
    entries, references = expanded(dotenv_values(stream=io.StringIO(read_text(path)), interpolate=False), environ)
    return Environment(entries, references=references)


@dataclass(frozen=True)
class Settings:
    """Settings of the package that come from environment variables.

    Args:
        tool_result_format: What the model sees of a tool call: the result alone, with the function name, or with the arguments
            too.
        tool_cache_ttl: Seconds for which a server's tool list is cached; None means it never expires.
        max_chat_iterations: Maximum number of model calls in one turn.
        log_level: The logging level. It applies where `LOG_LEVEL` is set, and to services.
        max_calls_per_step: Maximum number of tool calls run for one model response.
    """

    tool_result_format: ResultFormat = "result"
    tool_cache_ttl: float | None = 30.0
    max_chat_iterations: int = 50
    log_level: LogLevel = "INFO"
    max_calls_per_step: int = 64

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `TOOL_RESULT_FORMAT`, `MCP_TOOL_CACHE_TTL`, `MCP_MAX_CHAT_ITERATIONS`, `MCP_MAX_CALLS_PER_STEP` and `LOG_LEVEL`.

        A variable that is empty counts as not set.

        Args:
            environ: Variables by name; None for `read_environment()`.

        Raises:
            ConfigError: A value is not valid; the error names the variable and the valid values.
        """
        values = read_environment() if environ is None else environ
        formats, levels = get_args(ResultFormat), get_args(LogLevel)
        return cls(
            tool_result_format=_setting(
                values, "TOOL_RESULT_FORMAT", _choice(formats), cls.tool_result_format, f"one of {', '.join(formats)}"
            ),
            tool_cache_ttl=_setting(
                values, "MCP_TOOL_CACHE_TTL", _seconds, cls.tool_cache_ttl, "a number of seconds (0 = never expires)"
            ),
            max_chat_iterations=_setting(
                values, "MCP_MAX_CHAT_ITERATIONS", _count, cls.max_chat_iterations, "a whole number, 1 or more"
            ),
            max_calls_per_step=_setting(
                values, "MCP_MAX_CALLS_PER_STEP", _count, cls.max_calls_per_step, "a whole number, 1 or more"
            ),
            log_level=_setting(values, "LOG_LEVEL", _level, cls.log_level, f"one of {', '.join(levels)}"),
        )


def _setting(values: Mapping[str, str], name: str, read: Callable[[str], Any], default: Any, valid: str) -> Any:
    """Read a variable, or return the default if it is not set. No local variable holds the value when this raises."""
    if not values.get(name, "").strip():
        return default
    value = read(values[name].strip())
    if value is _INVALID:
        raise ConfigError(f"The environment variable {name} must be {valid}.", key=name)
    return value


def _choice(valid: tuple[str, ...]) -> Callable[[str], Any]:
    words = {word.casefold(): word for word in valid}
    return lambda given: words.get(given.casefold(), _INVALID)


def _level(given: str) -> Any:
    return _choice(get_args(LogLevel))(_OTHER_LEVELS.get(given.upper(), given))


def _seconds(given: str) -> Any:
    try:
        seconds = float(given)
    except ValueError:
        return _INVALID
    if not math.isfinite(seconds):
        return _INVALID
    return seconds if seconds > 0 else None


def _count(given: str) -> Any:
    return int(given) if re.fullmatch("0*[1-9][0-9]{0,8}", given) else _INVALID
