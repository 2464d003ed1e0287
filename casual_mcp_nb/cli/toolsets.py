"""`casual-mcp-nb toolsets`: list, show, create, edit and delete a config file's toolsets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from casual_mcp_nb.cli import exit_code
from casual_mcp_nb.cli.terminal import AsJson, Source, ask, can_ask, show, tell, write_json
from casual_mcp_nb.errors import TrustRequiredError, UnknownNameError, UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Config, ToolSetConfig
    from casual_mcp_nb.session import Session


Rules = dict[str, Any]
"""A toolset's rule for each server: `True`, a list of tools, or `{"exclude": [tools]}`, as in the
file.
"""
_RANGE = re.compile(r"(\d{1,6})\s*(?:-\s*(\d{1,6}))?")


def change(
    rules: Rules,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    remove: Sequence[str] = (),
    servers: Collection[str] = (),
) -> None:
    """Change a toolset's rules.

    A UsageError if a server to leave out is not in it, or an excluded name is not a tool.
    """
    for server in remove:
        if server not in rules:
            raise UnknownNameError("server of this toolset", server, rules)
        del rules[server]
    for text in include:
        server, tool = _split(text, servers)
        match rules.get(server):
            case _ if not tool:
                rules[server] = True
            case {"exclude": excluded}:
                rules[server] = {"exclude": [name for name in excluded if name != tool]}
            case list(names):
                rules[server] = list(dict.fromkeys([*names, tool]))
            case True:
                pass
            case _:
                rules[server] = [tool]
    for text in exclude:
        server, tool = _split(text, servers)
        if not tool:
            raise UsageError(
                f"{shown(text)} is not a tool.",
                hint="Name one as server:tool, or leave out a server: --remove.",
            )
        match rules.get(server):
            case {"exclude": excluded}:
                rules[server] = {"exclude": list(dict.fromkeys([*excluded, tool]))}
            case list(names):
                rules[server] = [name for name in names if name != tool]
            case _:
                rules[server] = {"exclude": [tool]}


def chosen(text: str, names: Sequence[str]) -> list[str]:
    """Parse the names that a person has typed, by number from 1, by range or by name, such as `1,
    3-5, add`.
    """
    result: dict[str, None] = {}
    for word in filter(None, re.split(r"[,\s]+", re.sub(r"\s*-\s*(?=\d)", "-", text))):
        if (match := _RANGE.fullmatch(word)) and word not in names:
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= len(names):
                raise UsageError(f"There are numbers 1 to {len(names)}.")
            result.update(dict.fromkeys(names[first - 1 : last]))
        elif word in names:
            result[word] = None
        else:
            raise UnknownNameError("tool", word, names)
    return list(result)


_SOURCE = Source()
Names = Annotated[tuple[str, ...], Parameter(negative=())]

toolsets = App(name="toolsets", help="List, show, create, edit and delete the config's toolsets.")


@toolsets.default
@toolsets.command(name="list")
def listed(*, source: Source = _SOURCE, json: AsJson = False) -> None:
    """List the config's toolsets. Nothing is started."""
    from casual_mcp_nb.display.view import Name, Table, TextBlock, View, columns
    from casual_mcp_nb.servers.views import rule_words

    tool_sets = source.load().tool_sets
    if json:
        write_json([_plain(name, tool_set) for name, tool_set in tool_sets.items()])
        return
    rows = tuple(
        (Name(name), each.description, rule_words(each.servers)) for name, each in tool_sets.items()
    )
    table = Table(columns("Toolset", "Description", "Includes"), rows)
    show(View("toolsets", "Toolsets", (table if rows else TextBlock("None."),)))


@toolsets.command(name="show")
def show_one(name: str, /, *, source: Source = _SOURCE, json: AsJson = False) -> int:
    """Show the tools that a toolset includes, and their cost.

    Exits with 1 if it names tools that do not exist.

    Args:
        name: The toolset.
    """
    from casual_mcp_nb.base.tokens import total_tokens
    from casual_mcp_nb.display import words
    from casual_mcp_nb.display.view import KeyValues, Name, Table, View, columns
    from casual_mcp_nb.servers.views import rule_words

    config = source.load(starts=True)
    tool_set = _existing(config, name)
    with source.connected(config) as session:
        problem = ""
        try:
            session.selection.tool_set = name
        except UsageError as error:
            problem = str(error)
        everything = session.tools.now
        chosen = [] if problem else [tool for tool in everything if everything.mode(tool) != "off"]
    tokens = total_tokens(chosen)
    if json:
        tools = [{"name": str(tool.tool_name), "tokens": tool.tokens} for tool in chosen]
        write_json(
            {**_plain(name, tool_set), "tools": tools, "tokens": tokens, "problem": problem or None}
        )
    else:
        facts = (("Description", tool_set.description), ("Includes", rule_words(tool_set.servers)))
        table = Table(
            columns("Tool", "Tokens #"),
            tuple((Name(str(each.tool_name)), f"≈ {each.tokens:,}") for each in chosen),
        )
        note = f"{words.count(len(chosen), 'tool')}, {words.tokens(tokens, 'estimated')}"
        show(View("toolset", name, (KeyValues(facts), table), note=note))
    if problem:
        tell(problem)
    return exit_code(not problem)


@toolsets.command
def create(
    name: str,
    /,
    *,
    include: Names = (),
    exclude: Names = (),
    description: str = "",
    source: Source = _SOURCE,
) -> None:
    """Create a toolset. Without --include and --exclude it asks for each server, on a terminal.

    Args:
        name: Its name.
        include: A server (math), or a tool of one (files:read_file). Can be given several times.
        exclude: All tools of a server but this one (files:write_file). Can be given several times.
        description: Its purpose.
    """
    config = source.load(starts=True)
    if name in config.tool_sets:
        raise UsageError(
            f"There is already a toolset {shown(name)}.",
            hint=f"To change it: casual-mcp-nb toolsets edit {name}",
        )
    rules: Rules = {}
    if include or exclude:
        change(rules, include=include, exclude=exclude, servers=config.servers)
        _check_names(source, config, [*include, *exclude])
    else:
        _check_asking("--include")
        rules, description = _prompt_for_rules(source, config, rules, description)
    _save(config, name, rules, description)


@toolsets.command
def edit(
    name: str,
    /,
    *,
    include: Names = (),
    exclude: Names = (),
    remove: Names = (),
    description: str | None = None,
    source: Source = _SOURCE,
) -> None:
    """Change a toolset. Without options it asks for each server, on a terminal.

    Args:
        name: Its name.
        include: Add a server (math), or a single tool (files:read_file). Can be given several
            times.
        exclude: Leave out this tool (files:write_file). Can be given several times.
        remove: Leave out this server. Can be given several times.
        description: Its purpose.
    """
    from casual_mcp_nb.config.saving import plain_tool_set

    config = source.load(starts=True)
    before = _existing(config, name)
    rules = plain_tool_set(before)["servers"]
    text = before.description if description is None else description
    if include or exclude or remove or description is not None:
        change(rules, include=include, exclude=exclude, remove=remove, servers=config.servers)
        _check_names(source, config, [*include, *exclude])
    else:
        _check_asking("--include, --exclude, --remove or --description")
        rules, text = _prompt_for_rules(source, config, rules, text)
    _save(config, name, rules, text)


@toolsets.command
def delete(
    name: str,
    /,
    *,
    yes: Annotated[bool, Parameter(alias="-y", negative=())] = False,
    source: Source = _SOURCE,
) -> None:
    """Delete a toolset in the config file.

    Args:
        name: Its name.
        yes: Do not ask.
    """
    from casual_mcp_nb.config.saving import delete_tool_set

    config = source.load()
    _existing(config, name)
    if not yes:
        _check_asking("--yes")
        if ask(f"Delete the toolset {shown(name)}? [y/N] ").lower() not in ("y", "yes"):
            tell("Nothing was changed.")
            return
    path = delete_tool_set(_file_of(config), name)
    tell(f"Deleted {shown(name)} in {path.name}.")


def _prompt_for_rules(
    source: Source, config: Config, rules: Rules, description: str
) -> tuple[Rules, str]:
    from casual_mcp_nb.discovery.toolsets import resolve_tool_set
    from casual_mcp_nb.servers.views import rule_words

    with source.connected(config) as session:
        changed = {name: rule for name, rule in rules.items() if name not in session.servers}
        for server in session.servers:
            rule = _prompt_for_rule(session, server, rules.get(server))
            if rule:
                changed[server] = rule
    description = ask(f"Description [{description}]: ") or description
    tool_set = resolve_tool_set({"servers": changed}, {})
    tell(f"It includes {rule_words(tool_set.servers if tool_set else {})}.")
    if ask("Save it? [Y/n] ").lower() not in ("", "y", "yes"):
        raise UsageError("Nothing was changed.")
    return changed, description


def _prompt_for_rule(session: Session, server: str, before: Any) -> Any:
    """Prompt for a server's rule. An empty rule leaves it out."""
    from casual_mcp_nb.base.tokens import total_tokens
    from casual_mcp_nb.base.tool import for_models, of_server
    from casual_mcp_nb.display import words
    from casual_mcp_nb.display.words import SUMMARY, first

    tools = of_server(for_models(session.tools), server)
    if not tools:
        tell(f"{server}: it has no tools now, so it stays unchanged.")
        return before
    price = words.tokens(total_tokens(tools), "estimated")
    question = (
        f"{server} ({words.count(len(tools), 'tool')}, {price}, now {_words(before)}): [a]ll,"
        " [n]one, [s]ome, [e]xcept "
    )
    while True:
        match ask(f"{question}[Enter: no change] ").lower():
            case "":
                return before
            case "a" | "all":
                return True
            case "n" | "none":
                return None
            case "s" | "some" | "e" | "except" as answer:
                for number, tool in enumerate(tools, 1):
                    tell(
                        f"{number:4}  {tool.name}  ≈ {tool.tokens:,} "
                        f" {first(tool.description, SUMMARY)}"
                    )
                try:
                    names = chosen(
                        ask("Which? Numbers or names, such as 1, 3-5: "),
                        [tool.name for tool in tools],
                    )
                except UsageError as error:
                    tell(str(error))
                    continue
                if answer[0] == "s":
                    return names
                return {"exclude": names} if names else True


def _words(rule: Any) -> str:
    match rule:
        case True:
            return "all"
        case {"exclude": names}:
            return f"all but {', '.join(names)}"
        case list(names):
            return ", ".join(names) or "none"
        case _:
            return "none"


def _split(name: str, servers: Collection[str]) -> tuple[str, str]:
    """Split a server's or a tool's name. Of a server, the tool is empty."""
    from casual_mcp_nb.base.tool import ToolName

    if name in servers or ":" not in name:
        return name, ""
    tool = ToolName.split(name, servers)
    return tool.server, tool.tool


def _check_names(source: Source, config: Config, names: Sequence[str]) -> None:
    wanted: dict[str, list[str]] = {}
    for name in names:
        server, tool = _split(name, config.servers)
        # Whether its server exists is checked when it is saved.
        if tool and server in config.servers:
            wanted.setdefault(server, []).append(tool)
    named = {server: config.servers[server] for server in wanted}
    if not named:
        return
    try:
        with source.connected(
            config.model_copy(update={"servers": named, "tool_sets": {}})
        ) as session:
            for server in named:
                has = [tool.name for tool in session.tools if tool.server == server]
                unknown = [tool for tool in wanted[server] if tool not in has]
                if session.servers[server].state != "ready":
                    tell(
                        f"{shown(server)} did not start, so these tools could not be checked:"
                        f" {', '.join(map(shown, unknown))}."
                    )
                elif unknown:
                    raise UnknownNameError(f"tool of server {server}", unknown[0], has)
    except TrustRequiredError:
        tell(
            "You have not accepted this config, so nothing was started, and these tools were not"
            " checked."
        )


def _check_asking(option: str) -> None:
    if not can_ask():
        raise UsageError("Without a terminal, you cannot be asked.", hint=f"Use {option}.")


def _existing(config: Config, name: str) -> ToolSetConfig:
    if name not in config.tool_sets:
        raise UnknownNameError("toolset", name, config.tool_sets)
    return config.tool_sets[name]


def _file_of(config: Config) -> Any:
    if config.path is None:
        raise UsageError("There is no config file to save to.", hint="Name a config: --config FILE")
    return config.path


def _save(config: Config, name: str, rules: Mapping[str, Any], description: str) -> None:
    from casual_mcp_nb.config.saving import save_tool_set
    from casual_mcp_nb.discovery.toolsets import resolve_tool_set

    tool_set = resolve_tool_set({"description": description, "servers": dict(rules)}, {})
    assert tool_set is not None
    # What a toolset names already may be a server that only a process adds.
    before = config.tool_sets.get(name)
    servers = {*config.servers, *(before.servers if before else ())}
    path = save_tool_set(_file_of(config), name, tool_set, servers, overwrite=True)
    tell(f"Saved {shown(name)} in {path.name}.")


def _plain(name: str, tool_set: ToolSetConfig) -> dict[str, Any]:
    from casual_mcp_nb.config.saving import plain_tool_set

    return {
        "name": name,
        "description": tool_set.description,
        "servers": plain_tool_set(tool_set)["servers"],
    }
