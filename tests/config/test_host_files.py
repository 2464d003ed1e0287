"""The files of other MCP hosts, as those hosts write them: the meaning of each here, and the
warnings about the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import Config, ServerConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.registry_entry import servers_of
from casual_mcp_nb.errors import ConfigError


def loaded(folder: Path, text: str, name: str = "mcp.json", **environ: str) -> Config:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_config(path, environ=environ)


def env_of(server: ServerConfig) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in server.env.items()}


def headers_of(server: ServerConfig) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in server.headers.items()}


@pytest.mark.defect("D12")
def test_comments_and_trailing_commas_are_read_and_texts_with_slashes_stay(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """{
          // the servers
          "mcpServers": {
            "web": {"url": "https://host//a/*b*/c", }, /* a comment, with "quotes" */
            "local": {"command": "x", "args": ["// no comment", "a,]", "\\\\", ], },
          },
        }""",
    )
    assert config.servers["web"].url == "https://host//a/*b*/c"
    assert config.servers["local"].args == ("// no comment", "a,]", "\\")


@pytest.mark.defect("D12")
@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{\n // c\n "servers": {,}\n}', 3, 14),
        ('{ /* never closed\n "servers": {}}', 1, 3),
        ('{"servers": {}, /* c */ ,}', 1, 25),
        ('{\n// c\n"servers": {"a": {"command": 5}}, // c\n}', 3, 19),
    ],
)
def test_an_error_in_a_file_with_comments_has_its_place(
    tmp_path: Path, text: str, line: int, column: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, "config.json")
    assert (caught.value.line, caught.value.column) == (line, column)


VS_CODE = """{
  // Use IntelliSense to learn about possible attributes.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
    {"type": "pickString", "id": "region", "description": "Region", "options": ["eu", {"label": "US", "value": "us"}]},
  ],
  "servers": {
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "--region=${input:region}", "${workspaceFolder}${/}data", "${userHome}"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "HOST": "${env:THE_HOST}"},
      "envFile": "${workspaceFolder}/.env.mcp",
      "dev": {"watch": "src/**/*.ts", "debug": {"type": "node"}},
    },
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/", "gallery": true, "version": "1.0"},
  },
}"""


@pytest.mark.defect("D12")
def test_vs_code_mcp_json(tmp_path: Path) -> None:
    (tmp_path / ".env.mcp").write_text("LOG=debug\nHOST=from-file\n")
    config = loaded(
        tmp_path,
        VS_CODE,
        ".vscode/mcp.json",
        PERPLEXITY_KEY="secret-key-1",
        REGION="eu",
        THE_HOST="local",
        HOME="/home/me",
    )
    server = config.servers["perplexity"]
    assert server.args[2:4] == ("--region=eu", f"{tmp_path}/data")
    assert server.args[4] == str(Path.home())
    assert env_of(server) == {"PERPLEXITY_API_KEY": "secret-key-1", "HOST": "local", "LOG": "debug"}
    assert "secret-key-1" in config.secrets()
    assert config.servers["github"].transport == "http"
    assert any("perplexity: dev ignored" in note for note in config.notes)


def test_a_prompt_for_an_input_says_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "token"

    monkeypatch.setattr("getpass.getpass", answer)
    file = tmp_path / "mcp.json"
    wanted = {"id": "key", "type": "promptString", "description": "Password", "password": True}
    entry = {"command": "npx", "env": {"KEY": "${input:key}"}}
    file.write_text(json.dumps({"inputs": [wanted], "servers": {"docs": entry}}))
    load_config(file)
    assert [question.startswith("The config asks for") for question in asked] == [True]


@pytest.mark.defect("D12")
def test_an_input_that_cannot_be_prompted_for_names_its_variable(tmp_path: Path) -> None:
    (tmp_path / ".env.mcp").write_text("")
    config = loaded(tmp_path, VS_CODE, ".vscode/mcp.json", REGION="eu", THE_HOST="x")
    assert "PERPLEXITY_KEY" in config.unusable["perplexity"]
    assert config.unusable["perplexity"].startswith("env.PERPLEXITY_API_KEY")
    assert list(config.servers) == ["github"]


@pytest.mark.defect("D12")
def test_an_env_file_that_is_missing_is_named_with_its_place(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, VS_CODE, ".vscode/mcp.json", PERPLEXITY_KEY="k", REGION="eu", THE_HOST="x"
    )
    assert config.unusable["perplexity"].startswith("envFile")
    assert list(config.servers) == ["github"]


SHAPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Claude Desktop": (
        "claude_desktop_config.json",
        (
            '{"globalShortcut": "", "mcpServers": {"s": {"command": "npx", "args": ["-y", "pkg"],'
            ' "env": {"A": "b"}}}}'
        ),
        {"command": "npx", "args": ("-y", "pkg")},
    ),
    "Claude Code": (
        ".mcp.json",
        (
            '{"mcpServers": {"s": {"type": "http", "url": "${BASE:-https://a}/mcp", "headers":'
            ' {"X": "y"}, "alwaysLoad": true}}}'
        ),
        {"url": "https://a/mcp", "transport": "http", "always_load": True},
    ),
    "VS Code settings": (
        ".vscode/settings.json",
        (
            '{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"s": {"type": "stdio",'
            ' "command": "uvx"}}}, }'
        ),
        {"command": "uvx", "transport": "stdio"},
    ),
    "VS Code settings with a dotted key": (
        ".vscode/settings.json",
        '{"mcp.servers": {"s": {"command": "uvx"}}}',
        {"command": "uvx"},
    ),
    "Cursor": (
        ".cursor/mcp.json",
        (
            '{"mcpServers": {"s": {"url": "https://a", "headers": {"K": "${env:KEY}"}, "auth":'
            ' {"CLIENT_ID": "x"}}}}'
        ),
        {"url": "https://a", "auth": None},
    ),
    "Windsurf": (
        "mcp_config.json",
        '{"mcpServers": {"s": {"serverUrl": "https://a/mcp", "disabledTools": ["drop"]}}}',
        {"url": "https://a/mcp", "exclude_tools": ("drop",)},
    ),
    "Gemini CLI": (
        ".gemini/settings.json",
        (
            '{"theme": "x", "mcpServers": {"s": {"httpUrl": "https://a", "headers": {"A": "$KEY"},'
            ' "trust": true, "timeout": 5, "includeTools": ["read", "write(x)"], "excludeTools":'
            ' ["write"]}}}'
        ),
        {"url": "https://a", "include_tools": ("read",)},
    ),
    "Copilot CLI": (
        "mcp-config.json",
        (
            '{"mcpServers": {"s": {"type": "local", "command": "x", "args": [], "tools": ["*"],'
            ' "deferTools": "never"}}}'
        ),
        {"command": "x", "transport": "stdio", "include_tools": None, "always_load": True},
    ),
    "Copilot CLI with some tools": (
        "mcp-config.json",
        (
            '{"mcpServers": {"s": {"type": "stdio", "command": "x", "tools": ["one"], "deferTools":'
            ' "auto"}}}'
        ),
        {"include_tools": ("one",), "always_load": False, "defer_loading": False},
    ),
    "Zed": (
        ".zed/settings.json",
        (
            '{"theme": "One", "context_servers": {"s": {"source": "custom", "command": "x", "args":'
            ' ["a"], "env": {}}}}'
        ),
        {"command": "x", "args": ("a",)},
    ),
    "older Zed": (
        "settings.json",
        (
            '{"context_servers": {"s": {"command": {"path": "x", "args": ["a"], "env": {"A": "b"}},'
            ' "settings": {}}}}'
        ),
        {"command": "x", "args": ("a",)},
    ),
    "opencode": (
        "opencode.jsonc",
        (
            '{"$schema": "x", "model": "m", "mcp": {"s": {"type": "local", "command": ["npx", "-y",'
            ' "p"], "enabled": true, "environment": {"A": "{env:KEY}"}, "timeout": 5000}}}'
        ),
        {"command": "npx", "args": ("-y", "p"), "transport": "stdio"},
    ),
    "opencode, remote": (
        "opencode.json",
        (
            '{"mcp": {"s": {"type": "remote", "url": "https://a", "headers": {"A": "Bearer'
            ' {env:KEY}"}, "oauth": {}}}}'
        ),
        {"url": "https://a", "transport": None},
    ),
    "opencode 2": (
        "opencode.json",
        '{"mcp": {"servers": {"s": {"type": "local", "command": ["x", "y"], "cwd": "/"}}}}',
        {"command": "x", "args": ("y",), "cwd": "/"},
    ),
    "fastmcp": (
        "fastmcp.json",
        (
            '{"mcpServers": {"s": {"command": "x", "transport": "stdio", "keep_alive": false,'
            ' "include_tags": ["a"], "tools": {"t": {"enabled": false}, "u": {"name": "v"}}}}}'
        ),
        {"command": "x", "exclude_tools": ("t",)},
    ),
    "fastmcp without a section": (
        "s.json",
        '{"s": {"command": "x"}, "t": {"url": "https://a"}}',
        {"command": "x"},
    ),
    "jupyter-ai": (
        "mcp_settings.json",
        (
            '{"mcp_servers": [{"name": "s", "command": "x", "args": ["a"], "env": [{"name": "A",'
            ' "value": "b"}]}]}'
        ),
        {"command": "x", "args": ("a",)},
    ),
    "jupyter-ai, remote": (
        ".jupyter/mcp_settings.json",
        (
            '{"mcp_servers": [{"type": "http", "name": "s", "url": "https://a/mcp", "headers":'
            ' [{"name": "X", "value": "y"}]}]}'
        ),
        {"url": "https://a/mcp", "transport": "http"},
    ),
    "marimo": (
        "marimo.toml",
        (
            '[display]\ntheme = "dark"\n[mcp]\npresets = ["context7"]\n[mcp.mcpServers.s]\ncommand'
            ' = "x"\nargs = ["a"]\n'
        ),
        {"command": "x", "args": ("a",)},
    ),
    "Codex": (
        "config.toml",
        (
            'model = "m"\n[mcp_servers.s]\nurl = "https://a"\nbearer_token_env_var ='
            ' "KEY"\nenabled_tools = ["a"]\nstartup_timeout_sec = 7\n'
        ),
        {"url": "https://a", "include_tools": ("a",), "init_timeout": 7.0},
    ),
    "Cline": (
        "cline_mcp_settings.json",
        (
            '{"mcpServers": {"s": {"type": "streamableHttp", "url": "https://a", "disabled": false,'
            ' "autoApprove": ["a"]}}}'
        ),
        {"url": "https://a", "transport": "streamable-http"},
    ),
    "another spelling": ("x.json", '{"McpServers": {"s": {"command": "x"}}}', {"command": "x"}),
    "yet another spelling": (
        "x.json",
        '{"mcp_servers": {"s": {"command": "x"}}}',
        {"command": "x"},
    ),
}


@pytest.mark.defect("D12", "E6")
@pytest.mark.parametrize(("name", "text", "fields"), SHAPES.values(), ids=SHAPES)
def test_the_file_of_a_host_loads(
    tmp_path: Path, name: str, text: str, fields: dict[str, Any]
) -> None:
    server = loaded(tmp_path, text, name, KEY="the-key").servers["s"]
    assert {field: getattr(server, field) for field in fields} == fields
    assert server.enabled


@pytest.mark.defect("D12", "E6")
@pytest.mark.parametrize("shape", ["opencode", "opencode, remote", "Gemini CLI", "Cursor", "Codex"])
def test_the_variables_of_a_host_are_replaced(tmp_path: Path, shape: str) -> None:
    name, text, _ = SHAPES[shape]
    server = loaded(tmp_path, text, name, KEY="the-key").servers["s"]
    values = [*env_of(server).values(), *headers_of(server).values()]
    assert "the-key" in " ".join([*values, server.auth.get_secret_value() if server.auth else ""])


REGISTRY = {
    "npm": (
        {
            "registryType": "npm",
            "identifier": "@a/b",
            "version": "1.2",
            "transport": {"type": "stdio"},
        },
        ("npx", ("-y", "@a/b@1.2")),
    ),
    "pypi": (
        {"registry_type": "pypi", "identifier": "a-b", "version": "3", "runtime_hint": "uvx"},
        ("uvx", ("a-b==3",)),
    ),
    "oci": (
        {
            "registryType": "oci",
            "identifier": "docker.io/a/b:1.0",
            "environmentVariables": [{"name": "KEY", "isRequired": True}],
        },
        ("docker", ("run", "-i", "--rm", "-e", "KEY", "docker.io/a/b:1.0")),
    ),
    "arguments": (
        {
            "registryType": "npm",
            "identifier": "x",
            "packageArguments": [
                {
                    "type": "positional",
                    "value": "{dir}",
                    "variables": {"dir": {"isRequired": True, "description": "a folder"}},
                },
                {"type": "named", "name": "--mode", "default": "local"},
                {"type": "named", "name": "--port", "format": "number"},
                {"type": "positional", "valueHint": "extra"},
            ],
        },
        ("npx", ("-y", "x", "/data", "--mode", "local")),
    ),
}


@pytest.mark.defect("E6")
@pytest.mark.parametrize(("package", "command"), REGISTRY.values(), ids=REGISTRY)
def test_a_server_json_of_a_registry_is_a_server(
    tmp_path: Path, package: dict[str, Any], command: tuple[str, tuple[str, ...]]
) -> None:
    entry = {
        "$schema": "x",
        "name": "io.github.me/my-server",
        "description": "d",
        "version": "1",
        "packages": [package],
    }
    config = loaded(
        tmp_path, json.dumps(entry), "server.json", KEY="the-key", MY_SERVER_DIR="/data"
    )
    server = config.servers["my-server"]
    assert (server.command, server.args) == command
    assert env_of(server) == ({"KEY": "the-key"} if "environmentVariables" in package else {})


@pytest.mark.defect("E6")
def test_a_remote_server_json_prompts_for_required_and_names_optional_values(
    tmp_path: Path,
) -> None:
    headers = [
        {"name": "X-Key", "isRequired": True, "isSecret": True},
        {"name": "X-Region", "default": "eu"},
        {"name": "X-More"},
    ]
    remote = {"type": "streamable-http", "url": "https://{tenant}.a/mcp", "headers": headers}
    remote["variables"] = {"tenant": {"default": "t"}}
    entry = {"name": "a/b", "remotes": [remote, {"type": "sse", "url": "https://a/sse"}]}
    config = loaded(tmp_path, json.dumps(entry), "server.json", B_X_KEY="the-key")
    server = config.servers["b"]
    assert (server.url, server.transport) == ("https://t.a/mcp", None)
    assert headers_of(server) == {"X-Key": "the-key", "X-Region": "eu"}
    assert any("X-More" in note for note in config.notes)


@pytest.mark.defect("E6")
def test_a_server_json_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can be used here"):
        loaded(
            tmp_path,
            '{"name": "a/b", "packages": [{"registryType": "mcpb", "identifier": "https://x"}]}',
        )


HOSTILE = {
    "another runner": {
        "runtimeHint": "bash",
        "runtimeArguments": [{"type": "named", "name": "-c", "value": "id"}],
    },
    "options of the runner": {
        "runtimeArguments": [
            {"type": "named", "name": "--registry", "value": "https://evil.example"}
        ]
    },
    "a name with a command": {"identifier": "x; rm -rf ~"},
    "another registry": {"registryBaseUrl": "https://evil.example"},
    "a variable of the runner": {
        "environmentVariables": [{"name": "NODE_OPTIONS", "value": "--require /tmp/x.js"}]
    },
    "a version with a command": {"version": "1 --call=id"},
}


@pytest.mark.defect("Q5")
@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_a_file_and_a_listing_are_read_by_one_strict_reader(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1",
        "transport": {"type": "stdio"},
        **fields,
    }
    entry = {"name": "a/b", "packages": [package]}
    (listed,) = servers_of(entry, "", None, local=False)
    assert listed.problem
    with pytest.raises(ConfigError, match="can be used here"):
        loaded(tmp_path, json.dumps(entry), "server.json")


@pytest.mark.defect("Q5")
def test_a_runner_of_the_entry_is_not_started(tmp_path: Path) -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1",
        "runtimeHint": "bash",
        "transport": {"type": "stdio"},
    }
    config = loaded(tmp_path, json.dumps({"name": "a/b", "packages": [package]}), "server.json")
    assert config.servers["b"].command == "npx"


@pytest.mark.defect("Q5")
def test_a_package_of_nuget_is_started_with_its_arguments(tmp_path: Path) -> None:
    package = {
        "registryType": "nuget",
        "identifier": "A.B",
        "version": "1",
        "packageArguments": [{"type": "positional", "value": "x"}],
    }
    config = loaded(tmp_path, json.dumps({"name": "a/b", "packages": [package]}), "server.json")
    assert config.servers["b"].args == ("A.B@1", "--yes", "--", "x")


OFF: dict[str, tuple[dict[str, Any], dict[str, bool], tuple[str, ...]]] = {
    "disabled": (
        {"mcpServers": {"a": {"command": "x", "disabled": True}, "b": {"command": "x"}}},
        {"a": False, "b": True},
        (),
    ),
    "enabled": (
        {"mcp": {"a": {"type": "local", "command": ["x"], "enabled": False}}},
        {"a": False},
        (),
    ),
    "Gemini's allowed": (
        {"mcp": {"allowed": ["b"]}, "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}},
        {"a": False, "b": True},
        (),
    ),
    "Gemini's excluded": (
        {"mcp": {"excluded": ["a"]}, "mcpServers": {"a": {"command": "x"}}},
        {"a": False},
        (),
    ),
    "Claude's disabled": (
        {"disabledMcpServers": ["a"], "mcpServers": {"a": {"command": "x"}}},
        {"a": False},
        (),
    ),
    "Claude's denied server": (
        {"permissions": {"deny": ["mcp__a", "Bash"]}, "mcpServers": {"a": {"command": "x"}}},
        {"a": False},
        (),
    ),
    "Claude's denied tool": (
        {"permissions": {"deny": ["mcp__a__drop"]}, "mcpServers": {"a": {"command": "x"}}},
        {"a": True},
        ("drop",),
    ),
    "opencode's tools": (
        {
            "tools": {"a_drop*": False, "b*": False},
            "mcp": {name: {"type": "remote", "url": "https://a"} for name in "ab"},
        },
        {"a": True, "b": False},
        ("drop*",),
    ),
    "opencode's tools, all": (
        {"tools": {"*": False}, "mcp": {"a": {"type": "remote", "url": "https://a"}}},
        {"a": False},
        (),
    ),
    "Zed's profile": (
        {
            "agent": {
                "profiles": {
                    "write": {"context_servers": {"a": {"tools": {"drop": False, "read": True}}}}
                }
            },
            "context_servers": {"a": {"command": "x"}},
        },
        {"a": True},
        ("drop",),
    ),
    "both spellings": (
        {"mcpServers": {"a": {"command": "x", "disabledTools": ["one"], "excludeTools": ["two"]}}},
        {"a": True},
        ("one", "two"),
    ),
}


@pytest.mark.defect("D12")
@pytest.mark.parametrize(("data", "enabled", "excluded"), OFF.values(), ids=OFF)
def test_nothing_that_a_host_switched_off_comes_back_on(
    data: dict[str, Any], enabled: dict[str, bool], excluded: tuple[str, ...]
) -> None:
    config = load_config(data, environ={})
    assert {name: server.enabled for name, server in config.servers.items()} == enabled
    assert set(config.servers["a"].exclude_tools) == set(excluded)
    assert all(
        server.enabled or any(f"{name} is disabled" in n for n in config.notes)
        for name, server in config.servers.items()
    )


@pytest.mark.defect("D12")
def test_a_server_that_only_its_host_can_start_is_left_out_with_a_note() -> None:
    servers = {
        "a": {"source": "extension", "settings": {}},
        "b": {"type": "ws", "url": "wss://x"},
        "c": {"command": "x"},
    }
    config = load_config(
        {"context_servers": servers, "tool_sets": {"t": {"servers": {"a": True, "c": True}}}},
        environ={},
    )
    assert list(config.servers) == ["c"]
    assert config.tool_sets["t"].servers == {"c": True}
    assert sum("left out" in note for note in config.notes) == 2


@pytest.mark.defect("D12")
def test_an_unknown_key_of_a_server_is_a_note_with_the_nearest_valid_one() -> None:
    config = load_config(
        {"servers": {"a": {"command": "x", "call_timout": 5, "flavour": 1}}}, environ={}
    )
    (note,) = config.notes
    assert "servers.a" in note
    assert "'call_timeout'" in note
    assert "flavour" in note


@pytest.mark.defect("D12")
@pytest.mark.parametrize(
    "key", ["aproval", "exclude_tool", "excludedTools", "disable", "include_tool", "pin_tool"]
)
def test_a_misspelt_key_that_would_switch_something_off_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"mcpServers": {"a": {"command": "x", key: True}}}, environ={})
    assert caught.value.key == f"mcpServers.a.{key}"


@pytest.mark.defect("D12")
def test_a_command_line_is_taken_apart_and_an_address_is_a_url() -> None:
    config = load_config(
        {
            "servers": {
                "a": {"command": "env python3 -c 'print(1)'"},
                "b": {"command": "https://host/mcp"},
                "c": {"command": "no-such-program at all"},
                "d": {"command": "env python3", "args": ["x"]},
            }
        },
        environ={},
    )
    a, b, c, d = config.servers.values()
    assert (a.command, a.args) == ("env", ("python3", "-c", "print(1)"))
    assert (b.command, b.url) == (None, "https://host/mcp")
    assert (c.command, d.command) == ("no-such-program at all", "env python3")
    assert len(config.notes) == 2


@pytest.mark.defect("E8")
def test_an_sse_server_is_noted_as_deprecated() -> None:
    config = load_config({"servers": {"a": {"url": "https://a", "transport": "sse"}}}, environ={})
    assert any("deprecated" in note for note in config.notes)


@pytest.mark.defect("D14")
def test_include_and_exclude_together_are_an_error_in_our_own_form() -> None:
    server = {"command": "x", "include_tools": ["a"], "exclude_tools": ["b"]}
    with pytest.raises(ConfigError, match="cannot be used together"):
        load_config({"servers": {"a": server}}, environ={})


@pytest.mark.defect("D12")
def test_a_duplicate_section_is_refused_at_the_duplicate_server() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            {"mcpServers": {"a": {"command": "x"}}, "context_servers": {"a": {"command": "y"}}},
            environ={},
        )
    assert caught.value.key == "context_servers.a"


def test_endless_nesting_is_a_config_error() -> None:
    nested: Any = "x"
    for _ in range(500):
        nested = {"a": nested}
    with pytest.raises(ConfigError, match="nested"):
        load_config({"mcpServers": {"a": {"command": "x", "metadata": nested}}}, environ={})


@pytest.mark.defect("K4")
def test_claude_codes_project_servers_are_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {
        folder: {"mcpServers": {"a": {"command": folder}}, "disabledMcpServers": ["b"]}
        for folder in ("here", "there")
    }
    projects = {str(tmp_path / folder): entry for folder, entry in entries.items()}
    text = json.dumps(
        {"mcpServers": {name: {"command": "all"} for name in "abc"}, "projects": projects}
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    servers = loaded(tmp_path, text, ".claude.json").servers
    assert {name: server.command for name, server in servers.items()} == {
        "a": "here",
        "b": "all",
        "c": "all",
    }
    assert [name for name, server in servers.items() if not server.enabled] == ["b"]
    monkeypatch.chdir(tmp_path)
    servers = loaded(tmp_path, text, ".claude.json").servers
    assert {server.command for server in servers.values()} == {"all"}


@pytest.mark.defect("K4")
def test_the_name_in_a_list_entry_is_not_reported_as_ignored(tmp_path: Path) -> None:
    _, text, _ = SHAPES["jupyter-ai"]
    assert loaded(tmp_path, text, "mcp_settings.json").notes == ()
