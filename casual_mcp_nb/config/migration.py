"""Convert a config file for good: from casual-mcp before 1.0, another host, or our own, with
references in place of secrets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.iterables import all_are, by_id, of_type
from casual_mcp_nb.base.secret import Secrets, can_be_masked, certain, option_secrets, url_secrets
from casual_mcp_nb.config.document import (
    Document,
    KeyPath,
    dotted,
    has_comments,
    indent_of,
    list_in,
    mapped,
    object_in,
    raise_problems,
    read_document,
    read_text,
)
from casual_mcp_nb.config.environment import workspace_of
from casual_mcp_nb.config.host_servers import ENV_FILE, AdaptedConfig, servers_in
from casual_mcp_nb.config.hosts import adapt, is_of_host
from casual_mcp_nb.config.inputs import Input, variable_name
from casual_mcp_nb.config.legacy import Migrated, is_legacy, migrated_legacy
from casual_mcp_nb.config.loader import unusable_in
from casual_mcp_nb.providers.registry import client_variable

_ORDER = ("clients", "models", "servers", "tool_sets", "tool_discovery")
_INPUT = re.compile(r"\$\{input:([^}:]+)(?::[^}]*)?\}")
_WORKSPACE = re.compile(r"\$\{(workspaceFolderBasename|workspaceFolder|workspaceRoot|cwd)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}
)


@dataclass(frozen=True)
class MigratedConfig:
    """A config in our own format, and the old file's secrets.

    `notes` are the parts that were ignored, left out or lost. `variables` maps each environment
    variable that replaces a secret to the secret's key.
    """

    data: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    source: Document = field(default=Document({}), repr=False)
    of_host: bool = False
    indent: str = "  "

    @property
    def text(self) -> str:
        """The config as a file's text."""
        return f"{json.dumps(self.data, indent=self.indent, ensure_ascii=False)}\n"

    @property
    def references(self) -> frozenset[str]:
        """The environment variables that it refers to."""
        return frozenset(_REFERENCE.findall(self.text))


def is_legacy_file(path: Path) -> bool:
    """Check whether a file is a config from casual-mcp before 1.0, see `is_legacy`."""
    return is_legacy(read_document(path.resolve()).data)


def migrated_in_place(path: Path) -> MigratedConfig:
    """Convert a config from casual-mcp before 1.0 in place: only `clients` and `models` change, and
    secrets stay.
    """
    path = path.resolve()
    document = read_document(path)
    changed = migrated_legacy(document.data)
    return MigratedConfig(
        changed.data,
        (*_lost_fields(changed), *_lost_comments(path)),
        secrets=migrated(path, path.parent).secrets,
        source=replace(document, moved=changed.moved),
        indent=indent_of(read_text(path)),
    )


def migrated(path: Path, folder: Path) -> MigratedConfig:
    """Convert a config file from casual-mcp, another host, or our own.

    Nothing is looked up, and nobody is asked.

    In the new file, which will be in `folder`, relative paths mean the same. It is not validated
    yet, see `check_config`.
    """
    path = path.resolve()
    document = read_document(path)
    changed = migrated_legacy(document.data)
    adapted = adapt(changed.data, path, folder=Path.cwd())
    notes = [*adapted.notes, *_lost_fields(changed)]
    if is_of_host(document.data, path):
        notes += _leave_out_unusable(adapted, document)
    problems = [*document.problems, *adapted.problems]
    raise_problems(problems, document)
    variables = _Variables()
    defined = by_id(adapted.inputs)

    def reference(match: re.Match[str]) -> str:
        return variables.ask(defined.get(match[1], Input(match[1])))

    # VS Code's inputs are not kept: environment variables take their place.
    adapted.data.update(mapped(adapted.data, partial(_INPUT.sub, reference)))
    for name, server in servers_in(adapted.data):
        _hide_in_server(server, ("servers", name), variables)
    for section in ("clients", "models"):
        for name, entry in object_in(adapted.data, section).items():
            if isinstance(entry, dict):
                _hide_in_model(entry, (section, name), variables)
    if folder.resolve() != path.parent.resolve():
        notes += _moved(adapted, path.parent, folder)
    if not adapted.data.get("models"):
        notes.append(
            "It has no models: the offline planner answers until you add clients and models."
        )
    source = replace(document, moved={**changed.moved, **adapted.written})
    data = {key: adapted.data[key] for key in [*_ORDER, *adapted.data] if key in adapted.data}
    return MigratedConfig(
        data,
        (*notes, *_lost_comments(path)),
        variables.where,
        variables.secrets,
        source,
        adapted.of_host,
    )


def _leave_out_unusable(adapted: AdaptedConfig, document: Document) -> list[str]:
    """Remove a host's servers that cannot be used, unless there is no other.

    List them with the reasons.
    """
    unusable = unusable_in(document, _REFERENCE.findall(json.dumps(document.data, default=str)))
    servers = adapted.data.get("servers")
    if not isinstance(servers, dict) or not servers.keys() - unusable.keys():
        return []
    places = {name: adapted.as_written(("servers", name)) for name in unusable}
    for name, place in places.items():
        servers.pop(name, None)
        adapted.problems = [
            problem for problem in adapted.problems if problem.path[: len(place)] != place
        ]
    return [f"{dotted(places[name])} is left out: {reason}." for name, reason in unusable.items()]


def _lost_fields(changed: Migrated) -> list[str]:
    lost = ", ".join(map(dotted, changed.dropped))
    return [f"Not kept: {lost}."] if lost else []


def _lost_comments(path: Path) -> list[str]:
    text = read_text(path)
    return ["Comments in the old file are not copied."] if has_comments(text, path.suffix) else []


class _Variables:
    """Names the environment variables that replace secrets. Its repr shows no values."""

    def __init__(self) -> None:
        self.where: dict[str, str] = {}
        self._values: dict[str, str] = {}

    def __repr__(self) -> str:
        return "<variables>"

    @property
    def secrets(self) -> Secrets:
        return Secrets(self._values.values())

    def reference(self, value: str, at: KeyPath, *names: str) -> str:
        """Choose the reference that replaces a secret: the first name that does not hold another
        one.
        """
        numbered = (f"{names[-1]}_{number}" for number in count(2))
        every = map(_variable, chain(names, numbered))
        name = next(each for each in every if self._values.setdefault(each, value) == value)
        self.where.setdefault(name, dotted(at))
        return f"${{{name}}}"

    def ask(self, wanted: Input) -> str:
        self.where.setdefault(wanted.variable, f"inputs: {wanted.id}")
        return f"${{{wanted.variable}}}"


def _variable(text: str) -> str:
    name = variable_name(text) or "SECRET"
    return name if _NAME.fullmatch(text) is None or text != text.upper() else text


def _hide_in_server(server: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    name = str(at[1])
    _hide_named(object_in(server, "env"), (*at, "env"), variables)
    _hide_in_headers(object_in(server, "headers"), (*at, "headers"), variables)
    auth = server.get("auth")
    if isinstance(auth, str) and auth not in ("", "oauth") and "${" not in auth:
        server["auth"] = variables.reference(auth, (*at, "auth"), f"{name}_TOKEN")
    args = server.get("args")
    if isinstance(args, list) and all_are(args, str):
        server["args"] = _without(args, option_secrets(args), (*at, "args"), variables)
    command = server.get("command")
    if isinstance(command, str):
        secrets = option_secrets([command])
        (server["command"],) = _without([command], secrets, (*at, "command"), variables)
    _hide_in_address(server, "url", at, variables)


def _hide_in_model(entry: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    name, key = str(at[1]), entry.get("api_key")
    if isinstance(key, str) and key and "${" not in key:
        entry["api_key"] = variables.reference(key, (*at, "api_key"), client_variable(name))
    for headers in ("headers", "extra_headers"):
        _hide_in_headers(object_in(entry, headers), (*at, headers), variables)
    _hide_named(object_in(entry, "extra_body"), (*at, "extra_body"), variables)
    _hide_in_address(entry, "base_url", at, variables)


def _hide_named(fields: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    """Hide the values that are secrets by their names or looks."""
    for name, value in fields.items():
        if isinstance(value, str) and value and "${" not in value and certain(name, value):
            names = [f"{at[1]}_{name}"]
            if at[-1] == "env":
                # A server's variable keeps its name.
                names.insert(0, name)
            fields[name] = variables.reference(value, (*at, name), *names)


def _hide_in_headers(headers: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    for header, value in headers.items():
        harmless = header.casefold() in _HARMLESS_HEADERS
        if not isinstance(value, str) or not value or "${" in value or harmless:
            continue
        scheme, _, secret = value.rpartition(" ")
        what = "TOKEN" if header.casefold() == "authorization" else header
        reference = variables.reference(secret, (*at, header), f"{at[1]}_{what}")
        headers[header] = f"{scheme} {reference}" if scheme else reference


def _hide_in_address(entry: dict[str, Any], key: str, at: KeyPath, variables: _Variables) -> None:
    address = entry.get(key)
    if isinstance(address, str):
        (entry[key],) = _without([address], url_secrets(address), (*at, key), variables)


def _without(
    texts: list[str], secrets: Iterable[str], at: KeyPath, variables: _Variables
) -> list[str]:
    """Put references in place of the secrets in an entry's texts."""
    texts, name = list(texts), f"{at[1]}_SECRET"
    for secret in sorted(filter(None, {*secrets}), key=len, reverse=True):
        if "${" in secret:
            continue
        for index, text in enumerate(texts):
            if _holds(text, secret):
                texts[index] = text.replace(secret, variables.reference(secret, at, name))
    return texts


def _holds(text: str, secret: str) -> bool:
    """Check whether a secret is in a text.

    A short one could be part of any word, so it must be the whole text.
    """
    if can_be_masked(secret):
        return secret in text
    return text == secret


def _moved(adapted: AdaptedConfig, old: Path, new: Path) -> list[str]:
    """Make relative paths mean the same in another folder.

    List the files that the person has to move.
    """
    before = workspace_of(old)
    changed: list[str] = []

    def workspace(match: re.Match[str]) -> str:
        return before.name if match[1].endswith("Basename") else str(before)

    def absolute(value: Any, base: Path) -> Any:
        if (
            not isinstance(value, str)
            or not value
            or value.startswith(("/", "~", "${"))
            or Path(value).is_absolute()
        ):
            return value
        changed.append(value)
        return str((base / value).resolve())

    if before.resolve() != workspace_of(new).resolve():
        adapted.data.update(mapped(adapted.data, partial(_WORKSPACE.sub, workspace)))
    paths: list[tuple[dict[str, Any], str, Path]] = [(adapted.data, "prices", old)]
    for client in of_type(object_in(adapted.data, "clients").values(), dict):
        paths.append((client, "cassette", old))
    embedding = object_in(object_in(adapted.data, "tool_discovery"), "embedding")
    # It can also be a model's name.
    if os.path.isdir(old / str(embedding.get("local", ""))):
        paths.append((embedding, "local", old))
    for _, server in servers_in(adapted.data):
        paths += [(server, "cwd", old), (server, ENV_FILE, before)]
        if re.search(r"[/\\]", str(server.get("command", ""))):
            paths.append((server, "command", old))
        if list_in(server, "roots"):
            server["roots"] = [absolute(root, old) for root in list_in(server, "roots")]
    for entry, key, base in paths:
        if key in entry:
            entry[key] = absolute(entry[key], base)
    notes = []
    if changed:
        notes.append(f"Relative paths were made absolute: {len(changed)}.")
    if (old / ".env").is_file():
        notes.append(
            "The new file does not read the .env beside the old one. Copy the variables that it"
            " needs."
        )
    models = of_type(object_in(adapted.data, "models").values(), dict)
    if any(model.get("template") for model in models):
        notes.append("Its models use templates: copy the folder prompt-templates/ to the new file.")
    return notes
