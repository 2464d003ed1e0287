"""Files that are not as they should be, and files that are."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.shops import shop

from casual_mcp_nb.base.config import Config, ExcludeSpec
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.quick import server_fields
from casual_mcp_nb.errors import ConfigError


def write(folder: Path, content: object, name: str = "config.json") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(
            content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8"
        )
    return path


def refusal(source: Any, environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(source, environ=environ or {})
    return caught.value


BROKEN_FILES = {
    "empty": (b"", None, None, "empty"),
    "only a byte order mark": (b"\xef\xbb\xbf \n", None, None, "empty"),
    "not JSON": (b'{\n  "servers": {,}\n}', 2, 15, "not JSON"),
    "cut off": (b'{"servers": {', 1, 14, "not JSON"),
    "a list": (b"[]", 1, 1, "must be a JSON object"),
    "a number": (b"42", 1, 1, "must be a JSON object"),
    "not UTF-8": (b'{\n "a": "\xff"}', 2, 8, "not UTF-8"),
    "UTF-16": ('{"servers": {}}'.encode("utf-16"), 1, 1, "not UTF-8"),
    "nested without end": (b'{"a":' * 100_000, 1, 1, "nested too deeply"),
}


@pytest.mark.fault(76)
@pytest.mark.parametrize(
    ("content", "line", "column", "text"), BROKEN_FILES.values(), ids=BROKEN_FILES.keys()
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: Path, content: bytes, line: int | None, column: int | None, text: str
) -> None:
    path = write(tmp_path, content)
    error = refusal(path)
    assert (error.path, error.line, error.column) == (str(path), line, column)
    assert text in str(error)
    assert str(path) in str(error)


@pytest.mark.fault(76)
def test_a_missing_file_is_refused_with_the_name_that_was_meant(tmp_path: Path) -> None:
    write(tmp_path, {}, "casual_mcp_config.json")
    error = refusal(tmp_path / "casual_mcp_confg.json")
    assert "no such file" in str(error)
    assert "Did you mean 'casual_mcp_config.json'?" in str(error)


@pytest.mark.fault(76)
def test_a_folder_is_refused_as_a_folder(tmp_path: Path) -> None:
    assert "this is a folder" in str(refusal(tmp_path))


@pytest.mark.fault(76)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in str(refusal(tmp_path / "pipe"))


@pytest.mark.fault(76)
@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_a_config_error(name: str) -> None:
    refusal(name)


@pytest.mark.fault(76)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_utf_8_is_read_with_and_without_a_byte_order_mark(tmp_path: Path, mark: bytes) -> None:
    path = write(tmp_path, mark + '{"servers": {"zeit": {"command": "größe"}}}'.encode())
    assert load_config(str(path), environ={}).servers["zeit"].command == "größe"


def test_a_text_of_json_is_not_taken_for_a_path() -> None:
    error = refusal('{"clients": {"a": {"api_key": "sk-planted"}}}')
    assert "JSON text" in str(error)
    assert "planted" not in str(error)


SERVER = {"command": "uvx"}
WRONG_FIELDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "misspelt key": ({"servers": {"t": {"comand": "x"}}}, "servers.t", "Did you mean 'command'?"),
    "misspelt section": ({"server": {}}, "server", "unknown key. Did you mean 'servers'?"),
    "unlike any key": (
        {"clients": {"c": {"provider": "openai", "zzz": 1}}},
        "clients.c.zzz",
        "Available: 'api_key'",
    ),
    "provider that does not exist": (
        {"clients": {"c": {"provider": "telepathy"}}},
        "clients.c.provider",
        "'openai', 'openai-responses'",
    ),
    "command and url": (
        {"servers": {"t": SERVER | {"url": "https://a"}}},
        "servers.t",
        "found command and url",
    ),
    "no way to reach it": ({"servers": {"t": {}}}, "servers.t", "found none of them"),
    "headers of a command": (
        {"servers": {"t": SERVER | {"headers": {"A": "b"}}}},
        "servers.t",
        "headers cannot be used",
    ),
    "other address": (
        {"servers": {"t": {"url": "ftp://a"}}},
        "servers.t",
        "url must start with http://",
    ),
    "transport that does not fit": (
        {"servers": {"t": SERVER | {"transport": "sse"}}},
        "servers.t",
        "is one of stdio",
    ),
    "unknown transport": (
        {"servers": {"t": SERVER | {"transport": "pigeon"}}},
        "servers.t.transport",
        "'stdio', 'http'",
    ),
    "unknown provider": (
        {"clients": {"c": {"provider": "acme"}}},
        "clients.c.provider",
        "'openai', 'openai-responses'",
    ),
    "negative time-out": (
        {"servers": {"t": SERVER | {"call_timeout": -1}}},
        "servers.t.call_timeout",
        "greater than 0",
    ),
    "no time at all": (
        {"servers": {"t": SERVER | {"init_timeout": 0}}},
        "servers.t.init_timeout",
        "greater than 0",
    ),
    "not a number": (
        {"servers": {"t": SERVER | {"call_timeout": float("nan")}}},
        "servers.t.call_timeout",
        "finite",
    ),
    "endless time-out": (
        {"servers": {"t": SERVER | {"total_timeout": float("inf")}}},
        "servers.t.total_timeout",
        "finite",
    ),
    "text for a flag": (
        {"servers": {"t": SERVER | {"defer_loading": "yes"}}},
        "servers.t.defer_loading",
        "true or false",
    ),
    "text for a list": (
        {"servers": {"t": SERVER | {"args": "-m x"}}},
        "servers.t.args",
        "must be a list",
    ),
    "list in a list": (
        {"servers": {"t": SERVER | {"args": ["-p", ["8080"]]}}},
        "servers.t.args[1]",
        "must be a string",
    ),
    "list for a server": ({"servers": {"t": []}}, "servers.t", "must be an object"),
    "list for the servers": ({"servers": [1]}, "servers", "must be an object"),
    "lone surrogate": (
        {"servers": {"t": {"command": "\ud800"}}},
        "servers.t.command",
        "valid Unicode",
    ),
    "lone surrogate in a name": (
        {"servers": {"\udfff": SERVER}},
        "servers.\\udfff",
        "valid Unicode",
    ),
    "no search results": (
        {"tool_discovery": {"max_search_results": 0}},
        "tool_discovery.max_search_results",
        "equal to 1",
    ),
    "other discovery key": (
        {"tool_discovery": {"defer": True}},
        "tool_discovery.defer",
        "Did you mean 'defer_all'",
    ),
    "no client": (
        {"models": {"m": {"client": "x", "model": "y"}}},
        "models.m.client",
        "there is no such client",
    ),
    "no model": (
        {"clients": {"c": {"provider": "offline"}}, "models": {"m": {"client": "c"}}},
        "models.m.model",
        "is required",
    ),
    "toolset of the wrong type": (
        {"servers": {"time": SERVER}, "tool_sets": {"s": {"servers": {"time": 3}}}},
        "tool_sets.s.servers.time",
        "must be true, a list of tool names",
    ),
    "toolset with a misspelt key": (
        {"servers": {"time": SERVER}, "tool_sets": {"s": {"servers": {"time": {"excludes": []}}}}},
        "tool_sets.s.servers.time.exclude",
        "tool_sets.s.servers.time.excludes: unknown key. Did you mean 'exclude'?",
    ),
    "a part of a toolset that is of the wrong type": (
        {"servers": {"time": SERVER}, "tool_sets": {"s": {"servers": {"time": ["now", 3]}}}},
        "tool_sets.s.servers.time[1]",
        "must be a string",
    ),
    "a name and its value": (
        {"servers": {"s": {"url": "https://a.example", "headers": {"é": []}}}},
        "servers.s.headers.é",
        "is not a valid header name\n",
    ),
    "an empty text": (
        {
            "clients": {"c": {"provider": "offline"}},
            "models": {"m": {"client": "c", "model": "x", "stop": [""]}},
        },
        "models.m.stop[0]",
        "must have at least 1 character",
    ),
    "neither of two types": (
        {"tool_discovery": {"enabled": "on"}},
        "tool_discovery.enabled",
        "must be true or false or 'auto'",
    ),
    "neither false nor a text": ({"store": 3}, "store", "must be false or a string"),
    "an object for a value": ({"store": {"path": "x"}}, "store", "must be false or a string"),
    "misspelt key two levels down": (
        {"tool_discovery": {"embedding": {"modle": "x"}}},
        "tool_discovery.embedding.modle",
        "Did you mean 'model'",
    ),
    "hosted tools of the wrong type": (
        {
            "clients": {"c": {"provider": "offline"}},
            "models": {"m": {"client": "c", "model": "x", "hosted_tools": [{"a": 1}]}},
        },
        "models.m.hosted_tools",
        "a list of names, or an object",
    ),
}


@pytest.mark.fault(77)
@pytest.mark.parametrize(("data", "key", "text"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys())
def test_a_wrong_field_is_refused_with_its_key_path(
    data: dict[str, Any], key: str, text: str
) -> None:
    error = refusal(data)
    assert error.key == key
    assert text in str(error)
    assert "pydantic" not in str(error)
    assert "errors.pydantic.dev" not in str(error)


@pytest.mark.fault(77)
def test_a_wrong_field_is_found_in_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{\n  "servers": {\n    "a": {"command": "x",\n      "args": ["ok", "{\\"[", [5]]}\n  }\n}',
    )
    error = refusal(path)
    assert (error.path, error.line, error.column) == (str(path), 4, 30)
    assert error.key == "servers.a.args[2]"
    assert str(error).startswith(f"{path}:4:30: servers.a.args[2]: ")
    assert "string" in str(error)


@pytest.mark.fault(77)
def test_a_duplicate_server_is_reported_once_at_its_second_position(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"servers": {\n "a": {"command": "x", "args": []},\n "a": {"command": "y", "args": []}}}',
    )
    error = refusal(path)
    assert (error.line, error.column, error.key) == (3, 2, "servers.a")
    assert "twice" in str(error)
    assert str(error).count("servers.a") == 1


@pytest.mark.fault(77)
def test_the_same_server_under_both_names_of_the_section_is_refused() -> None:
    error = refusal({"servers": {"a": SERVER}, "mcpServers": {"a": SERVER}})
    assert error.key == "mcpServers.a"


@pytest.mark.fault(77)
def test_all_problems_are_reported_together_in_file_order(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "clients": {"c": {"provider": "acme"}},
            "models": {"m": {"client": "nobody", "model": "x"}},
            "mcpServers": {
                "a": {"comand": "x"},
                "b": {"command": "x", "url": "https://y"},
                "c": {"command": "x", "args": ["${UNSET_ONE}"]},
                "d": {"type": "pigeon", "url": "${UNSET_TWO}"},
            },
        },
    )
    error = refusal(path)
    *problems, hint = str(error).splitlines()
    assert hint == error.hint
    keys = [line.split(": ")[1] for line in problems]
    assert keys == [
        "clients.c.provider",
        "models.m.client",
        "mcpServers.a",
        "mcpServers.b",
        "mcpServers.c.args[0]",
        "mcpServers.d.type",
        "mcpServers.d.url",
    ]
    lines = [int(line.split(":")[1]) for line in problems]
    assert lines == sorted(lines)
    assert (error.line, error.key) == (lines[0], keys[0])


def test_the_file_of_casual_mcp_loads(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "namespace_tools": False,
            "clients": {
                "lm": {
                    "provider": "openai",
                    "base_url": "http://localhost:1234/v1",
                    "api_key": "k",
                    "timeout": 5,
                }
            },
            "models": {
                "small": {
                    "client": "lm",
                    "model": "gpt-4.1-nano",
                    "template": "concise",
                    "temperature": 0.2,
                }
            },
            "servers": {
                "math": {
                    "command": "python",
                    "args": ["math.py"],
                    "env": {"PORT": 80, "ON": True},
                    "transport": "stdio",
                },
                "weather": {
                    "url": "http://localhost:5050/mcp",
                    "headers": {"X": "y"},
                    "defer_loading": True,
                },
            },
            "tool_sets": {
                "all": {
                    "description": "d",
                    "servers": {"math": True, "weather": {"exclude": ["alerts"]}},
                }
            },
            "tool_discovery": {"enabled": True, "defer_all": False, "max_search_results": 3},
        },
    )
    config = load_config(path, environ={})
    assert config.models["small"].temperature == 0.2
    assert [config.servers["math"].env[name].get_secret_value() for name in ("PORT", "ON")] == [
        "80",
        "true",
    ]
    assert config.servers["weather"].defer_loading
    assert config.tool_sets["all"].servers == {
        "math": True,
        "weather": ExcludeSpec(exclude=("alerts",)),
    }
    assert config.tool_discovery.max_search_results == 3
    assert config.notes == ("namespace_tools is ignored.",)
    assert load_config({"tool_discovery": None}, environ={}).tool_discovery.enabled is False


def test_a_file_of_another_host_loads_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        tmp_path,
        {
            "globalShortcut": "Ctrl+Space",
            "mcpServers": {
                "files": {
                    "command": "npx",
                    "args": ["-y", "fs"],
                    "disabled": False,
                    "autoApprove": ["read"],
                    "timeout": 60,
                },
                "web": {
                    "type": "streamableHttp",
                    "url": "https://a/mcp",
                    "alwaysAllow": [],
                    "description": "d",
                },
                "wind": {"serverUrl": "https://b/sse", "type": "sse"},
                "gem": {"httpUrl": "https://c/mcp", "trust": True},
                "off": {"command": "x", "disabled": True, "env": {"KEY": "${NOT_SET_ANYWHERE}"}},
                "out": {"command": "x", "enabled": False},
            },
            "tool_sets": {"some": {"servers": {"files": True, "off": True}}},
        },
    )
    with caplog.at_level(logging.WARNING):
        config = load_config(path, environ={})
    assert list(config.servers) == ["files", "web", "wind", "gem", "out"]
    assert [name for name, server in config.servers.items() if not server.enabled] == ["out"]
    assert config.servers["web"].transport == "streamable-http"
    assert (config.servers["wind"].url, config.servers["wind"].transport) == (
        "https://b/sse",
        "sse",
    )
    assert config.tool_sets["some"].servers == {"files": True}
    assert len(caplog.records) == 1
    for note in (
        "globalShortcut is ignored.",
        "mcpServers.files: autoApprove, timeout ignored.",
        (
            "mcpServers.off is disabled and left out: the environment variable NOT_SET_ANYWHERE is"
            " not set."
        ),
        "mcpServers.out is disabled, so it is not started.",
    ):
        assert note in config.notes
        assert note in caplog.text


@pytest.mark.fault(77)
def test_a_misspelt_section_in_a_host_file_gets_a_warning_with_the_close_match() -> None:
    (note,) = load_config({"mcpServers": {}, "toolsets": {}}, environ={}).notes
    assert note.startswith("toolsets")
    assert "Did you mean 'tool_sets'?" in note


def test_a_flag_of_another_host_must_be_a_flag() -> None:
    assert (
        refusal({"mcpServers": {"a": {"command": "x", "disabled": "no"}}}).key
        == "mcpServers.a.disabled"
    )


def test_relative_paths_start_in_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    here = {"command": "./serve", "cwd": "data", "roots": ["notes", str(tmp_path)]}
    servers = {"a": here, "b": {"command": "uvx", "cwd": str(tmp_path)}, "c": SERVER}
    path = write(tmp_path, {"servers": servers})
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(Path("..") / path.name, environ={})
    assert config.folder is not None
    assert config.folder.samefile(tmp_path)
    assert Path(config.servers["a"].cwd or "").parent.samefile(tmp_path)
    assert Path(config.servers["a"].command or "").is_absolute()
    notes, elsewhere = map(Path, config.servers["a"].roots)
    assert (notes.name, notes.parent.samefile(tmp_path), elsewhere) == ("notes", True, tmp_path)
    assert (config.servers["b"].command, config.servers["b"].cwd) == ("uvx", str(tmp_path))
    assert config.servers["c"].cwd is None


def test_plain_objects_are_left_as_they_are() -> None:
    data: dict[str, Any] = {
        "mcpServers": {"a": {"command": "x", "type": "stdio", "disabled": False, "args": ["${A}"]}}
    }
    before = json.dumps(data)
    config = load_config(data, environ={"A": "value"})
    assert json.dumps(data) == before
    assert config.servers["a"].args == ("value",)
    assert (config.folder, config.path) == (None, None)


def test_a_config_that_is_loaded_again_is_the_same() -> None:
    config = load_config(
        {"servers": {"a": {"command": "x", "args": ["${A}"]}}}, environ={"A": "value"}
    )
    assert load_config(config, environ={}) == config
    assert load_config(Config(), environ={}) == Config()


def test_a_program_in_place_of_a_config_is_told_how_to_start_it(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("import fastmcp\n")
    with pytest.raises(ConfigError, match=r"Session\.quick\(servers=\['.*server\.py'\]\)"):
        load_config(tmp_path / "server.py")


@pytest.mark.parametrize(
    "source",
    ["http://127.0.0.1:8000/mcp?key=s3cr3t", f"{sys.executable} -m shop s3cr3t", ["time"], shop()],
)
def test_a_server_in_place_of_a_config_is_told_how_to_start_it(source: Any) -> None:
    with pytest.raises(ConfigError, match=r"Session\.quick\(servers=\[") as caught:
        load_config(source)
    assert "s3cr3t" not in str(caught.value)


def test_the_line_that_starts_a_program_with_a_space_in_its_path_works(tmp_path: Path) -> None:
    file = tmp_path / "my server.py"
    file.write_text("import fastmcp\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    (line,) = re.findall(r"servers=(\[.+\])\)", caught.value.hint)
    (server,) = ast.literal_eval(line)
    _, fields = server_fields(server)
    assert fields["args"] == [str(file)]


def test_a_name_that_no_file_can_have_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError):
        load_config("x" * 300 + ".py")
