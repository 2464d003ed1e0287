"""Convert a server's entry from another host's format to ours. For the hosts see `hosts`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.iterables import all_are, of_type
from casual_mcp_nb.config.document import (
    ConfigProblem,
    KeyPath,
    before_move,
    dotted,
    mapped,
    object_in,
)
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
_SWITCHES = {"enabled": False, "disabled": True, "isActive": False}
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


@dataclass
class _Entry:
    """A server's entry on its way to our format.

    Args:
        adapted: The config that it is in.
        name: The server's name.
        fields: The entry, which is changed in place.
    """

    adapted: AdaptedConfig
    name: str
    fields: dict[str, Any]

    def written(self, *below: str | int) -> KeyPath:
        """Build the key path that the person wrote for a part of the entry."""
        return self.adapted.as_written(("servers", self.name, *below))

    def put(self, key: str, value: Any, *theirs: str) -> None:
        """Set a key of ours. The host has the value under `theirs`."""
        self.fields[key] = value
        self.moved((key,), *theirs)

    def moved(self, ours: KeyPath, *theirs: str) -> None:
        self.adapted.written["servers", self.name, *ours] = (*self.written(), *theirs)

    def problem(self, text: str, *below: str | int) -> None:
        self.adapted.problems.append(ConfigProblem(self.written(*below), text))

    def note(self, text: str) -> None:
        self.adapted.notes.append(f"{dotted(self.written())}{text}")

    def remark(self, text: str) -> None:
        """Remember a part that is ignored."""
        before = self.adapted.remarks.get(self.name)
        if before:
            text = f"{before}, {text}"
        self.adapted.remarks[self.name] = text

    def drop(self) -> None:
        """Remove the server, including from the toolsets that name it."""
        data = self.adapted.data
        del data["servers"][self.name]
        for tool_set in object_in(data, "tool_sets").values():
            if isinstance(tool_set, dict):
                object_in(tool_set, "servers").pop(self.name, None)


def adapt_server(adapted: AdaptedConfig, name: str, server: dict[str, Any]) -> None:
    """Convert one server to our format. A server that only its host can start is left out."""
    entry = _Entry(adapted, name, server)
    for key in [key for key, value in server.items() if value is None]:
        del server[key]
    if _is_of_the_host_alone(server):
        entry.note(" can only be started by its host and is left out.")
        entry.drop()
        return
    _read_keys(entry)
    _switch(entry)
    _flatten(entry)
    _rename(entry)
    _choose_tools(entry)
    # Convert Copilot CLI's `deferTools`: `never`, or `auto`, which leaves the choice to the host.
    match server.pop("deferTools", None):
        case "never":
            server["always_load"] = True
        case True | "always":
            server.setdefault("defer_loading", True)
    if adapted.of_host:
        _name_variables(server)
        _refuse_what_users_have(entry)
    transport = server.get("transport")
    if isinstance(transport, str):
        plain = re.sub("[-_ ]", "", transport).casefold()
        if plain == "remote":
            del server["transport"]
        else:
            server["transport"] = _TRANSPORTS.get(plain, transport)
    _split_command(entry)
    _ignore_rest(entry)


def _is_of_the_host_alone(server: dict[str, Any]) -> bool:
    """Check whether only the host can start it: it belongs to the host or an extension, or does not
    use an MCP transport.
    """
    kind = server.get("type", server.get("transport"))
    unusual = isinstance(kind, str) and kind.casefold() in _OF_THE_HOST_ALONE
    return unusual or (
        server.get("source") == "extension" and not {"command", "url"} & server.keys()
    )


def leave_out(adapted: AdaptedConfig, name: str, server: dict[str, Any], why: str) -> None:
    """Remove a disabled server that cannot be read, and add a note."""
    entry = _Entry(adapted, name, server)
    entry.note(f" is disabled and left out: {why}.")
    entry.drop()


def _switch(entry: _Entry) -> None:
    for key, off in _SWITCHES.items():
        value = entry.fields.pop(key, None)
        if not isinstance(value, bool | None):
            entry.problem("must be true or false", key)
        elif value is off:
            entry.fields["enabled"] = False


def _flatten(entry: _Entry) -> None:
    """Split a command given as a list (opencode) or object (older Zed), and convert name/value
    lists (jupyter-ai).
    """
    server = entry.fields
    command = server.get("command")
    if isinstance(command, dict):
        del server["command"]
        for theirs, ours in (("path", "command"), ("args", "args"), ("env", "env")):
            value = command.get(theirs)
            if value is not None and ours not in server:
                entry.put(ours, value, "command", theirs)
    elif isinstance(command, list) and command and isinstance(server.get("args", []), list):
        server["command"], server["args"] = command[0], [*command[1:], *server.get("args", [])]
    for key in ("env", "environment", "headers"):
        pairs = server.get(key)
        if isinstance(pairs, list) and all(map(_is_named, pairs)):
            server[key] = {pair["name"]: pair.get("value", "") for pair in pairs}


def _is_named(pair: object) -> bool:
    return isinstance(pair, dict) and isinstance(pair.get("name"), str)


def _rename(entry: _Entry) -> None:
    server = entry.fields
    for theirs, ours in _NAMES.items():
        if theirs not in server:
            continue
        if ours not in server:
            entry.put(ours, server.pop(theirs), theirs)
        elif ours == "exclude_tools" and all(
            isinstance(server[key], list) for key in (ours, theirs)
        ):
            server[ours] = [*server[ours], *server.pop(theirs)]
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
        entry.remark("auth")


def _choose_tools(entry: _Entry) -> None:
    """Read `tools` as a list of names (Copilot CLI) or an object with a switch for each (fastmcp),
    and both lists (Gemini).
    """
    server = entry.fields
    tools = server.pop("tools", None)
    if isinstance(tools, list) and "include_tools" not in server:
        entry.put("include_tools", tools, "tools")
    included = server.get("include_tools")
    if isinstance(included, list):
        server["include_tools"] = list(map(_without_argument, included))
        if "*" in server["include_tools"]:
            del server["include_tools"]
    lists = [isinstance(server.get(key), list) for key in ("include_tools", "exclude_tools")]
    if entry.adapted.of_host and all(lists):
        exclude(server, server.pop("exclude_tools"))
    if isinstance(tools, dict):
        exclude(server, [name for name, switch in tools.items() if _is_off(switch)])
        settings = of_type(tools.values(), dict)
        if any(switch.keys() - {"enabled", "disabled"} for switch in settings):
            entry.remark("tools (beyond switching them off)")
    elif tools is not None and not isinstance(tools, list):
        entry.problem("must be a list of tool names", "tools")


def _read_keys(entry: _Entry) -> None:
    """Convert how a host names variables and headers with keys: Goose, Vibe and Continue."""
    server = entry.fields
    if entry.adapted.of_host:
        if isinstance(server.get("bundled"), bool):
            # Goose: whether the entry came with it.
            del server["bundled"]
        if server.get("available_tools") == []:
            del server["available_tools"]
    names = server.pop("env_keys", None)
    if isinstance(names, list):
        named = {name: f"${{{name}}}" for name in of_type(names, str)}
        server["envs"] = {**named, **object_in(server, "envs")}
    variable = server.pop("api_key_env", None)
    header = server.pop("api_key_header", "Authorization")
    form = server.pop("api_key_format", "Bearer {token}")
    if variable and all_are((variable, header, form), str):
        value = form.replace("{token}", f"${{{variable}}}")
        server["headers"] = {**object_in(server, "headers"), header: value}
        entry.moved(("headers", header), "api_key_env")
    headers = object_in(server, "requestOptions").get("headers")
    server.pop("requestOptions", None)
    if isinstance(headers, dict) and "headers" not in server:
        entry.put("headers", headers, "requestOptions", "headers")


def _is_off(switch: Any) -> bool:
    if isinstance(switch, dict):
        return switch.get("enabled") is False or switch.get("disabled") is True
    return switch is False


def _name_variables(server: dict[str, Any]) -> None:
    """Convert other forms of variables to ours: opencode's, Continue's, and Gemini CLI's values
    that are just `$NAME`.
    """
    for key in ("command", "args", "url", "cwd"):
        if key in server:
            server[key] = mapped(server[key], _with_variables)
    for key in ("env", "headers"):
        if key in server:
            server[key] = mapped(server[key], _with_whole_variable)


def _with_whole_variable(text: str) -> str:
    if match := _WHOLE_VARIABLE.fullmatch(text):
        return f"${{{match[1]}}}"
    return _with_variables(text)


def _with_variables(text: str) -> str:
    return _REFERENCE_OF_OPENCODE.sub(r"${\1:\2}", _REFERENCE_OF_CONTINUE.sub(r"${\1}", text))


def _refuse_what_users_have(entry: _Entry) -> None:
    """Report values that LibreChat has for each of its users, such as `{{LIBRECHAT_USER_ID}}`: they
    would be sent as is.
    """
    for key in ("url", "headers", "env", "args"):
        value = entry.fields.get(key)
        texts: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict):
            texts = value.items()
        elif isinstance(value, list):
            texts = enumerate(value)
        for path, text in (((key,), value), *(((key, below), text) for below, text in texts)):
            if isinstance(text, str) and _OF_A_USER.search(text):
                entry.problem(
                    "only its host has a value for {{…}}. Write ${NAME} for an environment"
                    " variable",
                    *path,
                )


def _split_command(entry: _Entry) -> None:
    """Split a full command line, or move a URL, given as `command`."""
    server = entry.fields
    command = server.get("command")
    if not isinstance(command, str) or server.get("args"):
        return
    if command.startswith(("http://", "https://")) and "url" not in server:
        entry.put("url", server.pop("command"), "command")
        entry.note(": its command is a URL and is used as its url.")
        return
    if re.search(r"\$\{[^}]*\s", command) or os.path.exists(command) or shutil.which(command):
        return
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError:
        return
    if len(words) > 1 and shutil.which(words[0]):
        server["command"], server["args"] = words[0], words[1:]
        entry.note(f": its command is split into a program and {len(words) - 1} args.")


def _without_argument(tool: Any) -> Any:
    """Take the name from `name(argument)`, which Gemini CLI also accepts."""
    if isinstance(tool, str):
        return tool.partition("(")[0]
    return tool


def _ignore_rest(entry: _Entry) -> None:
    """Drop every key that is not ours.

    A near-miss of a key that restricts something is an error.
    """
    server, of_host = entry.fields, entry.adapted.of_host
    keys = {*ServerConfig.model_fields, ENV_FILE, PASSED_ON}
    if of_host:
        keys -= _KEYS_THAT_SHARE
    # Some of a host's own keys look like ours. In an entry that starts nothing, one is probably
    # misspelt.
    suggests = not of_host or not {"command", "url", "bundled"} & server.keys()
    for key in sorted(server.keys() - keys):
        del server[key]
        remark = dotted((key,))
        if key not in _HOST_KEYS:
            protects = closest(key, _KEYS_THAT_PROTECT, 1, cutoff=0.75)
            if protects:
                entry.problem(f"unknown key. {did_you_mean(protects, protects)}", key)
                continue
            near = closest(key, keys, 1) if suggests else []
            if near:
                remark = f"{remark} ({did_you_mean(near, keys)})"
        entry.remark(remark)
    remarks = entry.adapted.remarks.get(entry.name)
    if remarks:
        entry.note(f": {remarks} ignored.")
