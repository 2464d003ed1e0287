"""`casual-mcp-nb check`, `doctor` and `migrate-config`: whether a config is valid, and configs of other hosts as ours."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli import FAILED
from casual_mcp_nb.cli.source import DEFAULT_CONFIG, Source, connect
from casual_mcp_nb.cli.terminal import AsJson, Flag, show, show_diff, tell, write_json
from casual_mcp_nb.errors import ConfigError, UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.diagnosis import Check
    from casual_mcp_nb.config.migration import MigratedConfig
    from casual_mcp_nb.session import Session


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
        trust: With --connect, start the servers of the config although you have not accepted it yet.
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
    """Check everything that a session needs: packages, keys, programs, servers. Exits with 1 if a required check fails.

    With --tool: how far a tool gets, listed by its server, selected, searchable, sent to the model; fails if it is stopped.

    Args:
        config: The config file.
        tool: A tool, such as math:add, or a server for all its tools; starts the servers.
        query: With --tool, words that a model might search for; adds the rank.
        connect: Start the servers too.
        demo: Check the bundled demo servers instead of a config.
        trust: With --connect, start the servers of the config although you have not accepted it yet.
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
    diagnosis = session.servers.doctor(name, query)
    if json:
        write_json(diagnosis.as_dict())
    else:
        show(diagnosis)
    return FAILED if diagnosis.stopped else 0


def _checks(session: Session, connected: bool) -> Iterator[Check]:
    from casual_mcp_nb.base.diagnosis import Check

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
    from casual_mcp_nb.base.diagnosis import Diagnosis

    diagnosis = Diagnosis(tuple(checks))
    if json:
        write_json({"ok": diagnosis.ok, "error": None, "checks": [asdict(each) for each in checks]})
    else:
        show(diagnosis)
    if not diagnosis.ok:
        tell(f"{sum(each.verdict == 'fail' for each in checks)} of {len(checks)} checks failed.")
    return 0 if diagnosis.ok else FAILED


def migrate_config(
    source: Path = DEFAULT_CONFIG,
    output: Path | None = None,
    /,
    *,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Flag = False,
    json: AsJson = False,
) -> int:
    """Make a config from one of casual-mcp, Claude Desktop, VS Code, Cursor or another MCP host, and show the differences.

    A config of casual-mcp before 1.0, whose models name a provider instead of a client, is converted in its file: only clients
    and models change. Otherwise secrets are not copied: the new file refers to environment variables, which are listed. So is
    the parts that are lost.

    Args:
        source: The old file.
        output: The new file; by default casual_mcp_config.json, or the old file if it is of casual-mcp before 1.0.
        overwrite: Replace the new file if it exists.
        dry_run: Write nothing.
        json: Write JSON.
    """
    from casual_mcp_nb.base.files import write_text
    from casual_mcp_nb.config.loader import check_config
    from casual_mcp_nb.config.migration import is_legacy_file, migrated, migrated_in_place
    from casual_mcp_nb.config.saving import replace_text

    source = source.expanduser()
    legacy = is_legacy_file(source)
    output = (output or (source if legacy else DEFAULT_CONFIG)).expanduser()
    same = output.exists() and output.samefile(source)
    in_place = legacy and same
    new = migrated_in_place(source) if in_place else migrated(source, output.absolute().parent)
    environ = {**dict.fromkeys(new.references, "stand-in"), **os.environ}
    check_config(new.text, output, environ=environ, source=new.source)
    exists = output.exists()
    before = _text_of(output) if exists else ""
    done = same and not legacy and not new.of_host
    refused = exists and not (overwrite or dry_run or in_place or done)
    shown_before = _without_secrets(output, before) if exists else ""
    if not (refused or dry_run or done):
        if exists:
            replace_text(output.resolve(), before, new.text)
        else:
            write_text(output, new.text, overwrite=False, hint="")
    if json:
        variables = [{"name": name, "was": where} for name, where in new.variables.items()]
        written = None if refused or dry_run or done else str(output)
        write_json({"config": new.data, "notes": list(new.notes), "variables": variables, "written": written})
    elif not done:
        _show(output, shown_before, new)
    if done:
        tell(f"{shown(output)} already has the current format. Nothing was changed.")
    elif refused:
        tell(f"{shown(output)} exists and was not changed. Replace it with --overwrite, or name another file.")
    elif not dry_run:
        tell(f"Written: {shown(output)}. Next: casual-mcp-nb check {output}")
    return FAILED if refused else 0


def _show(output: Path, before: str, new: MigratedConfig) -> None:
    """Show the changes in the file, the settings that are dropped, and the variables to set."""
    from casual_mcp_nb.base.secret import redacted

    after = redacted(new.text, new.secrets)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(output) if before else os.devnull, str(output), lineterm=""
    )
    show_diff(lines)
    for note in new.notes:
        tell(note)
    for name, where in new.variables.items():
        tell(f"Set {name} in the environment or in .env: it was at {where}.")


def _text_of(path: Path) -> str:
    from casual_mcp_nb.config.document import read_text

    return read_text(path)


def _without_secrets(path: Path, text: str) -> str:
    """Remove the secrets from the text of a config; anything that is not a config becomes empty."""
    from casual_mcp_nb.base.secret import redacted
    from casual_mcp_nb.config.migration import migrated

    try:
        secrets = migrated(path, path.absolute().parent).secrets
    except ConfigError:
        return ""
    return redacted(text, secrets)
