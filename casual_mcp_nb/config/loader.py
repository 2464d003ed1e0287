"""Load a validated `Config` from a file or plain objects. Toolsets are saved by `saving`."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ClientConfig, Config
from casual_mcp_nb.base.config_base import (
    BaseConfig,
    ConfigOrigin,
    FieldPath,
    Typed,
    Written,
    header_problem,
    held,
    value_at,
)
from casual_mcp_nb.base.iterables import are_texts
from casual_mcp_nb.config.document import (
    ConfigProblem,
    Document,
    KeyPath,
    cross_problems,
    dotted,
    object_in,
    parse_document,
    problems_of,
    raise_problems,
    read_document,
)
from casual_mcp_nb.config.environment import (
    Environment,
    Piece,
    Substitution,
    env_entries,
    read_environment,
    references_of,
    workspace_of,
)
from casual_mcp_nb.config.host_servers import (
    ENV_FILE,
    PASSED_ON,
    AdaptedConfig,
    leave_out,
    servers_in,
)
from casual_mcp_nb.config.hosts import adapt, is_of_host
from casual_mcp_nb.config.inputs import Inputs, somebody_is_there
from casual_mcp_nb.config.price_file import PRICE_FILE, read_prices
from casual_mcp_nb.errors import ConfigError, MissingFileError, shown
from casual_mcp_nb.providers.registry import key_variables, option_notes

logger = logging.getLogger(__name__)

DEFAULT_FILE = "casual_mcp_config.json"
"""The config file that commands read by default."""


def load_config(
    path: str | Path | Mapping[str, Any] | Config = DEFAULT_FILE,
    *,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Load and validate a config.

    `${NAME}` is replaced from the environment and `.env`, `${input:ID}` from the variable ID or by
    prompting. API keys missing from the config are looked up in the environment. Relative paths are
    resolved against the config file's folder. Other MCP hosts' files are accepted. `Config.notes`
    lists ignored parts, and `Config.unusable` the servers of one that cannot be used.

    Args:
        path: A JSON file (comments are fine), a TOML file, the same as plain objects, or a
            `Config`, in which only missing API keys are filled in. The default is
            `casual_mcp_config.json` in the working directory.
        environ: Variables by name, or None for the process's environment.

    Returns:
        The config, which no longer depends on the environment.

    Raises:
        ConfigError: The config is not valid. The message lists every problem, one per line, with
            file, line, column and key, but never a value. It is a `ValueError` too, and a
            `FileNotFoundError` if there is no such file.
    """
    return _loaded(path, environ, ignore)


def load_accepted(
    path: str | Path | Mapping[str, Any] | Config, accept: Callable[[Config], object]
) -> Config:
    """Load a config as `load_config` does, and have it accepted before the person is prompted for
    values.

    Args:
        path: The config.
        accept: Called before a prompt, with the config as far as it is known. It raises an error if
            the person does not accept it.
    """
    return _loaded(path, None, accept)


def _loaded(
    path: str | Path | Mapping[str, Any] | Config,
    environ: Mapping[str, str] | None,
    accept: Callable[[Config], object],
) -> Config:
    if isinstance(path, Config):
        return resolve_api_keys(path, read_environment(path.folder, environ))
    if isinstance(path, Mapping):
        document = Document(dict(path))
    else:
        document = read_document(_path(path))
    # A traceback with local variables, here or in functions called from here, shows no config
    # values.
    del path
    variables = read_environment(document.folder, environ)
    if document.path is not None and is_of_host(document.data, document.path):
        config = _by_entry(document, variables, accept=accept)
    else:
        config = _checked(document, variables, ask=True, accept=accept)
    if config.unusable:
        reasons = "; ".join(f"{shown(name)}: {reason}" for name, reason in config.unusable.items())
        logger.warning("%s: not all of its servers can be used. %s", document.path, reasons)
    if config.notes:
        logger.warning("%s: %s", document.path or "config", " ".join(config.notes))
    return config


def load_readable(path: str | Path, accept: Callable[[Config], object]) -> Config:
    """Load a config file as `load_accepted` does, but entry by entry whatever its format, see
    `Config.unusable`.
    """
    document = read_document(_path(path))
    return _by_entry(document, read_environment(document.folder), accept=accept)


def unusable_in(document: Document, stand_ins: Iterable[str]) -> Mapping[str, str]:
    """Find the servers of a host's file that cannot be used even if these variables are set, with
    the reasons.

    Nobody is prompted. A ConfigError if something else is wrong.
    """
    environ = {**dict.fromkeys(stand_ins, "stand-in"), **os.environ}
    return _by_entry(document, read_environment(document.folder, environ), ask=False).unusable


def _by_entry(
    document: Document,
    variables: Environment,
    *,
    ask: bool = True,
    accept: Callable[[Config], object] = ignore,
) -> Config:
    """Build the config without the servers that cannot be used, and with the reasons why.

    A ConfigError if something else is wrong.
    """
    adapted = adapt(document.data, document.path, folder=Path.cwd())
    names = object_in(adapted.data, "servers")
    places = {adapted.as_written(("servers", name)): name for name in names}
    defined = adapted.inputs
    del adapted, names
    unusable: dict[str, str] = {}
    # An entry that cannot be used anyway needs no values from the person.
    inputs = Inputs(defined, variables, ask=False)
    config, problems, failure = _without_unusable(document, variables, inputs, places, unusable)
    if not problems and failure is None and inputs.placeholders:
        if ask and somebody_is_there():
            accept(resolve_api_keys(config, variables))
        inputs = Inputs(defined, variables, ask=ask)
        config, problems, failure = _without_unusable(document, variables, inputs, places, unusable)
    if failure is not None:
        raise failure.with_traceback(None)
    raise_problems(problems, document)
    config._origin = replace(config._origin, unusable=unusable)
    return resolve_api_keys(config, variables)


def _without_unusable(
    document: Document,
    variables: Environment,
    inputs: Inputs,
    places: Mapping[KeyPath, str],
    unusable: dict[str, str],
) -> tuple[Config, list[ConfigProblem], ConfigError | None]:
    """Build the config, see `_attempt`, without the servers that have problems, which are added to
    `unusable`.
    """
    while True:
        config, problems, failure = _attempt(document, variables, inputs, unusable)
        owners = [_owner(problem, places) for problem in problems]
        before = len(unusable)
        if failure is None and None not in owners:
            for problem, owner in zip(problems, owners, strict=True):
                assert owner is not None
                unusable.setdefault(places[owner], _reason(problem, owner))
        if len(unusable) == before:
            return config, problems, failure


def _reason(problem: ConfigProblem, owner: KeyPath) -> str:
    key = dotted(problem.path[len(owner) :])
    text = problem.text
    if key:
        text = f"{key}: {text}"
    if problem.hint:
        text = f"{text}. {problem.hint}".removesuffix(".")
    return text


def _owner(problem: ConfigProblem, places: Collection[KeyPath]) -> KeyPath | None:
    """Find the entry that contains a problem, among those at these key paths."""
    paths = (problem.path[:size] for size in range(len(problem.path), 0, -1))
    return next((path for path in paths if path in places), None)


def check_config(
    text: str,
    path: str | Path,
    *,
    environ: Mapping[str, str] | None = None,
    source: Document | None = None,
) -> Config:
    """Validate a config file's text before it is written.

    Nobody is prompted: each input gets a placeholder.

    A ConfigError, as for `load_config`, names the file that the text was made from: `source`, or
    the new one.
    """
    file = _path(path)
    document = parse_document(text, file)
    del text
    return _checked(document, read_environment(file.parent, environ), ask=False, source=source)


def _path(source: str | Path) -> Path:
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        raise ConfigError(
            "Expected a path or an object, not JSON text.", hint="Use json.loads(text)."
        )
    if not isinstance(source, str | Path) or not str(source).isprintable():
        raise ConfigError(
            "Expected a path, an object or a Config.",
            hint="To start servers without a config: Session.quick(servers=[…]).",
        )
    path = Path(source).expanduser().absolute()
    if _is_of_server(source) and not path.exists():
        # The text can hold a secret, and is not shown.
        raise ConfigError(
            "That is a server, not a config.", hint="To start it: Session.quick(servers=[…])."
        )
    if path.suffix in (".py", ".js") and os.path.isfile(path):
        raise ConfigError(
            f"{shown(path.name)} is a program, not a config.",
            hint=f"To start it as a server: Session.quick(servers=[{shlex.quote(str(source))!r}]).",
        )
    return path


def _is_of_server(source: str | Path) -> bool:
    """Check whether a text is an address, or a command with arguments."""
    text = str(source)
    if text.startswith(("http://", "https://")):
        return True
    command, _, arguments = text.strip().partition(" ")
    return bool(arguments) and shutil.which(command) is not None


def _checked(
    document: Document,
    variables: Environment,
    *,
    ask: bool,
    source: Document | None = None,
    accept: Callable[[Config], object] = ignore,
) -> Config:
    defined = adapt(document.data, document.path, folder=Path.cwd()).inputs
    inputs = Inputs(defined, variables, ask=False)
    config, problems, failure = _attempt(document, variables, inputs)
    if ask and not problems and failure is None and inputs.placeholders:
        if somebody_is_there():
            accept(resolve_api_keys(config, variables))
        inputs = Inputs(defined, variables)
        config, problems, failure = _attempt(document, variables, inputs)
    # Raised only after everything that was read is gone: library errors and their frames hold on to
    # it.
    if failure is not None:
        raise failure.with_traceback(None)
    named = source or document
    problems = [replace(problem, path=named.as_written(problem.path)) for problem in problems]
    raise_problems(problems, named)
    return resolve_api_keys(config, variables)


def _attempt(
    document: Document, variables: Environment, inputs: Inputs, without: Collection[str] = ()
) -> tuple[Config, list[ConfigProblem], ConfigError | None]:
    """Build the config from a document, or return an empty one with the problems in it or in the
    price file.

    Servers that are named in `without` are left out with their problems.

    Nothing is raised here, where local variables hold the values.
    """
    adapted = adapt(document.data, document.path, folder=Path.cwd())
    left_out = {adapted.as_written(("servers", name)): name for name in without}
    adapted.problems = [
        each for each in (*document.problems, *adapted.problems) if _owner(each, left_out) is None
    ]
    for name in without:
        adapted.data["servers"].pop(name, None)
    _leave_out_unreadable(adapted, Substitution(variables, document.folder))
    substitution = Substitution(
        variables,
        document.folder,
        inputs,
        own=_own_variables(adapted.data),
        of_host=adapted.of_host,
    )
    data = substitution.apply(adapted.data)
    _pass_variables_on(data, substitution)
    _read_env_files(data, substitution)
    failure = _read_price_file(data, substitution)
    if document.folder:
        _resolve_paths(data, document.folder, substitution.written)
    used = {}
    for at, names in substitution.used.items():
        if len(at) == 2:
            used[(str(at[0]), str(at[1]))] = tuple(names)
    origin = ConfigOrigin(
        document.path,
        frozenset(substitution.sensitive),
        frozenset(substitution.inserted),
        (*adapted.notes, *_notes_on(data)),
        variables=used,
    )
    try:
        config, problems = Config.model_validate(data, context=origin), []
        config._origin = replace(origin, notes=(*origin.notes, *_notes_on_options(config)))
        _remember(config, substitution)
    except ValidationError as error:
        config, problems = Config(), problems_of(error, data)
    problems += cross_problems(data, problems)
    unset = substitution.problems
    if inputs.placeholders:
        problems = _before_typing(problems, substitution.typed)
        unset = _before_typing(unset, substitution.typed)
    return config, _as_written(adapted, unset, problems), failure


def _before_typing(
    problems: Iterable[ConfigProblem], typed: Mapping[KeyPath, Piece]
) -> list[ConfigProblem]:
    """Add to a problem with a placeholder how to do without one: what is typed in its place comes
    too late, because the config is accepted before.
    """
    explained: list[ConfigProblem] = []
    for problem in problems:
        names: list[str] = []
        for at, piece in typed.items():
            if at[: len(problem.path)] == problem.path:
                names += [each.variable for each in piece.inputs]
        if names and not problem.hint and not problem.text.startswith("unknown key"):
            variables = " and ".join(dict.fromkeys(names))
            hint = f"This cannot be typed at a prompt: set {variables} in the environment."
            problem = replace(problem, hint=hint)
        explained.append(problem)
    return explained


def _own_variables(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Collect the variables that each server's entry sets, as written."""
    return {
        name: server["env"]
        for name, server in servers_in(data)
        if isinstance(server.get("env"), dict)
    }


def _leave_out_unreadable(adapted: AdaptedConfig, substitution: Substitution) -> None:
    """Remove disabled servers that need something missing: nobody is prompted for it, and nothing
    fails.
    """
    for name, server in servers_in(adapted.data):
        if server.get("enabled") is False:
            substitution.problems.clear()
            substitution.apply(server, ("servers", name))
            if substitution.problems:
                leave_out(adapted, name, server, substitution.problems[0].text)
            else:
                adapted.notes.append(
                    f"{dotted(adapted.as_written(('servers', name)))} is disabled, so it is not"
                    " started."
                )


def _notes_on(data: Mapping[str, Any]) -> Iterator[str]:
    for name, server in servers_in(data):
        if server.get("transport") == "sse":
            yield (
                f"{dotted(('servers', name))} uses sse, which MCP has deprecated in favour of"
                " streamable HTTP (`http`)."
            )


def _notes_on_options(config: Config) -> Iterator[str]:
    for name, model in config.models.items():
        for note in option_notes(config.clients[model.client].provider, model.model, model):
            yield f"{dotted(('models', name))}: {note}"


def _as_written(
    adapted: AdaptedConfig, unset: Iterable[ConfigProblem], problems: Iterable[ConfigProblem]
) -> list[ConfigProblem]:
    """List all problems at their original keys, without those that only follow from an unset
    variable.
    """
    found: list[ConfigProblem] = []
    above: set[KeyPath] = set()
    for problem in unset:
        found.append(problem)
        above.update(problem.path[:size] for size in range(len(problem.path) + 1))
    found += [problem for problem in problems if problem.path not in above]
    written = list(adapted.problems)
    for problem in found:
        path, text = adapted.as_written(problem.path), _in_full(problem, adapted)
        written.append(replace(problem, path=path, text=text))
    return written


def _in_full(problem: ConfigProblem, adapted: AdaptedConfig) -> str:
    """Add a server's ignored keys to a problem with the whole server: the likeliest cause is a
    misspelt key.
    """
    if problem.path[:1] != ("servers",) or len(problem.path) != 2:
        return problem.text
    remark = adapted.remarks.get(str(problem.path[1]))
    if remark:
        return f"{problem.text}. Ignored: {remark}"
    return problem.text


def _remember(config: Config, substitution: Substitution) -> None:
    """Let each config entry remember how its values were written in the file."""
    entries: dict[KeyPath, BaseConfig] = {}
    for section in ("clients", "models", "servers"):
        for name, entry in getattr(config, section).items():
            entries[section, name] = entry
    entries[()] = config
    written: dict[KeyPath, dict[FieldPath, Written]] = {at: {} for at in entries}
    for at, text in substitution.written.items():
        whose, path, value = _in_entry(entries, at)
        written[whose][path] = Written(text, value)
    typed: dict[KeyPath, dict[FieldPath, Typed]] = {at: {} for at in entries}
    for at, piece in substitution.typed.items():
        whose, path, value = _in_entry(entries, at)
        questions = tuple(each.question for each in piece.inputs)
        typed[whose][path] = Typed(SecretStr(piece.before), questions, value)
    for at, entry in entries.items():
        entry._origin = replace(entry._origin, at=at, written=written[at], typed=typed[at])


def _in_entry(entries: Mapping[KeyPath, BaseConfig], at: KeyPath) -> tuple[KeyPath, FieldPath, Any]:
    """Find the entry that a value is in, the value's path there, and the value."""
    whose = at[:2] if at[:2] in entries else ()
    path = at[len(whose) :]
    return whose, path, held(value_at(entries[whose], path))


def _resolve_paths(data: dict[str, Any], folder: Path, written: dict[KeyPath, str | None]) -> None:
    """Make each server's working directory and roots absolute, and commands that are relative
    paths.
    """

    def absolute(text: str, at: KeyPath) -> str:
        path = str(folder / os.path.expanduser(text))
        if path != text:
            written.setdefault(at, text)
        return path

    for name, server in servers_in(data):
        for key in ("cwd", "command"):
            text = server.get(key)
            # A command without a slash is looked up in PATH.
            if isinstance(text, str) and ("/" in text or os.sep in text or (key == "cwd" and text)):
                server[key] = absolute(text, ("servers", name, key))
        roots = server.get("roots")
        if isinstance(roots, list) and are_texts(roots):
            for index, root in enumerate(roots):
                roots[index] = absolute(root, ("servers", name, "roots", index))


def _read_env_files(data: dict[str, Any], substitution: Substitution) -> None:
    """Merge a server's env file into its `env`, which takes precedence, and note the variables that
    it refers to.
    """
    for name, server in servers_in(data):
        file = server.pop(ENV_FILE, None)
        if file is None:
            continue
        at = ("servers", name, ENV_FILE)
        given = server.get("env", {})
        if not isinstance(file, str) or not isinstance(given, dict):
            substitution.problem(at, "must be the path of a file")
            continue
        path = workspace_of(substitution.folder) / os.path.expanduser(file)
        try:
            entries = env_entries(path, substitution.environ)
        except MissingFileError:
            substitution.problem(at, "there is no such file")
        except ConfigError:
            substitution.problem(at, "this file cannot be read as text")
        else:
            substitution.written.setdefault(at, file)
            for entry in entries:
                if entry not in given:
                    substitution.written["servers", name, "env", entry] = None
                substitution.note(at, *entries.references(entry))
            server["env"] = {**entries, **given}


def _pass_variables_on(data: dict[str, Any], substitution: Substitution) -> None:
    """Give a server the variables that its entry passes on, if they are set and its `env` does not
    have them.
    """
    variables = substitution.environ
    for name, server in servers_in(data):
        listed = server.pop(PASSED_ON, None)
        env = server.get("env", {})
        if not isinstance(listed, list) or not isinstance(env, dict):
            continue
        for each in listed:
            variable = each
            # Codex can also name a variable of another computer on which the server runs.
            if isinstance(each, dict) and each.get("source", "local") == "local":
                variable = each.get("name")
            if isinstance(variable, str) and variable in variables and variable not in env:
                server["env"] = env = {**env, variable: variables[variable]}
                at = ("servers", name, "env", variable)
                substitution.written[at] = f"${{{variable}}}"
                substitution.note(at, variable)


def _read_price_file(data: dict[str, Any], substitution: Substitution) -> ConfigError | None:
    """Merge a separate price file into the config. Return the problems in that file."""
    if ("prices",) in substitution.typed:
        substitution.problem(("prices",), "must be the path of a file")
        del data["prices"]
    named, folder = data.get("prices"), substitution.folder
    file = folder / PRICE_FILE if folder else None
    if isinstance(named, str):
        file = (folder or Path()) / os.path.expanduser(named)
    elif named is not None or file is None or not file.is_file():
        return None
    substitution.written.setdefault(("prices",), named)
    try:
        data["prices"] = read_prices(file)
    except ConfigError as error:
        return error
    return None


def resolve_api_keys(config: Config, variables: Mapping[str, str]) -> Config:
    """Fill in clients' missing API keys: from `{CLIENT_NAME}_API_KEY`, then the provider's own
    variable.
    """
    clients = {name: _with_key(name, client, variables) for name, client in config.clients.items()}
    resolved = config.model_copy(update={"clients": clients})
    # A `.env` file beside the config can put another variable's value into the key's variable.
    used = {**config._origin.variables}
    for name, client in clients.items():
        references = references_of(variables, client.key_variable or "")
        if references:
            used["clients", name] = (*config.variables_of("clients", name), *references)
    resolved._origin = replace(config._origin, variables=used)
    return resolved


def _with_key(name: str, client: ClientConfig, variables: Mapping[str, str]) -> ClientConfig:
    if client.key_state == "set":
        return client
    for variable in key_variables(name, client.provider):
        if variables.get(variable):
            if reason := header_problem(variables[variable]):
                raise ConfigError(
                    f"the environment variable {variable} {reason}.", key=f"clients.{name}.api_key"
                )
            return client.with_key(variables[variable], variable)
    return client.model_copy(update={"api_key": None})
