"""From a file, or plain objects, to a checked `Config`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from casual_mcp_nb.config.document import Document, parse_document, read_document
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.hosts import Adapted, adapt
from casual_mcp_nb.config.prices import file_of, read_prices
from casual_mcp_nb.config.problems import Problem, cross_problems, problems_of, raise_problems
from casual_mcp_nb.config.variables import Substitution
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.types.config import ClientConfig, Config
from casual_mcp_nb.types.strict import Origin

logger = logging.getLogger(__name__)

_KEY_OF_PROVIDER = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


def load_config(source: str | Path | Mapping[str, Any] | Config, *, environ: Mapping[str, str] | None = None) -> Config:
    """Read and check a config.

    `${NAME}` is replaced from the environment and `.env`, API keys that are not in the config are looked up there, relative
    paths are taken from the config file's folder. What other MCP hosts write is accepted; see `Config.notes` for what was
    ignored.

    Args:
        source: A JSON file, the same as plain objects, or a `Config`, in which only missing API keys are filled in.
        environ: Variables by name; None for the process's environment.

    Returns:
        The config. Nothing later needs the environment.

    Raises:
        ConfigError: Something is wrong; all that is wrong is named, one a line, with file, line, column and key, and never
            with a value.
    """
    if isinstance(source, Config):
        return resolve_api_keys(source, read_environment(source.folder, environ))
    document = Document(dict(source)) if isinstance(source, Mapping) else read_document(_path(source))
    variables = read_environment(document.path.parent if document.path else None, environ)
    config = resolve_api_keys(_checked(document, variables), variables)
    if config.notes:
        logger.warning("%s: %s", document.path or "config", " ".join(config.notes))
    return config


def check_config(text: str, path: str | Path, *, environ: Mapping[str, str] | None = None) -> Config:
    """Check the text of a config file before it is written.

    Args:
        text: What the file is to hold.
        path: The file; relative paths are taken from its folder.
        environ: Variables by name; None for the process's environment.

    Raises:
        ConfigError: Something is wrong, as for `load_config`.
    """
    place = _path(path)
    variables = read_environment(place.parent, environ)
    return resolve_api_keys(_checked(parse_document(text, place), variables), variables)


def _path(source: str | Path) -> Path:
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        raise ConfigError("A path or an object is expected, this is a text of JSON.", hint="Use json.loads(text).")
    if not isinstance(source, str | Path) or not str(source).isprintable():
        raise ConfigError("A path, an object or a Config is expected.")
    return Path(source).expanduser().absolute()


def _checked(document: Document, variables: Mapping[str, str]) -> Config:
    adapted = adapt(document.data)
    substitution = Substitution(variables)
    data = substitution.apply(adapted.data)
    if document.path:
        _resolve_paths(data, document.path.parent)
    _read_price_file(data, document.path.parent if document.path else None)
    origin = Origin(document.path, frozenset(substitution.sensitive), tuple(adapted.notes))
    try:
        config, found = Config.model_validate(data, context=origin), []
    except ValidationError as error:
        config, found = Config(), problems_of(error)
    # Raised when pydantic's error is gone: it holds what was validated.
    found += cross_problems(data, found)
    raise_problems(
        _as_written([*document.problems, *adapted.problems], substitution.problems, found, adapted),
        path=str(document.path) if document.path else None,
        locate=document.locate,
    )
    return config


def _as_written(
    early: Iterable[Problem], missing: Iterable[Problem], found: Iterable[Problem], adapted: Adapted
) -> list[Problem]:
    """All problems under the keys that the person wrote, without those that only follow from a missing variable."""
    problems = list(early)
    unset = list(missing)
    followers = [p for p in found if any(other.path[: len(p.path)] == p.path for other in unset)]
    for problem in [*unset, *(p for p in found if p not in followers)]:
        problems.append(Problem(adapted.as_written(problem.path), problem.text))
    return problems


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Make the working folder of each server, and a command that is written as a relative path, absolute."""
    servers = data.get("servers")
    for server in servers.values() if isinstance(servers, dict) else ():
        if not isinstance(server, dict):
            continue
        cwd, command = server.get("cwd"), server.get("command")
        if isinstance(cwd, str) and cwd:
            server["cwd"] = str(folder / Path(cwd).expanduser())
        if isinstance(command, str) and ("/" in command or os.sep in command):
            server["command"] = str(folder / Path(command).expanduser())


def _read_price_file(data: dict[str, Any], folder: Path | None) -> None:
    """Put the prices that stand in a file of their own into the config."""
    file = file_of(data.get("prices"), folder)
    if file is not None:
        data["prices"] = read_prices(file)


def resolve_api_keys(config: Config, variables: Mapping[str, str]) -> Config:
    """The config with each client's API key filled in where it has none.

    Args:
        config: A config.
        variables: Where to look: `{CLIENT_NAME}_API_KEY`, then the provider's own variable.
    """
    clients = {name: _with_key(name, client, variables) for name, client in config.clients.items()}
    return config.model_copy(update={"clients": clients})


def _with_key(name: str, client: ClientConfig, variables: Mapping[str, str]) -> ClientConfig:
    if client.key_state == "set":
        return client
    own = f"{re.sub(r'[^A-Z0-9]', '_', name.upper())}_API_KEY"
    for variable in filter(None, (own, _KEY_OF_PROVIDER.get(client.provider))):
        if key := variables.get(variable):
            return client.with_key(key, variable)
    return client.model_copy(update={"api_key": None})
