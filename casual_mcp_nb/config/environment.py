"""The environment, read once at the edge."""

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

ToolResultFormat = Literal["result", "function_result", "function_args_result"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_INVALID = object()


class Environment(Mapping[str, str]):
    """Variables by name, looked up when they are asked for. Its repr says nothing, so that no traceback shows them.

    No `dict`, and it keeps none in a variable of a method that can fail: tools that print the locals of a frame look into it.

    Args:
        layers: Where to look, the first one first.
    """

    __slots__ = ("_layers",)

    def __init__(self, *layers: Mapping[str, str]) -> None:
        self._layers = layers

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

    def behind(self, other: Mapping[str, str]) -> Environment:
        """Return this environment with what another adds to it."""
        return Environment(*self._layers, other)


def read_environment(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Environment:
    """Read the environment and what `.env` files add to it: one in `folder`, then one in the working directory.

    What is set already wins over the files, and the first file over the second. The process's environment is not changed.

    Args:
        folder: The config file's folder, if there is one.
        environ: The environment; None for the process's own.

    Raises:
        ConfigError: A `.env` file cannot be read.
    """
    if not isinstance(environ, Mapping | None):
        raise ConfigError("environ must be a mapping of names to texts.")
    merged = Environment(os.environ if environ is None else environ)
    for place in dict.fromkeys((folder or Path.cwd(), Path.cwd())):
        path = place / ".env"
        if path.is_file():
            merged = merged.behind(env_entries(path, merged))
    return merged


def env_entries(path: Path, environ: Mapping[str, str]) -> Environment:
    """Read what an env file sets, each `${NAME}` in it replaced from the environment and the entries above.

    Args:
        path: The file.
        environ: The environment.

    Raises:
        ConfigError: It cannot be read.
    """
    from dotenv import dotenv_values

    # dotenv would look variables up in the process's environment, which need not be the one that was given.
    return Environment(expanded(dotenv_values(stream=io.StringIO(read_text(path)), interpolate=False), environ))


@dataclass(frozen=True)
class Settings:
    """What the environment says about how the package behaves.

    Args:
        tool_result_format: What the model reads of a call: its result, with the function's name, or with its arguments too.
        tool_cache_ttl: How many seconds a list of tools is used before it is fetched again; None for ever.
        max_chat_iterations: How often the model is called in one turn at most.
        log_level: What is logged.
        max_calls_per_step: How many calls of tools in one answer of the model are run at most.
    """

    tool_result_format: ToolResultFormat = "result"
    tool_cache_ttl: float | None = 30.0
    max_chat_iterations: int = 50
    log_level: LogLevel = "WARNING"
    max_calls_per_step: int = 64

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `TOOL_RESULT_FORMAT`, `MCP_TOOL_CACHE_TTL`, `MCP_MAX_CHAT_ITERATIONS`, `MCP_MAX_CALLS_PER_STEP` and `LOG_LEVEL`.

        A variable that is empty counts as not set.

        Args:
            environ: Variables by name; None for `read_environment()`.

        Raises:
            ConfigError: A value is not valid; the error names the variable and what is.
        """
        values = read_environment() if environ is None else environ
        formats, levels = get_args(ToolResultFormat), get_args(LogLevel)
        return cls(
            tool_result_format=_setting(
                values, "TOOL_RESULT_FORMAT", _choice(formats), cls.tool_result_format, f"one of {', '.join(formats)}"
            ),
            tool_cache_ttl=_setting(
                values, "MCP_TOOL_CACHE_TTL", _seconds, cls.tool_cache_ttl, "a number of seconds, 0 for ever"
            ),
            max_chat_iterations=_setting(
                values, "MCP_MAX_CHAT_ITERATIONS", _count, cls.max_chat_iterations, "a whole number from 1 on"
            ),
            max_calls_per_step=_setting(
                values, "MCP_MAX_CALLS_PER_STEP", _count, cls.max_calls_per_step, "a whole number from 1 on"
            ),
            log_level=_setting(values, "LOG_LEVEL", _choice(levels), cls.log_level, f"one of {', '.join(levels)}"),
        )


def _setting(values: Mapping[str, str], name: str, read: Callable[[str], Any], default: Any, valid: str) -> Any:
    """Read a variable, or return the default where it is not set. The text itself is in no local when this fails."""
    if not values.get(name, "").strip():
        return default
    value = read(values[name].strip())
    if value is _INVALID:
        raise ConfigError(f"The environment variable {name} must be {valid}.", key=name)
    return value


def _choice(valid: tuple[str, ...]) -> Callable[[str], Any]:
    words = {word.casefold(): word for word in valid}
    return lambda given: words.get(given.casefold(), _INVALID)


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
