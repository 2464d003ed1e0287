"""Settings of the package in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.errors import ConfigError


def test_without_variables_the_defaults_hold() -> None:
    assert Settings.from_environ({}) == Settings(
        tool_result_format="result",
        tool_cache_ttl=30.0,
        max_chat_iterations=50,
        max_calls_per_step=64,
        log_level="INFO",
    )
    assert Settings.from_environ({"MCP_TOOL_CACHE_TTL": " ", "LOG_LEVEL": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        (
            "TOOL_RESULT_FORMAT",
            "function_args_result",
            "tool_result_format",
            "function_args_result",
        ),
        ("MCP_TOOL_CACHE_TTL", "1.5", "tool_cache_ttl", 1.5),
        ("MCP_TOOL_CACHE_TTL", "0", "tool_cache_ttl", None),
        ("MCP_TOOL_CACHE_TTL", "-1", "tool_cache_ttl", None),
        ("MCP_MAX_CHAT_ITERATIONS", "007", "max_chat_iterations", 7),
        ("MCP_MAX_CALLS_PER_STEP", "8", "max_calls_per_step", 8),
        ("LOG_LEVEL", "debug", "log_level", "DEBUG"),
        ("LOG_LEVEL", "warn", "log_level", "WARNING"),
        ("LOG_LEVEL", "FATAL", "log_level", "CRITICAL"),
    ],
)
def test_a_variable_sets_its_field(name: str, text: str, field: str, value: Any) -> None:
    assert getattr(Settings.from_environ({name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "valid"),
    [
        ("TOOL_RESULT_FORMAT", "planted", "one of result, function_result, function_args_result"),
        ("MCP_TOOL_CACHE_TTL", "planted", "a number of seconds"),
        ("MCP_TOOL_CACHE_TTL", "inf", "a number of seconds"),
        ("MCP_TOOL_CACHE_TTL", "nan", "a number of seconds"),
        ("MCP_MAX_CHAT_ITERATIONS", "0", "a whole number, 1 or more"),
        ("MCP_MAX_CHAT_ITERATIONS", "9" * 30, "a whole number"),
        ("MCP_MAX_CHAT_ITERATIONS", "2.5", "a whole number"),
        ("LOG_LEVEL", "planted", "one of DEBUG, INFO"),
    ],
)
def test_a_bad_value_is_refused_with_the_valid_ones(name: str, text: str, valid: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be {valid}") as caught:
        Settings.from_environ({name: text})
    assert caught.value.key == name
    assert "planted" not in str(caught.value)


def test_the_env_file_of_the_working_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("MCP_MAX_CHAT_ITERATIONS=3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_MAX_CHAT_ITERATIONS", raising=False)
    assert Settings.from_environ().max_chat_iterations == 3
