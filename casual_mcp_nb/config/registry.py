"""Convert an MCP registry's `server.json` to a server that can be started.

Form: https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json, and the older one with snake_case keys
(https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from casual_mcp_nb.config.inputs import Input

_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


def is_registry_entry(data: Mapping[str, Any]) -> bool:
    """Check whether a file is a `server.json`: it has a name, and packages or remotes."""
    ways = [data.get("packages"), data.get("remotes")]
    return isinstance(data.get("name"), str) and any(isinstance(way, list) and way for way in ways)


class RegistryEntry:
    """The first supported way to reach the server: a package to start, or a remote URL.

    Args:
        data: The file as plain objects.

    Attributes:
        name: The server's name, without the namespace before it.
        server: The equivalent entry in `mcpServers`; None if no package or remote is supported.
        inputs: The inputs that its placeholders need.
        notes: What was left out.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(data["name"]).rpartition("/")[2]).strip("-") or "server"
        self.inputs: list[Input] = []
        self.notes: list[str] = []
        packages = [each for each in _objects(data.get("packages")) if _starts(each)]
        remotes = [each for each in _objects(data.get("remotes")) if _text(each, "url")]
        self.server = self._package(packages[0]) if packages else self._remote(remotes[0]) if remotes else None
        if len(packages) + len(remotes) > 1:
            self.notes.append(
                f"{self.name} offers {len(packages) + len(remotes)} packages and remotes; the first usable one is used."
            )
        if _text(data, "status") == "deprecated":
            self.notes.append(f"{self.name} is deprecated.")

    def _package(self, package: Mapping[str, Any]) -> dict[str, Any]:
        kind, identifier, version = (_text(package, key) for key in ("registryType", "identifier", "version"))
        env = self._named(package, "environmentVariables")
        before = list(self._arguments(package, "runtimeArguments"))
        after = list(self._arguments(package, "packageArguments"))
        command = _text(package, "runtimeHint") or _RUNTIMES[kind]
        match kind:
            case "npm":
                args = [*_missing("-y", before), *before, f"{identifier}@{version}" if version else identifier, *after]
            case "pypi":
                args = [*before, f"{identifier}=={version}" if version else identifier, *after]
            case "nuget":
                package_id = f"{identifier}@{version}" if version else identifier
                args = [*before, package_id, *_missing("--yes", before), *(["--", *after] if after else [])]
            case _:
                tagged = ":" in identifier.rpartition("/")[2] or "@" in identifier or not version
                passed = [word for name in env for word in ("-e", name)]
                image = identifier if tagged else f"{identifier}:{version}"
                args = ["run", "-i", "--rm", *passed, *before, image, *after]
        return {"command": command, "args": args, "env": env}

    def _remote(self, remote: Mapping[str, Any]) -> dict[str, Any]:
        transport = _text(remote, "type") or _text(remote, "transportType")
        return {
            "url": self._filled(_text(remote, "url"), remote),
            "headers": self._named(remote, "headers"),
            **({"transport": transport} if transport else {}),
        }

    def _named(self, where: Mapping[str, Any], key: str) -> dict[str, str]:
        """Convert variables or headers; optional ones without a value are left out and noted."""
        values: dict[str, str] = {}
        for each in _objects(_get(where, key)):
            name, value = _text(each, "name"), self._value(each, _text(each, "name"))
            if value is None:
                self.notes.append(f"{self.name}: {name} is optional and not set.")
            else:
                values[name] = value
        return values

    def _arguments(self, where: Mapping[str, Any], key: str) -> Iterator[str]:
        for each in _objects(_get(where, key)):
            name = _text(each, "name")
            value = self._value(each, _text(each, "valueHint") or name.lstrip("-"))
            if value is None:
                self.notes.append(f"{self.name}: the argument {name or _text(each, 'valueHint')} is optional and not set.")
            else:
                yield from filter(None, (name, value))

    def _value(self, each: Mapping[str, Any], name: str) -> str | None:
        """Choose the value in the file, or its default; a required one without either becomes an input."""
        for key in ("value", "default"):
            if isinstance(value := _get(each, key), str | int | float):
                return self._filled(str(value), each)
        return self._input(each, name) if _get(each, "isRequired") else None

    def _filled(self, text: str, where: Mapping[str, Any]) -> str:
        """Replace the placeholders `{name}` in a string, escaping it so that it is not expanded again."""
        variables = _get(where, "variables")
        entries = variables if isinstance(variables, Mapping) else {}

        def fill(match: re.Match[str]) -> str:
            entry = entries.get(match[1])
            return (self._value(entry, match[1]) or "") if isinstance(entry, Mapping) else match[0]

        return _PLACEHOLDER.sub(fill, text.replace("${", "$${"))

    def _input(self, entry: Mapping[str, Any], name: str) -> str:
        choices = _get(entry, "choices")
        options = tuple(map(str, choices)) if isinstance(choices, list) else ()
        secret = bool(_get(entry, "isSecret"))
        self.inputs.append(Input(name, str(_get(entry, "description") or ""), secret, options=options))
        return f"${{input:{name}}}"


def _get(where: Mapping[str, Any], key: str) -> Any:
    """Read a field by its present name or the older one in snake_case."""
    older = re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", key)
    return where.get(key, where.get(older))


def _text(where: Mapping[str, Any], key: str) -> str:
    value = _get(where, key)
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _starts(package: Mapping[str, Any]) -> bool:
    """Check whether it can be started here: a supported package type, over stdio."""
    transport = package.get("transport")
    speaks = transport.get("type", "stdio") if isinstance(transport, Mapping) else "stdio"
    return _text(package, "registryType") in _RUNTIMES and speaks == "stdio"


def _missing(option: str, args: list[str]) -> list[str]:
    return [] if option in args else [option]
