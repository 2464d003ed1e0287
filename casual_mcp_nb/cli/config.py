"""`casual-mcp-nb check` and `doctor`: check a config, or everything that a session needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli import FAILED, exit_code
from casual_mcp_nb.cli.terminal import (
    DEFAULT_CONFIG,
    NAME_ONE,
    AsJson,
    Flag,
    Source,
    connect,
    show,
    tell,
    write_json,
)
from casual_mcp_nb.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Check
    from casual_mcp_nb.session import Session


ConfigFile = Annotated[Path, Parameter(alias="-c")]
_OF_A_CONFIG = (
    "Model SDKs",
    "Commands",
    "Config",
    "Keys",
    "Prices",
    "Servers",
    "Toolsets",
    "Templates",
)


def check(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    keys: bool = True,
    trust: Flag = False,
    json: AsJson = False,
) -> int:
    """Check a config: keys and names, the programs that its servers need, toolsets, templates.

    Fails if something is wrong.

    Nothing is started without --connect.

    Args:
        config: The config file.
        connect: Start the servers too, and check that they have the tools that toolsets name.
        keys: Whether a missing API key fails.
        trust: With --connect, start the config's servers although you have not accepted it yet.
    """
    try:
        loaded = Source(config, trust=trust).load(starts=connect)
    except ConfigError as error:
        if not json:
            raise
        write_json({"ok": False, "error": str(error), "checks": []})
        return FAILED
    with Source(config, trust=trust).open(loaded, starts=connect) as session:
        checks = [each for each in _checks(session, connect) if each.part in _OF_A_CONFIG]
    if not connect:
        checks = [each for each in checks if each.part != "Servers" or each.verdict != "ok"]
    if not keys:
        for number, each in enumerate(checks):
            if each.part == "Keys":
                checks[number] = replace(each, verdict="warn")
    return _report(checks, json)


def doctor(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    demo: Flag = False,
    trust: Flag = False,
    tool: str | None = None,
    query: Annotated[str | None, Parameter(alias="-q")] = None,
    json: AsJson = False,
) -> int:
    """Check everything that a session needs: packages, keys, programs, servers.

    Exits with 1 if a required check fails. Without a config, checks what needs none.

    With --tool: how far a tool gets, listed by its server, selected, searchable, sent to the model.
    Fails if it is stopped.

    Args:
        config: The config file.
        tool: A tool, such as math:add, or a server for all its tools. Starts the servers.
        query: With --tool, words that a model might search for. Adds the rank.
        connect: Start the servers too.
        demo: Check the bundled demo servers instead of a config.
        trust: With --connect, start the config's servers although you have not accepted it yet.
    """
    if query is not None and tool is None:
        raise UsageError(
            "Which tool should the query find?",
            hint="For example: casual-mcp-nb doctor --tool math:add -q sum",
        )
    source, starts = Source(config, demo=demo, trust=trust), connect or tool is not None
    if source.is_missing and not starts:
        return _report(_checks_without_config(), json)
    with source.open(starts=starts) as session:
        if tool is not None:
            return _report_on_tool(session, tool, query, json)
        code = _report(list(_checks(session, connect)), json)
        if session.config.servers and not connect:
            tell("No server was started. To start and check them: --connect.")
        return code


def _checks_without_config() -> list[Check]:
    """Check what needs no config, and say that there is none."""
    from casual_mcp_nb.base.status import Check
    from casual_mcp_nb.config.loader import load_config

    missing = Check("Config", str(DEFAULT_CONFIG), "fail", "there is none in this folder", NAME_ONE)
    with Source().open(load_config({}), starts=False) as session:
        checks = [each for each in session.servers.doctor() if each.part != "Config"]
    return [*checks, missing]


def _report_on_tool(session: Session, name: str, query: str | None, json: bool) -> int:
    connect(session)
    diagnosis = session.servers.doctor(name, query=query)
    if json:
        write_json(diagnosis.as_dict())
    else:
        show(diagnosis)
    return exit_code(not diagnosis.stopped)


def _checks(session: Session, connected: bool) -> Iterator[Check]:
    from casual_mcp_nb.base.status import Check

    if connected:
        connect(session)
    yield from session.servers.doctor()
    for name in session.tools.sets if connected else ():
        try:
            session.selection.tool_set = name
        except UsageError as error:
            yield Check("Toolsets", name, "fail", str(error))
        else:
            yield Check("Toolsets", name, "ok", "its servers and tools exist")


def _report(checks: list[Check], json: bool) -> int:
    from casual_mcp_nb.base.status import Diagnosis

    diagnosis = Diagnosis(tuple(checks))
    if json:
        write_json({"ok": diagnosis.ok, "error": None, "checks": list(map(asdict, checks))})
    else:
        show(diagnosis)
    if not diagnosis.ok:
        tell(f"{sum(each.verdict == 'fail' for each in checks)} of {len(checks)} checks failed.")
    return exit_code(diagnosis.ok)
