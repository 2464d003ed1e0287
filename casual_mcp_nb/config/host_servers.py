"""Convert a server's entry from another host's format to ours. For the hosts see `hosts`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.config.document import ConfigProblem, KeyPath, before_move, dotted, object_in
from casual_mcp_nb.config.host_switches import exclude
from casual_mcp_nb.config.inputs import Input
from casual_mcp_nb.errors import closest, did_you_mean


def servers_in(data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """List the names and entries of a config's servers, without malformed ones."""
    servers = object_in(data, "servers")
    return [(name, server) for name, server in servers.items() if isinstance(server, dict)]


@dataclass
class AdaptedConfig:
    """A config in our own format, copied from the caller's. Its repr shows no values.

    `written` has the original path of each key path that moved, `notes` the ignored or omitted
    parts, `remarks` the ignored parts by server name, and `problems` those that could not be
    converted.
    """

    data: dict[str, Any] = field(repr=False)
    written: dict[KeyPath, KeyPath] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    of_host: bool = False
    notes: list[str] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def as_written(self, path: KeyPath) -> KeyPath:
        """Convert the key path to the one that the person wrote."""
        return before_move(path, self.written)

    def problem(self, path: KeyPath, text: str) -> None:
        """Report a problem at a key path, which may have moved."""
        self.problems.append(ConfigProblem(self.as_written(path), text))


ENV_FILE = "env_file"
"""Key that holds the path of an env file until the loader has read it."""
PASSED_ON = "env_vars"
"""Key with the names of variables that are passed on if they are set (Codex), until the loader has
looked them up.
"""

_NAMES = {
    "serverUrl": "url",
    "httpUrl": "url",
    "type": "transport",
    "transportType": "transport",
    "environment": "env",
    "http_headers": "headers",
    "workingDirectory": "cwd",
    "excludeTools": "exclude_tools",
    "disabledTools": "exclude_tools",
    "disabled_tools": "exclude_tools",
    "includeTools": "include_tools",
    "enabledTools": "include_tools",
    "enabled_tools": "include_tools",
    "startup_timeout_sec": "init_timeout",
    "tool_timeout_sec": "call_timeout",
    "alwaysLoad": "always_load",
    "envFile": ENV_FILE,
    "cmd": "command",
    "uri": "url",
    "envs": "env",
    "available_tools": "include_tools",
}
_TRANSPORTS = {
    "local": "stdio",
    "streamablehttp": "streamable-http",
    "http": "http",
    "sse": "sse",
    "stdio": "stdio",
}
_OF_THE_HOST_ALONE = frozenset(
    {
        "builtin",
        "extension",
        "frontend",
        "inline_python",
        "inmemory",
        "platform",
        "sdk",
        "tcp",
        "websocket",
        "ws",
    }
)
_SWITCHES = {"disabled": True, "enabled": False, "isActive": False}
_KEYS_OF_HOSTS = """
alwaysAllow args_schema authentication authProviderType autoApprove chatMenu connectionTimeout
customUserVars description dev disableToolCache display_name exclude_tags faviconUrl gallery icon
iconPath include_tags initTimeout keep_alive metadata name oauth prompt proxy registryType
remote_configured requiresOAuth roots sampling_enabled sandbox sandboxEnabled serverInstructions
settings source sse_read_timeout startup timeout title trust version watchPaths
"""
_HOST_KEYS = frozenset(_KEYS_OF_HOSTS.split())
_KEYS_THAT_PROTECT = (
    "approval",
    "exclude_tools",
    "include_tools",
    "disabled",
    "enabled",
    "pin_tools",
)
"""Misspelling one of these is an error, while other unknown keys are ignored: ignoring it would
leave something enabled.
"""
_KEYS_THAT_SHARE = frozenset({"roots", "sampling"})
"""Keys that are ignored in other hosts' files: they would give a server more than its host does."""

_REFERENCE_OF_OPENCODE = re.compile(r"(?<![$\w])\{(env|file):([^{}]+)\}")
_REFERENCE_OF_CONTINUE = re.compile(r"\$\{\{\s*(?:secrets|inputs|env)\.([A-Za-z_]\w*)\s*\}\}")
_OF_A_USER = re.compile(r"\{\{\s*[A-Z][A-Z0-9_]*\s*\}\}")
"""What LibreChat replaces for each of its users."""
_WHOLE_VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")


def adapt_server(adapted: AdaptedConfig, name: str, server: dict[str, Any]) -> None:
    """Convert one server to our format. A server that only its host can start is left out."""
    at: KeyPath = ("servers", name)
    for key in [key for key, value in server.items() if value is None]:
        del server[key]
    if _is_of_the_host_alone(server):
        adapted.notes.append(
            f"{_where(adapted, name)} can only be started by its host and is left out."
        )
        _drop(adapted, name)
        return
    _read_keys(adapted, at, server)
    _switch(adapted, at, server)
    _flatten(adapted, at, server)
    _rename(adapted, at, server)
    _choose_tools(adapted, at, server)
    # Convert Copilot CLI's `deferTools`: `never`, or `auto`, which leaves the choice to the host.
    match server.pop("deferTools", None):
        case "never":
            server["always_load"] = True
        case True | "always":
            server.setdefault("defer_loading", True)
    _name_variables(server, adapted.of_host)
    _refuse_what_users_have(adapted, at, server)
    transport = server.get("transport")
    if isinstance(transport, str):
        plain = re.sub("[-_ ]", "", transport).casefold()
        if plain == "remote":
            del server["transport"]
        else:
            server["transport"] = _TRANSPORTS.get(plain, transport)
    _split_command(adapted, name, server)
    _ignore_rest(adapted, name, server)


def _is_of_the_host_alone(server: dict[str, Any]) -> bool:
    """Check whether only the host can start it: it belongs to the host or an extension, or does not
    use an MCP transport.
    """
    kind = server.get("type", server.get("transport"))
    unusual = isinstance(kind, str) and kind.casefold() in _OF_THE_HOST_ALONE
    return unusual or (
        server.get("source") == "extension" and not {"command", "url"} & server.keys()
    )


def _drop(adapted: AdaptedConfig, name: str) -> None:
    """Remove a server, including from the toolsets that name it."""
    del adapted.data["servers"][name]
    for tool_set in object_in(adapted.data, "tool_sets").values():
        if isinstance(tool_set, dict):
            object_in(tool_set, "servers").pop(name, None)


def leave_out(adapted: AdaptedConfig, name: str, why: str) -> None:
    """Remove a disabled server that cannot be read, and add a note."""
    adapted.notes.append(f"{_where(adapted, name)} is disabled and left out: {why}.")
    _drop(adapted, name)


def _where(adapted: AdaptedConfig, name: str) -> str:
    return dotted(adapted.as_written(("servers", name)))


def _switch(adapted: AdaptedConfig, at: KeyPath, server: dict[str, Any]) -> None:
    switches = {key: server.pop(key) for key in _SWITCHES if key in server}
    for key, value in switches.items():
        if not isinstance(value, bool):
            adapted.problem((*at, key), "must be true or false")
    if any(value is _SWITCHES[key] for key, value in switches.items()):
        server["enabled"] = False


def _flatten(adapted: AdaptedConfig, at: KeyPath, server: dict[str, Any]) -> None:
    """Split a command given as a list (opencode) or object (older Zed), and convert name/value
    lists (jupyter-ai).
    """
    command = server.get("command")
    if isinstance(command, dict):
        del server["command"]
        for theirs, ours in (("path", "command"), ("args", "args"), ("env", "env")):
            value = command.get(theirs)
            if value is not None and ours not in server:
                server[ours] = value
                adapted.written[(*at, ours)] = (*adapted.as_written(at), "command", theirs)
    elif isinstance(command, list) and command and isinstance(server.get("args", []), list):
        server["command"], server["args"] = command[0], [*command[1:], *server.get("args", [])]
    for key in ("env", "environment", "headers"):
        pairs = server.get(key)
        if isinstance(pairs, list) and all(map(_is_named, pairs)):
            server[key] = {pair["name"]: pair.get("value", "") for pair in pairs}


def _is_named(pair: object) -> bool:
    return isinstance(pair, dict) and isinstance(pair.get("name"), str)


def _rename(adapted: AdaptedConfig, at: KeyPath, server: dict[str, Any]) -> None:
    for theirs, ours in _NAMES.items():
        if (
            ours == "exclude_tools"
            and isinstance(server.get(ours), list)
            and isinstance(server.get(theirs), list)
        ):
            server[ours] = [*server[ours], *server.pop(theirs)]
        elif theirs in server and ours not in server:
            server[ours] = server.pop(theirs)
            adapted.written[(*at, ours)] = (*adapted.as_written(at), theirs)
    variable = server.get("bearer_token_env_var")
    if isinstance(variable, str) and "auth" not in server:
        del server["bearer_token_env_var"]
        server["auth"] = f"${{{variable}}}" if variable else ""
    by_header, given = server.get("env_http_headers"), server.get("headers", {})
    if isinstance(by_header, dict) and isinstance(given, dict):
        del server["env_http_headers"]
        named = {header: f"${{{variable}}}" for header, variable in by_header.items()}
        server["headers"] = {**named, **given}
    if not isinstance(server.get("auth", ""), str):
        # A custom OAuth client (Cursor).
        del server["auth"]
        _remark(adapted, at, "auth")


def _choose_tools(adapted: AdaptedConfig, at: KeyPath, server: dict[str, Any]) -> None:
    """Read `tools` as a list of names (Copilot CLI) or an object with a switch for each (fastmcp),
    and both lists (Gemini).
    """
    tools = server.pop("tools", None)
    if isinstance(tools, list) and "include_tools" not in server:
        server["include_tools"] = tools
        adapted.written[(*at, "include_tools")] = (*adapted.as_written(at), "tools")
    included = server.get("include_tools")
    if isinstance(included, list):
        server["include_tools"] = list(map(_without_argument, included))
        if "*" in server["include_tools"]:
            del server["include_tools"]
    lists = [isinstance(server.get(key), list) for key in ("include_tools", "exclude_tools")]
    if adapted.of_host and all(lists):
        exclude(server, server.pop("exclude_tools"))
    if isinstance(tools, dict):
        exclude(server, [name for name, switch in tools.items() if _is_off(switch)])
        settings = of_type(tools.values(), dict)
        if any(switch.keys() - {"enabled", "disabled"} for switch in settings):
            _remark(adapted, at, "tools (beyond switching them off)")
    elif tools is not None and not isinstance(tools, list):
        adapted.problem((*at, "tools"), "must be a list of tool names")


def _read_keys(adapted: AdaptedConfig, at: KeyPath, server: dict[str, Any]) -> None:
    """Convert how a host names variables and headers with keys: Goose, Vibe and Continue."""
    if adapted.of_host and isinstance(server.get("bundled"), bool):
        # Goose: whether the entry came with it.
        del server["bundled"]
    if adapted.of_host and server.get("available_tools") == []:
        del server["available_tools"]
    names = server.pop("env_keys", None)
    if isinstance(names, list):
        named = {name: f"${{{name}}}" for name in names if isinstance(name, str)}
        server["envs"] = {**named, **object_in(server, "envs")}
    variable = server.pop("api_key_env", None)
    header = server.pop("api_key_header", "Authorization")
    form = server.pop("api_key_format", "Bearer {token}")
    if isinstance(variable, str) and variable and isinstance(header, str) and isinstance(form, str):
        value = form.replace("{token}", f"${{{variable}}}")
        server["headers"] = {**object_in(server, "headers"), header: value}
        adapted.written[(*at, "headers", header)] = (*adapted.as_written(at), "api_key_env")
    options = server.pop("requestOptions", None)
    headers = options.get("headers") if isinstance(options, dict) else None
    if isinstance(headers, dict) and "headers" not in server:
        server["headers"] = headers
        adapted.written[(*at, "headers")] = (*adapted.as_written(at), "requestOptions", "headers")


def _is_off(switch: Any) -> bool:
    if isinstance(switch, dict):
        return switch.get("enabled") is False or switch.get("disabled") is True
    return switch is False


def _name_variables(server: dict[str, Any], of_host: bool) -> None:
    """Convert other forms of variables to ours: opencode's, Continue's, and Gemini CLI's values
    that are just `$NAME`.
    """
    if not of_host:
        return
    for key in ("command", "args", "env", "headers", "url", "cwd"):
        if key in server:
            server[key] = _with_variables(server[key], key in ("env", "headers"))


def _refuse_what_users_have(adapted: AdaptedConfig, at: KeyPath, server: Mapping[str, Any]) -> None:
    """Report values that LibreChat has for each of its users, such as `{{LIBRECHAT_USER_ID}}`: they
    would be sent as is.
    """
    if not adapted.of_host:
        return
    for key in ("url", "headers", "env", "args"):
        value = server.get(key)
        texts: dict[KeyPath, Any] = {(): value}
        if isinstance(value, dict):
            texts = {(name,): text for name, text in value.items()}
        elif isinstance(value, list):
            texts = {(index,): text for index, text in enumerate(value)}
        for below, text in texts.items():
            if isinstance(text, str) and _OF_A_USER.search(text):
                adapted.problem(
                    (*at, key, *below),
                    "only its host has a value for {{…}}. Write ${NAME} for an environment"
                    " variable",
                )


def _with_variables(value: Any, whole: bool) -> Any:
    if isinstance(value, dict):
        return {key: _with_variables(item, whole) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_variables(item, whole) for item in value]
    if not isinstance(value, str):
        return value
    if whole and (match := _WHOLE_VARIABLE.fullmatch(value)):
        return f"${{{match[1]}}}"
    return _REFERENCE_OF_OPENCODE.sub(r"${\1:\2}", _REFERENCE_OF_CONTINUE.sub(r"${\1}", value))


def _split_command(adapted: AdaptedConfig, name: str, server: dict[str, Any]) -> None:
    """Split a full command line, or move a URL, given as `command`."""
    command = server.get("command")
    if not isinstance(command, str) or server.get("args"):
        return
    if command.startswith(("http://", "https://")) and "url" not in server:
        server["url"] = server.pop("command")
        adapted.written["servers", name, "url"] = (
            *adapted.as_written(("servers", name)),
            "command",
        )
        adapted.notes.append(
            f"{_where(adapted, name)}: its command is a URL and is used as its url."
        )
        return
    if re.search(r"\$\{[^}]*\s", command) or os.path.exists(command) or shutil.which(command):
        return
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError:
        return
    if len(words) > 1 and shutil.which(words[0]):
        server["command"], server["args"] = words[0], words[1:]
        adapted.notes.append(
            f"{_where(adapted, name)}: its command is split into a program and {len(words) - 1}"
            " args."
        )


def _without_argument(tool: Any) -> Any:
    """Take the name from `name(argument)`, which Gemini CLI also accepts."""
    if isinstance(tool, str):
        return tool.partition("(")[0]
    return tool


def _remark(adapted: AdaptedConfig, at: KeyPath, text: str) -> None:
    name = str(at[1])
    before = adapted.remarks.get(name)
    if before:
        text = f"{before}, {text}"
    adapted.remarks[name] = text


def _ignore_rest(adapted: AdaptedConfig, name: str, server: dict[str, Any]) -> None:
    """Drop every key that is not ours.

    A near-miss of a key that restricts something is an error.
    """
    at: KeyPath = ("servers", name)
    keys = [*ServerConfig.model_fields, ENV_FILE, PASSED_ON]
    if adapted.of_host:
        keys = [key for key in keys if key not in _KEYS_THAT_SHARE]
    # Some of a host's own keys look like ours. In an entry that starts nothing, one is probably
    # misspelt.
    suggests = not adapted.of_host or not {"command", "url", "bundled"} & server.keys()
    for key in sorted(server.keys() - set(keys)):
        del server[key]
        remark = dotted((key,))
        if key not in _HOST_KEYS:
            protects = closest(key, _KEYS_THAT_PROTECT, 1, cutoff=0.75)
            if protects:
                adapted.problem((*at, key), f"unknown key. {did_you_mean(protects, protects)}")
                continue
            near = closest(key, keys, 1) if suggests else []
            if near:
                remark = f"{remark} ({did_you_mean(near, keys)})"
        _remark(adapted, at, remark)
    if name in adapted.remarks:
        adapted.notes.append(f"{_where(adapted, name)}: {adapted.remarks[name]} ignored.")
