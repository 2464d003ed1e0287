"""What is public in Python: the names of modules with `__all__`, what a session has, and what that
returns.

It is read from the source, in which annotations and defaults are as they were written.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "casual_mcp_nb"

MADE = {
    *("Case", "ExcludeSpec", "ExpectedCall", "Inject", "McpToolChat", "ModelFactory"),
    *("OpenTelemetry", "QuestionAnswer", "SearchToolsTool", "Selection", "ServeLimits", "Session"),
    *("SyntheticToolResult", "ToolCache", "ToolName", "ToolOutput", "ToolSearchIndex"),
    *("ToolSetConfig", "ToolSpec", "ToolUseCase", "TurnOptions"),
    *("Explorer", "ManifestView", "ModelSearches", "Panel", "SearchBox"),
    *("ServerToggles", "TokenMeter", "ToolsetPicker"),
}
"""The classes of which users make objects. The others are made here: what they have can be used,
and how they are made is not promised.
"""

_WIDGET = "close freeze"
_SERVED = "close close_async closed host port status url wait wait_async"
PARTLY = {
    "AddressQuestion": "answer cancel decline id kind server text",
    "App": ("call_tool calls close context messages on_change problem send status value widget"),
    "ApprovalQuestion": (
        "approve approve_for_server choices deny difference id kind server text why"
    ),
    "CassetteInUse": "close failures mode path save state",
    "Config": (
        "clients folder model_dump model_dump_json models notes path prices servers tool_discovery"
        " tool_results tool_sets"
    ),
    "ConversationStore": (
        "add archive at close delete find flush get load path problem rename restore"
    ),
    "Elicitation": "cancel decline id kind server text",
    "Explorer": _WIDGET,
    "FormQuestion": "answer cancel decline id kind server text",
    "ManifestView": _WIDGET,
    "McpEndpoint": f"{_SERVED} has_token",
    "McpToolChat": (
        "accept_change add_server add_synthetic_tool add_tool catalog changed_tools chat close"
        " context execute from_config get_stats mcp_client model_factory remove_server"
        " remove_synthetic_tool remove_tool run selection server_names stream system tool_cache"
        " view"
    ),
    "ModelFactory": "close default get_client get_model",
    "ModelSearches": _WIDGET,
    "OpenTelemetry": "",
    "Panel": _WIDGET,
    "SearchBox": _WIDGET,
    "Selection": (
        "always_loaded auto_threshold defer_all delivery direct_calls discovery instructions"
        " manifest_max_tokens max_active_tokens max_active_tools max_search_results"
        " max_search_tokens servers snapshot strategy tool_set tools_off watch"
    ),
    "SignInQuestion": "answer cancel decline id kind server text",
    "ServerToggles": _WIDGET,
    "Question": "id kind server text",
    "Questions": "by_id step_mode time_limit unattended wait",
    "Service": _SERVED,
    "TokenMeter": _WIDGET,
    "ToolCache": "client get_tools invalidate prime version",
    "ToolContext": "call_tool call_tool_async cancelled check log progress values",
    "ToolSearchIndex": (
        "explain find get_by_names get_by_server search server_names tool_count tools"
    ),
    "ToolsetPicker": _WIDGET,
    "TurnOptions": "",
    "UrlElicitation": "accept cancel decline id kind server text",
}
"""What is promised of classes that have more, which only the rooms of this package use."""

APART = {
    *("CasualMcpError.text_at", "CassetteMismatchError.raised", "RunResults.with_verdicts"),
    *("Session.parts", "SessionCassettes.replay_only", "SessionCassettes.secrets"),
    *("SessionTools.call_recorded", "SessionTools.find", "SessionTools.functions"),
    *("SessionTools.searchable", "ToolChange.blocked", "Trace.kinds", "Trace.unread"),
    *("Resources.lister", "Prompts.lister", "Skills.lister", "StoredConversations.find"),
    *("Accounts.find", "ChatStats.of", "Conversation.as_in_a_file", "ExpectedCall.names"),
    *("ExpectedCall.plain", "RunResults.absent", "RunResults.active", "RunResults.of_cases"),
    *("SessionCassettes.source", "ToolUseCase.checks", "ToolUseCase.needs", "ToolUseCase.plain"),
    "ToolUseCase.unit",
    *("Trace.append", "Trust.on_accept"),
}
"""Single members that only the rooms of this package use."""

ONLY_HERE = {"Cassette", "RecordedCalls", "Replayer"}
"""Classes of values that a session returns to the rooms of this package."""

FACES = {
    *("McpClientConfig", "McpModelConfig", "RemoteServerConfig", "StdioServerConfig"),
    *("EmbeddingConfig", "ExcludeSpec", "ToolDiscoveryConfig", "ToolSetConfig"),
}
"""Classes whose fields are keys of the config, where they are listed."""


def public_names() -> Iterator[tuple[str, str]]:
    """List the names of modules with `__all__`, and of casual-mcp's modules, with their members."""
    for module, names in public_modules().items():
        for name in names:
            listed = f"{module}.{name}"
            yield from _with_members(listed, _object(_home_of(module, name)))
    from casual_mcp_nb.compat import MODULES

    for module, text in MODULES.items():
        for pair in text.split():
            here, _, there = pair.partition("=")
            yield f"{PACKAGE}.{module}.{there or here}", ""


def names_of_a_session() -> Iterator[tuple[str, str]]:
    """List what a session's namespaces have, under what one writes to reach it."""
    for title, kind in _namespaces().items():
        yield from _members(title, kind)


def returned_values() -> Iterator[tuple[str, str]]:
    """List what those values have that a session returns and that no module has in `__all__`."""
    session = {"session": _object("session.Session"), **_namespaces()}
    listed = {kind.path for kind in session.values()}
    listed |= _public_paths()
    for holder in session.values():
        for _, member in _public(holder):
            for value in _classes_in(member.returns if member.is_function else member.annotation):
                for kind in (value, *_kinds_of(value)):
                    if kind.path not in listed and kind.name not in ONLY_HERE | FACES:
                        listed.add(kind.path)
                        yield from _members(kind.name, kind)


def _kinds_of(value: Any) -> Iterator[Any]:
    """List the classes in a class's own module that inherit from it."""
    for kind in value.parent.classes.values():
        if value in kind.mro():
            yield kind


@cache
def _public_paths() -> frozenset[str]:
    """List where the public names are defined."""
    homes = [_home_of(module, name) for module, names in public_modules().items() for name in names]
    return frozenset(_object(home).path for home in homes if home)


@cache
def _package() -> griffe.Module:
    extensions = griffe.load_extensions(str(ROOT / "docs" / "griffe_methods.py"))
    package = griffe.load(PACKAGE, extensions=extensions, search_paths=[ROOT])
    assert isinstance(package, griffe.Module)
    return package


@cache
def public_modules() -> dict[str, list[str]]:
    """Find the modules with `__all__`, with their names."""
    found = {PACKAGE: list(importlib.import_module(PACKAGE).__all__)}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if any(part.startswith("_") for part in parts):
            continue
        if names := _all_of(ast.parse(path.read_text(encoding="utf-8"))):
            found[".".join(parts)] = names
    return found


def _all_of(module: ast.Module) -> list[str]:
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() as value):
                return [str(name) for name in ast.literal_eval(value)]
    return []


def _home_of(module: str, name: str) -> str:
    """Find where a name is defined, as a path in the package; empty for one of casual-llm."""
    if module == PACKAGE:
        module = importlib.import_module(PACKAGE)._HOMES[name]
    if not module.startswith(PACKAGE):
        return ""
    return f"{module}.{name}".removeprefix(f"{PACKAGE}.")


def _object(path: str) -> Any:
    """Find what the package has at a path. None if that is nothing, or a library's."""
    try:
        found = _package()[path] if path else None
    except KeyError:
        return None
    if found is not None and found.is_alias:
        found = found.final_target
    return found


def _namespaces() -> dict[str, Any]:
    """Find the namespaces of a session, and theirs, by what one writes to reach them."""
    # It is assigned without an annotation.
    found: dict[str, Any] = {"session.questions": _object("notebook.open_questions.Questions")}
    waiting = {"session": _object("session.Session")}
    while waiting:
        title, holder = waiting.popitem()
        for name, member in _public(holder):
            if "property" not in member.labels:
                continue
            for path in _paths_in(member.annotation):
                if re.search(r"\.(notebook|serve|experiments)\.[\w.]*\.Session\w+$", path):
                    found[f"{title}.{name}"] = waiting[f"{title}.{name}"] = _object(
                        path.removeprefix(f"{PACKAGE}.")
                    )
    return found


def _classes_in(annotation: Any) -> Iterator[Any]:
    """List the package's classes in an annotation, also by a name that stands for several."""
    for path in _paths_in(annotation):
        value = _object(path.removeprefix(f"{PACKAGE}."))
        if value is not None and value.is_class:
            yield value
        elif value is not None and value.is_attribute:
            yield from _classes_in(value.value)


def _paths_in(annotation: Any) -> Iterator[str]:
    """List the full paths of the names in an annotation that are the package's."""
    for part in getattr(annotation, "iterate", lambda **_: ())(flat=True):
        if isinstance(part, griffe.ExprName) and part.canonical_path.startswith(f"{PACKAGE}."):
            yield part.canonical_path


def _public(holder: Any) -> Iterator[tuple[str, Any]]:
    """List a class's own and inherited members that are promised, each resolved."""
    partly = PARTLY.get(holder.name)
    for name, listed in holder.all_members.items():
        member = listed.final_target if listed.is_alias else listed
        if name.startswith("_") or name in ("model_config", "model_post_init"):
            continue
        if partly is not None and name not in partly.split():
            continue
        if not APART & {f"{holder.name}.{name}", f"{member.parent.name}.{name}"}:
            yield name, member


def _documented(holder: Any) -> Iterator[str]:
    """List the attributes that a class's docstring names."""
    if holder.docstring is None:
        return
    quietly = {"warn_missing_types": False, "warn_unknown_params": False, "warnings": False}
    for section in holder.docstring.parse("google", **quietly):
        if section.kind is griffe.DocstringSectionKind.attributes:
            yield from (each.name for each in section.value)


def _with_members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """List a name and, for a class, what it has."""
    if value is None:
        yield name, ""
    elif value.is_function:
        yield name, _signature(value)
        yield from _options(value)
    elif value.is_class:
        made = value.all_members.get("__init__") if value.name in MADE else None
        said = ""
        if made is not None:
            function = made.final_target if made.is_alias else made
            said = _signature(function)
            yield from _options(function)
        yield name, said
        if value.name not in FACES:
            yield from _members(name, value)
    else:
        yield name, ""


def _members(name: str, holder: Any) -> Iterator[tuple[str, str]]:
    """List what a class has without what another public class, which is listed, gives it."""
    for member_name, member in _public(holder):
        if member.parent.path != holder.path and member.parent.path in _public_paths():
            continue
        listed = f"{name}.{member_name}"
        if member.is_function:
            yield listed, _signature(member)
            yield from _options(member)
        else:
            yield listed, f": {_plain(member.annotation)}" if member.annotation else ""
    for member_name in _documented(holder):
        # What is assigned together with others, for instance.
        if member_name not in holder.all_members and f"{holder.name}.{member_name}" not in APART:
            yield f"{name}.{member_name}", ""


def _signature(function: Any) -> str:
    """Write a signature without the object on which the function is called, as griffe does."""
    text = str(function.signature(name="_")).removeprefix("_").removesuffix(" -> None")
    return text.replace("(/, ", "(", 1)


def _options(function: Any) -> Iterator[tuple[str, str]]:
    """List the options that `**options: Unpack[Options]` stands for."""
    for parameter in function.parameters:
        if parameter.kind is griffe.ParameterKind.var_keyword:
            for path in _paths_in(parameter.annotation):
                options = _object(path.removeprefix(f"{PACKAGE}."))
                for name, member in _public(options):
                    yield f"**{options.name}.{name}", f": {_plain(member.annotation)}"


def _plain(annotation: Any) -> str:
    """Write a type without what `Annotated` adds to it."""
    text = str(annotation)
    match = re.fullmatch(r"Annotated\[(.*?), [A-Z]\w+\(.*\]", text)
    return match[1] if match else text
