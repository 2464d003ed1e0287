"""What is public without Python: config keys, magics, commands and their JSON, HTTP, files."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "casual_mcp_nb"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = " (required)"


def errors() -> Iterator[tuple[str, str]]:
    """List the public errors with the kind that programs read, and what each is as well."""
    package = importlib.import_module(PACKAGE)
    for name in package.__all__:
        value = getattr(package, name)
        if isinstance(value, type) and issubclass(value, Exception):
            if isinstance(kind := getattr(value, "kind", None), str):
                yield f"{name}.kind", f" = {kind}"
            for base in value.__mro__[1:]:
                if base not in (Exception, BaseException, object):
                    yield f"{name} caught as {base.__name__}", ""


def event_kinds() -> Iterator[tuple[str, str]]:
    """List the kinds of events, as files, the HTTP API and `--json` name them."""
    from casual_mcp_nb.conversation.event import Event

    for kind in get_args(Event):
        for field in fields(kind):
            yield f"{kind.__name__}.{field.name}", ""


# JSON Schema, of the config and of the HTTP API.


def fields_of_schema(
    schema: Mapping[str, Any], root: Mapping[str, Any], name: str = ""
) -> Iterator[tuple[str, str]]:
    """List the fields of a schema by path, with their types.

    `*` stands for names that the user gives, `[]` for the items of a list, and `<User>` for one of
    several kinds of objects.
    """
    schema = _resolved(schema, root)
    for key, value in schema.get("properties", {}).items():
        path = f"{name}.{key}".removeprefix(".")
        required = REQUIRED if key in schema.get("required", ()) else ""
        yield path, f": {_type_of(value, root)}{required}"
        yield from _inside(value, root, path)


def _inside(
    value: Mapping[str, Any], root: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    alternatives = [_resolved(each, root) for each in _alternatives(value)]
    objects = [each for each in alternatives if "properties" in each]
    for each in alternatives:
        title = f"<{each['title']}>" if len(objects) > 1 and "properties" in each else ""
        yield from fields_of_schema(each, root, f"{path}{title}")
        for part, suffix in ((each.get("additionalProperties"), ".*"), (each.get("items"), "[]")):
            if isinstance(part, Mapping):
                yield from _inside(part, root, f"{path}{suffix}")


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        found = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())] or [schema]


def _type_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    names: dict[str, None] = {}
    for each in _alternatives(schema):
        each = _resolved(each, root)
        if len(_alternatives(each)) > 1:
            names |= dict.fromkeys(_type_of(each, root).split(" | "))
        elif "enum" in each or "const" in each:
            names |= {json.dumps(value): None for value in each.get("enum", [each.get("const")])}
        else:
            names[each.get("type", "any")] = None
    return " | ".join(names)


def config_keys() -> Iterator[tuple[str, str]]:
    """List the keys of a config file."""
    from casual_mcp_nb.base.config import Config

    schema = Config.model_json_schema()
    return fields_of_schema(schema, schema)


def http_requests() -> Iterator[tuple[str, str]]:
    """List the routes, and the fields of what they take."""
    document = _openapi()
    for route, operation in _operations(document):
        yield route, ""
        for content in operation.get("requestBody", {}).get("content", {}).values():
            for path, said in fields_of_schema(content["schema"], document):
                yield f"{route} {path}", said


def http_responses() -> Iterator[tuple[str, str]]:
    """List the fields of what the routes answer, by status and media type."""
    document = _openapi()
    for route, operation in _operations(document):
        for status, response in operation["responses"].items():
            for media_type, content in response.get("content", {}).items():
                answer = f"{route} {status} {media_type}"
                yield answer, ""
                # Every failure has the same fields, so they are listed for one of them.
                if status in ("200", "400"):
                    for path, said in _inside(content["schema"], document, answer):
                        yield path.replace(f"{answer}.", f"{answer} ", 1), said


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


def _openapi() -> dict[str, Any]:
    from casual_mcp_nb import ServeLimits
    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.serve.api import api
    from casual_mcp_nb.serve.turns import ServedTurns

    config = Config()
    chat = McpToolChat.from_config(config)
    turns = ServedTurns(chat, ServeLimits(), {}, config.secrets())
    document = api(turns, list, needs_token=True).openapi()
    assert isinstance(document, dict)
    return document


# Magics and commands.


def magics() -> Iterator[tuple[str, str]]:
    """List the commands of `%mcp` with their options, and the options of cells."""
    from casual_mcp_nb.magics.args import CELL_OPTIONS
    from casual_mcp_nb.magics.commands import COMMANDS, SAME
    from casual_mcp_nb.magics.extension import McpMagics

    for name, command in COMMANDS.items():
        yield f"%mcp {name}", f": {command.usage}" if command.usage else ""
        for option in re.findall(r"--[a-z][a-z-]*", command.usage):
            yield f"%mcp {name} {option}", ""
    for name, meant in SAME.items():
        yield f"%mcp {name}", f" = %mcp {meant}"
    for name, flag in CELL_OPTIONS.items():
        yield f"%%mcp {name}", f": {flag.takes}" if flag.takes else ""
    for name in ("%%mcp write", "%%mcp_config"):
        yield name, ""
    for name in McpMagics.class_own_traits(config=True):
        yield f"%config McpMagics.{name}", ""


def commands() -> Iterator[tuple[str, str]]:
    """List the commands with their arguments and options."""
    from casual_mcp_nb.cli.app import app

    for name in sorted(app):
        if not name.startswith("-"):
            yield from _command(f"{app.name[0]} {name}", app[name])


def _command(title: str, command: Any) -> Iterator[tuple[str, str]]:
    yield title, ""
    for name in sorted(command):
        if not name.startswith("-"):
            yield from _command(f"{title} {name}", command[name])
    if command.default_command is None:
        return
    for argument in command.assemble_argument_collection():
        if argument.names == ("*",):
            continue
        required = REQUIRED if argument.required else ""
        for name in argument.names:
            yield f"{title} {name}", required


OF_USERS = {
    *("arguments", "by_server", "by_tool", "config", "entry", "input_schema", "output_schema"),
    *("servers", "structured"),
}
"""Fields of JSON whose own fields are names that a user or a server gave."""

CONFIG = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "text": {"bundled": "text", "transport": "in-process", "defer_loading": True},
    },
    "tool_discovery": {"enabled": True},
    "tool_sets": {"numbers": {"description": "Numbers", "servers": {"math": True}}},
}
CASES = "- message: What is 2 + 3?\n  calls: [math:evaluate_expression]\n"
RUN = {
    "": "tools -c no-such.json",
    "audit": "audit c.json",
    "call": "call math:add a=1 b=2 -c c.json",
    "chat": "chat 'What is 2 + 3?' -c c.json",
    "check": "check c.json",
    "clients": "clients -c c.json",
    "doctor": "doctor c.json",
    "doctor --tool": "doctor c.json --connect --tool math:add",
    "evaluate": "evaluate cases.yaml -c c.json",
    "migrate-config": "migrate-config c.json --dry-run",
    "models": "models -c c.json",
    "search": "search words -c c.json",
    "search --why": "search words --why -c c.json",
    "search --why-not": "search words --why-not math:add -c c.json",
    "servers": "servers -c c.json",
    "tool": "tool math:add -c c.json",
    "tools": "tools -c c.json",
    "toolsets": "toolsets -c c.json",
    "toolsets show": "toolsets show numbers -c c.json",
}
"""A command line for each kind of JSON, by its name in the list. The first one fails, and all fail
alike.
"""


def json_of_commands() -> Iterator[tuple[str, str]]:
    """List the fields of what commands write with `--json`."""
    from casual_mcp_nb.base.mcp import Account
    from casual_mcp_nb.cli.app import main
    from casual_mcp_nb.config.registry_entry import FoundServer

    # What these two say depends on the computer and on the network.
    for name, kind in (("accounts", Account), ("find", FoundServer)):
        for field in fields(kind):
            yield f"{name} --json [].{field.name}", ""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("c.json").write_text(json.dumps(CONFIG))
        Path("cases.yaml").write_text(CASES)
        for name, line in RUN.items():
            written = io.StringIO()
            with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
                main([*shlex.split(line), "--json"])
            # The last line: of a turn its end, since the events before it have their own area.
            for path, said in _shape(json.loads(written.getvalue().splitlines()[-1])):
                yield f"{name} --json {path}".strip(), said


def _shape(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """List the fields of a JSON value by path."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in OF_USERS:
        for key, inner in value.items():
            inside = f"{path}.{key}".removeprefix(".")
            yield inside, ""
            yield from _shape(inner, inside)
    elif isinstance(value, list):
        for inner in value:
            yield from _shape(inner, f"{path}[]")


# What is installed, and what is written.


def entry_points() -> Iterator[tuple[str, str]]:
    """List what other programs find by name: commands, plugins, groups, applications."""
    from casual_mcp_nb.providers.registry import GROUP

    for name in PROJECT["scripts"]:
        yield f"command {name}", ""
    for group, names in PROJECT["entry-points"].items():
        for name in names:
            yield f"{group} {name}", ""
    yield f"group {GROUP}", ""
    yield f"python -m {PACKAGE}", ""
    yield f"python -m {PACKAGE}.bundled", ""
    yield f"ASGI application {PACKAGE}.main:app", ""
    yield f"%load_ext {PACKAGE}", ""
    plugin = ast.parse((ROOT / PACKAGE / "pytest_plugin.py").read_text(encoding="utf-8"))
    for node in ast.walk(plugin):
        if isinstance(node, ast.FunctionDef):
            if any(ast.unparse(each) == "pytest.fixture" for each in node.decorator_list):
                yield f"pytest fixture {node.name}", ""
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if called == "addoption":
                yield f"pytest option {words[0]}", ""
            elif called == "addinivalue_line":
                yield f"pytest marker {re.split('[(:]', words[1])[0]}", ""


def environment_variables() -> Iterator[tuple[str, str]]:
    """List the environment variables of this package, and those with providers' keys."""
    from casual_mcp_nb.providers.registry import specs

    for path in (ROOT / PACKAGE).rglob("*.py"):
        for name in re.findall(r'"(MCP_[A-Z_]+|LOG_LEVEL|TOOL_RESULT_FORMAT)"', path.read_text()):
            yield name, ""
    for spec in specs().values():
        if spec.key_variable:
            yield spec.key_variable, ""
    yield "{CLIENT_NAME}_API_KEY", ""


FORMATS = {
    "conversation": "conversation.codec:CONVERSATION.version",
    "cassette": "conversation.codec:CASSETTE.version",
    "player": "conversation.codec:PLAYER.version",
    "saved conversations (SQLite)": "conversation.codec:STORE.version",
    "runs of cases": "experiments.results_file:RUNS.version",
    "accepted configs": "config.trust:VERSION",
    "sign-ins to servers": "servers.accounts:_VERSION",
    "vectors of texts": "discovery.vector_file:VERSION",
}
"""The formats of files with their versions, each where its version is defined."""


def formats() -> Iterator[tuple[str, str]]:
    """List the formats of files with the versions that are written."""
    for name, place in FORMATS.items():
        module, _, path = place.partition(":")
        value: Any = importlib.import_module(f"{PACKAGE}.{module}")
        for part in path.split("."):
            value = getattr(value, part)
        yield name, f" = {value}"


def bundled_servers() -> Iterator[tuple[str, str]]:
    """List the servers that a config can name as `bundled`."""
    from casual_mcp_nb.bundled.registry import BUNDLED

    for name in BUNDLED:
        yield name, ""


def extras() -> Iterator[tuple[str, str]]:
    """List the extras that can be installed."""
    for name in PROJECT["optional-dependencies"]:
        yield name, ""


AREAS: Mapping[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "Errors": errors,
    "Events": event_kinds,
    "Config keys": config_keys,
    "Magics": magics,
    "Commands": commands,
    "JSON of commands": json_of_commands,
    "HTTP requests": http_requests,
    "HTTP responses": http_responses,
    "Entry points": entry_points,
    "Extras": extras,
    "Environment variables": environment_variables,
    "Formats of files": formats,
    "Bundled servers": bundled_servers,
}
