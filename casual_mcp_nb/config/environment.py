"""The environment, read once at the edge."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from casual_mcp_nb.config.document import read_text
from casual_mcp_nb.config.variables import expanded
from casual_mcp_nb.errors import ConfigError

ToolResultFormat = Literal["result", "function_result", "function_args_result"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def read_environment(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment with what `.env` files add to it: one in `folder`, then one in the working directory.

    What is set already wins over the files, and the first file over the second. The process's environment is not changed.

    Args:
        folder: The config file's folder, if there is one.
        environ: The environment; None for the process's own.

    Raises:
        ConfigError: A `.env` file cannot be read.
    """
    merged = dict(os.environ if environ is None else environ)
    for place in dict.fromkeys((folder or Path.cwd(), Path.cwd())):
        path = place / ".env"
        if path.is_file():
            merged = {**_entries(path, merged), **merged}
    return merged


def _entries(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    from dotenv import dotenv_values

    # dotenv would look variables up in the process's environment, which need not be the one that was given.
    return expanded(dotenv_values(stream=io.StringIO(read_text(path)), interpolate=False), environ)


@dataclass(frozen=True)
class Settings:
    """What the environment says about how the package behaves.

    Args:
        tool_result_format: What the model reads of a call: its result, with the function's name, or with its arguments too.
        tool_cache_ttl: How many seconds a list of tools is used before it is fetched again; None for ever.
        max_chat_iterations: How often the model is called in one turn at most.
        max_calls_per_step: How many calls of tools in one answer of the model are run at most.
        log_level: What is logged.
    """

    tool_result_format: ToolResultFormat = "result"
    tool_cache_ttl: float | None = 30.0
    max_chat_iterations: int = 50
    max_calls_per_step: int = 64
    log_level: LogLevel = "WARNING"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read `TOOL_RESULT_FORMAT`, `MCP_TOOL_CACHE_TTL`, `MCP_MAX_CHAT_ITERATIONS`, `MCP_MAX_CALLS_PER_STEP` and `LOG_LEVEL`.
        Empty is not set.

        Args:
            environ: Variables by name; None for `read_environment()`.

        Raises:
            ConfigError: A value is not valid; the error names the variable and what is.
        """
        values = read_environment() if environ is None else environ
        return cls(
            tool_result_format=cast(
                ToolResultFormat, _choice(values, "TOOL_RESULT_FORMAT", get_args(ToolResultFormat), cls.tool_result_format)
            ),
            tool_cache_ttl=_cache_ttl(values, "MCP_TOOL_CACHE_TTL", cls.tool_cache_ttl),
            max_chat_iterations=_count(values, "MCP_MAX_CHAT_ITERATIONS", cls.max_chat_iterations),
            max_calls_per_step=_count(values, "MCP_MAX_CALLS_PER_STEP", cls.max_calls_per_step),
            log_level=cast(LogLevel, _choice(values, "LOG_LEVEL", get_args(LogLevel), cls.log_level)),
        )


def _choice(values: Mapping[str, str], name: str, valid: tuple[str, ...], default: str) -> str:
    given = values.get(name, "").strip()
    if not given:
        return default
    for word in valid:
        if word.casefold() == given.casefold():
            return word
    raise _invalid(name, f"one of {', '.join(valid)}")


def _cache_ttl(values: Mapping[str, str], name: str, default: float | None) -> float | None:
    given = values.get(name, "").strip()
    if not given:
        return default
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise _invalid(name, "a number of seconds, 0 for ever")
    return seconds if seconds > 0 else None


def _count(values: Mapping[str, str], name: str, default: int) -> int:
    given = values.get(name, "").strip()
    if not given:
        return default
    if not re.fullmatch("0*[1-9][0-9]{0,8}", given):
        raise _invalid(name, "a whole number from 1 on")
    return int(given)


def _invalid(name: str, valid: str) -> ConfigError:
    return ConfigError(f"The environment variable {name} must be {valid}.", key=name)
