"""`casual-mcp-nb check` and `doctor`: validate a config, and check that its requirements are met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli.exit_codes import FAILED
from casual_mcp_nb.cli.source import DEFAULT_CONFIG, Source, connect
from casual_mcp_nb.cli.terminal import AsJson, Flag, show, tell, write_json
from casual_mcp_nb.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session
    from casual_mcp_nb.types.diagnosis import Check

ConfigFile = Annotated[Path, Parameter(alias="-c")]
_OF_A_CONFIG = ("Model SDKs", "Commands", "Config", "Keys", "Prices", "Servers", "Toolsets", "Templates")


def check(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    keys: bool = True,
    trust: Flag = False,
    json: AsJson = False,
) -> int:
    """Check a config: keys and names, the programs that its servers need, toolsets, templates. Fails if something is wrong.

    Nothing is started unless --connect says so.

    Args:
        config: The config file.
        connect: Start the servers too, and check that they have the tools that toolsets name.
        keys: Whether a missing API key fails.
        trust: With --connect, start what the config names although you have not accepted it yet.
        json: Write JSON.
    """
    try:
        loaded = Source(config, trust=trust).load()
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
        checks = [replace(each, verdict="warn") if each.part == "Keys" else each for each in checks]
    return _report(checks, json)


def doctor(
    config: ConfigFile = DEFAULT_CONFIG,
    *,
    connect: Flag = False,
    demo: Flag = False,
    trust: Flag = False,
    tool: Annotated[str | None, Parameter(alias="-t")] = None,
    query: Annotated[str | None, Parameter(alias="-q")] = None,
    json: AsJson = False,
) -> int:
    """Check everything that a session needs: packages, keys, programs, servers. Fails if something needed does not work.

    With --tool: how far a tool gets, listed by its server, selected, searchable, sent to the model; fails if it is stopped.

    Args:
        config: The config file.
        tool: A tool, such as math:add, or a server for all its tools; starts the servers.
        query: With --tool, what a model might search for: also tells the rank.
        connect: Start the servers too.
        demo: Check the bundled demo servers instead of a config.
        trust: With --connect, start what the config names although you have not accepted it yet.
        json: Write JSON.
    """
    if query is not None and tool is None:
        raise UsageError("Which tool should the query find?", hint="For example: casual-mcp-nb doctor --tool math:add -q sum")
    with Source(config, demo=demo, trust=trust).open(starts=connect or tool is not None) as session:
        if tool is not None:
            return _report_on_tool(session, tool, query, json)
        return _report(list(_checks(session, connect)), json)


def _report_on_tool(session: Session, name: str, query: str | None, json: bool) -> int:
    connect(session)
    diagnosis = session.doctor(name, query)
    if json:
        write_json(diagnosis.as_dict())
    else:
        show(diagnosis)
    return FAILED if diagnosis.stopped else 0


def _checks(session: Session, connected: bool) -> Iterator[Check]:
    from casual_mcp_nb.types.diagnosis import Check

    if connected:
        connect(session)
    yield from session.doctor()
    for name in session.toolsets if connected else ():
        try:
            session.selection.tool_set = name
        except UsageError as error:
            yield Check("Toolsets", name, "fail", str(error))
        else:
            yield Check("Toolsets", name, "ok", "its servers and tools exist")


def _report(checks: list[Check], json: bool) -> int:
    from casual_mcp_nb.types.diagnosis import Diagnosis

    diagnosis = Diagnosis(tuple(checks))
    if json:
        write_json({"ok": diagnosis.ok, "error": None, "checks": [asdict(each) for each in checks]})
    else:
        show(diagnosis)
    if not diagnosis.ok:
        tell(f"{sum(each.verdict == 'fail' for each in checks)} of {len(checks)} checks failed.")
    return 0 if diagnosis.ok else FAILED
