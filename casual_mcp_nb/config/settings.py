"""The package's settings, from environment variables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from casual_mcp_nb.base.content import ResultFormat
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.errors import ConfigError

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_OTHER_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_INVALID = object()


@dataclass(frozen=True)
class Settings:
    """Package settings from environment variables.

    Args:
        tool_result_format: How the model sees a tool result: alone, with the tool name, or with the
            arguments too.
        tool_cache_ttl: How long a server's tool list is cached, in seconds. None means it never
            expires.
        max_chat_iterations: How many model calls a turn may make.
        log_level: The logging level. It applies where `LOG_LEVEL` is set, and to services.
        max_calls_per_step: How many tool calls in one answer are run.
    """

    tool_result_format: ResultFormat = "result"
    tool_cache_ttl: float | None = 30.0
    max_chat_iterations: int = 50
    log_level: LogLevel = "INFO"
    max_calls_per_step: int = 64

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `TOOL_RESULT_FORMAT`, `MCP_TOOL_CACHE_TTL`, `MCP_MAX_CHAT_ITERATIONS`,
        `MCP_MAX_CALLS_PER_STEP` and `LOG_LEVEL`.

        An empty variable counts as not set. A ConfigError names the variable and the valid values.
        """
        values = read_environment() if environ is None else environ
        fields: dict[str, Any] = {}
        for field, (name, read, valid) in _VARIABLES.items():
            if not values.get(name, "").strip():
                continue
            # No local variable holds the text when this raises.
            fields[field] = read(values[name].strip())
            if fields[field] is _INVALID:
                raise ConfigError(f"The environment variable {name} must be {valid}.", key=name)
        return cls(**fields)


def _choice(valid: tuple[str, ...], given: str) -> Any:
    words = {word.casefold(): word for word in valid}
    return words.get(given.casefold(), _INVALID)


def _level(given: str) -> Any:
    return _choice(get_args(LogLevel), _OTHER_LEVELS.get(given.upper(), given))


def _seconds(given: str) -> Any:
    try:
        seconds = float(given)
    except ValueError:
        return _INVALID
    if not math.isfinite(seconds):
        return _INVALID
    if seconds > 0:
        return seconds
    return None


def _count(given: str) -> Any:
    if re.fullmatch("0*[1-9][0-9]{0,8}", given):
        return int(given)
    return _INVALID


_FORMATS = get_args(ResultFormat)
_COUNTED = "a whole number, 1 or more"
_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "tool_result_format": (
        "TOOL_RESULT_FORMAT",
        partial(_choice, _FORMATS),
        f"one of {', '.join(_FORMATS)}",
    ),
    "tool_cache_ttl": ("MCP_TOOL_CACHE_TTL", _seconds, "a number of seconds (0 = never expires)"),
    "max_chat_iterations": ("MCP_MAX_CHAT_ITERATIONS", _count, _COUNTED),
    "max_calls_per_step": ("MCP_MAX_CALLS_PER_STEP", _count, _COUNTED),
    "log_level": ("LOG_LEVEL", _level, f"one of {', '.join(get_args(LogLevel))}"),
}
"""For each field, its variable, how to read that, and what it must be."""
