"""Describe the public names of a package of casual-mcp's shape as JSON: `python describe_package.py
casual_mcp`.

Run by casual-mcp's Python for casual-mcp, and by ours for ours, so it imports nothing but the
package and what both have.

- `modules`: every module, and for each of its public names what it is: parameters, fields, members,
  bases.
- `results`: what the same calls return, as kinds and field names.
- `dumps`: what `model_dump` makes of configs.
- `commands`: of casual-mcp, the exit code and the words of commands that read the config of
  `results`, and one of before 1.0.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import pkgutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SERVER = """
import json, sys
schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
value = {"type": "object", "properties": {"result": {"type": "integer"}}, "x-fastmcp-wrap-result": True}
tools = [
    {"name": "add", "description": "Add two numbers.", "inputSchema": schema, "outputSchema": value},
    {"name": "words", "description": "Say some words.", "inputSchema": {"type": "object", "properties": {}}},
]
for line in sys.stdin:
    message = json.loads(line)
    params = message.get("params", {})
    answers = {
        "initialize": lambda: {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "sums", "version": "1"},
        },
        "tools/list": lambda: {"tools": tools},
        "tools/call": lambda: {
            "content": [{"type": "text", "text": str(sum(params["arguments"].values()))}],
            "structuredContent": {"result": sum(params["arguments"].values())},
        },
        "ping": lambda: {},
    }
    if "id" in message:
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        known = message["method"] in answers
        answer = {"result": answers[message["method"]]()} if known else unknown
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""A server without libraries, which starts in no time."""


def described_modules(package: str) -> dict[str, Any]:
    """Describe the public names of every module of a package."""
    return {name: described_module(package, name) for name in module_names(package)}


def module_names(package: str) -> list[str]:
    """List the modules of a package, without its name; the package itself is empty."""
    root = importlib.import_module(package)
    return [
        "",
        *(
            each.name.removeprefix(f"{package}.")
            for each in pkgutil.walk_packages(root.__path__, f"{package}.")
        ),
    ]


def described_module(package: str, name: str, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Describe the public names of one module.

    Args:
        package: The package.
        name: The module, without the package's name.
        names: Only these, where they exist; None for those that it defines, and those that an
            `__init__` passes on.
    """
    module = importlib.import_module(f"{package}.{name}".rstrip("."))
    wanted = public_names(Path(str(module.__file__))) if names is None else names
    return {
        each: described(getattr(module, each)) for each in sorted(wanted) if hasattr(module, each)
    }


def public_names(file: Path) -> set[str]:
    """List the names that a module's source binds at its top, without those it only imports for
    itself.
    """
    names: set[str] = set()
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names.update(target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names.add(statement.target.id)
        elif (
            isinstance(statement, ast.ImportFrom)
            and file.stem == "__init__"
            and (statement.module or ".") != "__future__"
        ):
            names.update(alias.asname or alias.name for alias in statement.names)
    return {name for name in names if not name.startswith("_") and name != "version"}


def described(value: Any) -> dict[str, Any]:
    """Describe the kind of a name."""
    if inspect.ismodule(value):
        return {"kind": "module"}
    if isinstance(value, type):
        return described_class(value)
    if inspect.isfunction(value):
        return {"kind": "function", **callable_shape(value)}
    return {
        "kind": "value",
        "type": type(value).__name__,
        **({"value": value} if isinstance(value, str | int | float) else {}),
    }


def described_class(kind: type) -> dict[str, Any]:
    """Describe the constructor, fields, public members and standard bases of a class."""
    if hasattr(kind, "model_rebuild"):
        kind.model_rebuild()
    ours = (
        [each.name for each in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else getattr(kind, "_fields", ())
    )
    members = {name: described_member(kind, name) for name in own_members(kind)}
    members |= {name: {"kind": "property"} for name in getattr(kind, "model_computed_fields", {})}
    bases = sorted(base.__name__ for base in kind.__mro__[:-1] if base.__module__ == "builtins")
    return {
        "kind": "class",
        **({} if issubclass(kind, BaseException) else callable_shape(kind)),
        "fields": sorted({*getattr(kind, "model_fields", ()), *ours}),
        "members": members,
        "bases": bases,
    }


def own_members(kind: type) -> set[str]:
    """List the public members that a class, or one of its bases in the same package, defines."""
    top = kind.__module__.partition(".")[0]
    names = {
        name
        for base in kind.__mro__
        if base.__module__.partition(".")[0] == top
        for name in vars(base)
    }
    return {
        name
        for name in names
        if not name.startswith("_") and not name.startswith("model_") and hasattr(kind, name)
    }


def described_member(kind: type, name: str) -> dict[str, Any]:
    """Describe the kind of a member of a class."""
    value = inspect.getattr_static(kind, name)
    if isinstance(value, staticmethod | classmethod):
        return {"kind": type(value).__name__, **callable_shape(getattr(kind, name))}
    if inspect.isfunction(value):
        return {"kind": "method", **callable_shape(value)}
    return (
        {"kind": "property"}
        if isinstance(value, property) or hasattr(value, "func")
        else {"kind": "field"}
    )


def callable_shape(value: Any) -> dict[str, Any]:
    """List the parameters of a callable, each with its kind and default, and check whether it is a
    coroutine function.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return {"parameters": {}, "async": False}
    parameters = {
        name: {"kind": parameter.kind.name, "default": default_of(parameter.default)}
        for name, parameter in signature.parameters.items()
        if name != "self"
    }
    return {"parameters": parameters, "async": inspect.iscoroutinefunction(value)}


def default_of(value: Any) -> str | None:
    """Format a default as text; None if there is none."""
    if value is inspect.Parameter.empty:
        return None
    # Pydantic shows a default that a factory makes as this.
    return "<factory>" if "factory" in repr(value) else repr(value)


def shape(value: Any, depth: int = 0) -> Any:
    """Describe the kind of a value: containers by their items, objects by the names of their public
    fields.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return type(value).__name__
    if isinstance(value, dict):
        return {"dict": {str(key): shape(each, depth + 1) for key, each in value.items()}}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return {type(value).__name__: [shape(each, depth + 1) for each in value]}
    if hasattr(type(value), "model_fields"):
        return {"object": sorted(type(value).model_fields)}
    if dataclasses.is_dataclass(value):
        return {"object": sorted(field.name for field in dataclasses.fields(value))}
    if isinstance(value, tuple):
        return {"tuple": [shape(each, depth + 1) for each in value]}
    return type(value).__name__


class Script:
    """A client of casual-llm's protocol that answers from a list."""

    name = "script"
    provider = "script"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def _chat(self, model: str, messages: Any, options: Any) -> Any:
        from casual_llm import Usage

        return self.answers.pop(0), Usage(prompt_tokens=10, completion_tokens=5)

    async def close(self) -> None:
        """Have nothing to close."""


def write_config(folder: Path) -> Path:
    """Write a config of 1.0, and one of before; return the file of the first."""
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    file = folder / "casual_mcp_config.json"
    servers = {
        "sums": {
            "command": sys.executable,
            "args": [str(folder / "server.py")],
            "defer_loading": True,
        }
    }
    data = {
        "clients": {
            "desk": {
                "provider": "openai",
                "base_url": "http://127.0.0.1:9/v1",
                "api_key": "sk-local",
            },
            "slow": {"provider": "ollama", "base_url": "http://127.0.0.1:9", "timeout": 120},
        },
        "models": {
            "small": {"client": "desk", "model": "m-1", "temperature": 0.2},
            "large": {"client": "slow", "model": "m-2", "template": "short"},
        },
        "servers": servers,
        "tool_sets": {"few": {"description": "Few", "servers": {"sums": ["add"]}}},
    }
    file.write_text(json.dumps(data), encoding="utf-8")
    (folder / "before").mkdir()
    legacy = {"models": {"small": {"provider": "openai", "model": "m-1"}}, "servers": servers}
    (folder / "before" / file.name).write_text(json.dumps(legacy), encoding="utf-8")
    return file


def told_by_commands(package: str, folder: Path) -> dict[str, Any]:
    """Run each command of casual-mcp that only reads, and return its exit code and the cells of the
    table that it prints.
    """
    from rich.console import Console

    module = importlib.import_module(f"{package}.cli")
    described: dict[str, Any] = {}
    for folder_name in ("", "before", "nowhere"):
        (folder / folder_name).mkdir(exist_ok=True)
        for command in ("clients", "models", "servers", "tools"):
            output = io.StringIO()
            module.console = Console(file=output, width=500)
            try:
                with contextlib.chdir(folder / folder_name):
                    module.app([command], standalone_mode=False)
            except Exception:
                described[f"{folder_name}/{command}"] = [1, []]
                continue
            rows = [
                line.strip("│ ") for line in output.getvalue().splitlines() if line.startswith("│")
            ]
            cells = [cell.strip() for row in rows for cell in row.split("│")]
            described[f"{folder_name}/{command}"] = [0, [cell for cell in cells if cell]]
    return described


async def described_results(package: str, folder: Path) -> dict[str, Any]:
    """Describe the shapes of the results of documented calls, of errors too."""

    def module(name: str) -> Any:
        return importlib.import_module(f"{package}.{name}".rstrip("."))

    file = write_config(folder)
    root, models = module(""), module("models")
    config = root.load_config(file)
    shapes: dict[str, Any] = {"load_config": shape(config)}
    for section in ("clients", "models", "servers", "tool_sets"):
        shapes[f"config.{section}"] = shape(next(iter(getattr(config, section).values())))
    discovery = models.ToolDiscoveryConfig(enabled=True, defer_all=True, max_search_results=1)
    client = root.load_mcp_client(config)
    async with client:
        tools = await client.list_tools()
        called = await client.call_tool(tools[0].name, {"a": 1, "b": 2})
    shapes["client.list_tools"] = {"list": [type(tools).__name__, len(tools)]}
    shapes["client.call_tool"] = {
        name: shape(getattr(called, name)) for name in ("data", "structured_content", "is_error")
    }
    cache = root.ToolCache(client, ttl_seconds=0)
    shapes["cache.get_tools"] = [len(await cache.get_tools()), shape(cache.version)]
    enabled = config.model_copy(update={"tool_discovery": discovery})
    split = module("tool_discovery").partition_tools(tools, enabled, {"sums"})
    shapes["partition_tools"] = [
        type(split).__name__,
        len(split[0]),
        {name: len(owned) for name, owned in split[1].items()},
    ]
    owners = module("tool_discovery").build_tool_server_map(tools, {"sums"})
    shapes["build_tool_server_map"] = sorted(owners.values())
    index = module("tool_search_index").ToolSearchIndex(tools, owners)
    hit = index.search("add numbers")[0]
    shapes["search"] = [
        len(hit),
        hit[0],
        hit[1] is tools[0],
        hit == ("sums", tools[0]),
        hit[1].name,
    ]
    shapes["get_by_server"] = [(server, tool.name) for server, tool in index.get_by_server("sums")]
    by_name, missing = index.get_by_names(["add", "nothing"])
    shapes["get_by_names"] = [[(server, tool.name) for server, tool in by_name], missing]
    shapes["index"] = [index.tool_count, index.server_names]
    search = module("search_tools_tool").SearchToolsTool(
        {"sums": tools}, ["sums"], index, discovery
    )
    content, loaded = await search.execute({"query": "add numbers"})
    shapes["SearchToolsTool.execute"] = [shape(content), [tool.name for tool in loaded]]
    shapes["SearchToolsTool.definition"] = [
        type(search.definition).__name__,
        sorted(search.definition.parameters),
    ]
    shapes["generate_manifest"] = shape(
        module("search_tools_tool").generate_manifest({"sums": tools})
    )
    few = models.ToolSetConfig(servers={"sums": ["add"]})
    filtered = module("tool_filter").filter_tools_by_toolset(tools, few, {"sums"})
    shapes["filter_tools_by_toolset"] = [tool.name for tool in filtered]
    shapes["validate_toolset"] = shape(module("tool_filter").validate_toolset(few, tools, {"sums"}))
    for name in ("sums_add", "other_add", "add"):
        shapes[f"extract {name}"] = module("tool_filter").extract_server_and_tool(
            name, {"sums", "time"}
        )
    shapes["convert"] = [
        type(tool).__name__ for tool in module("convert_tools").tools_from_mcp(tools)
    ]
    shapes |= await described_chat(root, config)
    shapes |= described_errors(module, config)
    return shapes


async def described_chat(root: Any, config: Any) -> dict[str, Any]:
    """Describe the shapes of a chat: its messages, its stats, one call."""
    from casual_llm import (
        AssistantMessage,
        AssistantToolCall,
        AssistantToolCallFunction,
        Model,
        UserMessage,
    )

    def calling(arguments: str) -> Any:
        return AssistantToolCall(
            id="call-1", function=AssistantToolCallFunction(name="sums_add", arguments=arguments)
        )

    shapes: dict[str, Any] = {}
    async with root.McpToolChat.from_config(config) as chat:
        tool = (await chat.tool_cache.get_tools())[0]
        call = calling('{"a": 1, "b": 2}')
        call.function.name = tool.name
        shapes["chat.get_stats before"] = shape(chat.get_stats())
        model = Model(
            Script(
                AssistantMessage(content="", tool_calls=[call]), AssistantMessage(content="Three.")
            ),
            "script",
        )
        answered = await chat.chat(
            [UserMessage(content="One and two?")], model=model, tool_set=config.tool_sets["few"]
        )
        shapes["chat.chat"] = [(message.role, type(message).__name__) for message in answered]
        stats = chat.get_stats()
        shapes["stats.model_dump"] = {
            name: sorted(part) if isinstance(part, dict) else type(part).__name__
            for name, part in stats.model_dump().items()
        }
        shapes["stats"] = [
            stats.tokens.total_tokens,
            stats.tool_calls.total,
            stats.llm_calls,
            stats.discovery,
        ]
        shapes["by_server"] = dict(stats.tool_calls.by_server)
        result = await chat.execute(call)
        shapes["chat.execute"] = [
            type(result).__name__,
            result.tool_call_id,
            result.name,
            "3" in result.content,
        ]
        bad = await chat.execute(calling("{"))
        shapes["chat.execute, malformed"] = [
            type(bad).__name__,
            bad.content.startswith("Error: Malformed arguments"),
        ]
        shapes["chat"] = [
            sorted(chat.server_names),
            type(chat.model_factory).__name__,
            type(chat.tool_cache).__name__,
        ]
    async with chat:
        shapes["chat entered again"] = len(await chat.tool_cache.get_tools())
    return shapes


def described_errors(module: Any, config: Any) -> dict[str, Any]:
    """List the standard kinds of the errors that documented calls raise."""
    from casual_llm import AssistantToolCall, AssistantToolCallFunction

    call = AssistantToolCall(
        id="call-1", function=AssistantToolCallFunction(name="add", arguments='{"a": 1}')
    )
    utils = module("utils")
    tries = {
        "load_config, missing": lambda: utils.load_config("nowhere.json"),
        "get_model, unknown": lambda: (
            module("model_factory").ModelFactory(config).get_model("nowhere")
        ),
        "format, unknown style": lambda: utils.format_tool_call_result(call, "2", style="nothing"),
        "format, malformed": lambda: utils.format_tool_call_result(
            call.model_copy(update={"function": broken}), "2"
        ),
        "toolset, unknown": (
            lambda: module("tool_filter").validate_toolset(
                module("models").ToolSetConfig(servers={"nowhere": True}), [], {"sums"}
            )
        ),
        "GenerationError": (
            lambda: (_ for _ in ()).throw(module("models.generation_error").GenerationError("no"))
        ),
    }
    broken = AssistantToolCallFunction(name="add", arguments="{")
    shapes: dict[str, Any] = {}
    for name, attempt in tries.items():
        try:
            list(attempt())
        except Exception as error:
            shapes[name] = {
                "raises": sorted(
                    base.__name__
                    for base in type(error).__mro__[:-1]
                    if base.__module__ == "builtins"
                )
            }
    formats = ("result", "function_result", "function_args_result")
    shapes["formats"] = [
        utils.format_tool_call_result(call, "2", style=style, include_id=True) for style in formats
    ]
    return shapes


def dumped_configs(package: str) -> list[dict[str, Any]]:
    """Dump configs with and without each section by `model_dump`."""
    models, config = (
        importlib.import_module(f"{package}.models"),
        importlib.import_module(f"{package}.models.config").Config,
    )
    servers = {
        "here": models.StdioServerConfig(
            command="python", args=["server.py"], env={"ZONE": "UTC"}, cwd="/"
        ),
        "there": models.RemoteServerConfig(
            url="http://127.0.0.1:9/mcp", headers={"Accept": "text/plain"}, transport="sse"
        ),
    }
    few = models.ToolSetConfig(servers={"here": True, "there": models.ExcludeSpec(exclude=["add"])})
    full = {
        "clients": {
            "desk": models.McpClientConfig(provider="openai", base_url="http://127.0.0.1:9/v1")
        },
        "models": {"small": models.McpModelConfig(client="desk", model="m-1", template="short")},
        "tool_sets": {"few": few},
        "tool_discovery": models.ToolDiscoveryConfig(enabled=True),
    }
    every = [
        config(models={}, servers=servers),
        config(models={}, servers={}),
        config(servers=servers, **full),
    ]
    return [
        each.model_dump(mode="json")
        for each in [*every, config(servers=servers, **full | {"tool_discovery": None})]
    ]


def main() -> None:
    """Describe a package."""
    package = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        modules = described_modules(package)
        results = asyncio.run(described_results(package, Path(folder)))
        commands = told_by_commands(package, Path(folder))
    # Some modules print when they are imported.
    print(
        f"\n{json.dumps({'modules': modules, 'results': results, 'dumps': dumped_configs(package), 'commands': commands})}"
    )


if __name__ == "__main__":
    main()
