"""`casual-mcp-nb migrate-config`: convert a config from casual-mcp or another host for good."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli import exit_code
from casual_mcp_nb.cli.terminal import DEFAULT_CONFIG, AsJson, Flag, show_diff, tell, write_json
from casual_mcp_nb.errors import ConfigError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.config.migration import MigratedConfig


def migrate_config(
    source: Path = DEFAULT_CONFIG,
    output: Path | None = None,
    /,
    *,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Flag = False,
    json: AsJson = False,
) -> int:
    """Convert a config from casual-mcp, Claude Desktop, VS Code, Cursor or another MCP host, and
    show the differences.

    A config from casual-mcp before 1.0, whose models name a provider instead of a client, is
    converted in place. Only clients and models change. Any other file is left alone, and its
    secrets are not copied. The new file refers to environment variables instead. They are listed,
    and so is everything that gets lost.

    Args:
        source: The old file.
        output: The new file. By default casual_mcp_config.json, or the old file if it is from
            casual-mcp before 1.0.
        overwrite: Replace the new file if it exists.
        dry_run: Write nothing.
    """
    from casual_mcp_nb.base.files import write_text
    from casual_mcp_nb.config.document import read_text
    from casual_mcp_nb.config.loader import check_config
    from casual_mcp_nb.config.migration import is_legacy_file, migrated, migrated_in_place
    from casual_mcp_nb.config.saving import replace_text

    source = source.expanduser()
    legacy = is_legacy_file(source)
    if output is None:
        output = source if legacy else DEFAULT_CONFIG
    output = output.expanduser()
    same = output.exists() and output.samefile(source)
    in_place = legacy and same
    if in_place:
        new = migrated_in_place(source)
    else:
        new = migrated(source, output.absolute().parent)
    environ = {**dict.fromkeys(new.references, "stand-in"), **os.environ}
    check_config(new.text, output, environ=environ, source=new.source)
    exists = output.exists()
    before = shown_before = ""
    if exists:
        before = read_text(output)
        shown_before = _without_secrets(output, before)
    done = same and not legacy and not new.of_host
    refused = exists and not (overwrite or dry_run or in_place or done)
    if not (refused or dry_run or done):
        if exists:
            replace_text(output.resolve(), before, new.text)
        else:
            write_text(output, new.text, overwrite=False, hint="")
    if json:
        variables = [{"name": name, "was": where} for name, where in new.variables.items()]
        written = None if refused or dry_run or done else str(output)
        write_json(
            {
                "config": new.data,
                "notes": list(new.notes),
                "variables": variables,
                "written": written,
            }
        )
    elif not done:
        _show(output, shown_before, new)
    if done:
        tell(f"{shown(output)} already has the current format. Nothing was changed.")
    elif refused:
        tell(
            f"{shown(output)} exists and was not changed. Replace it with --overwrite, or name"
            " another file."
        )
    elif dry_run:
        if before == new.text:
            tell(f"{shown(output)} would stay as it is.")
        else:
            tell("Nothing was written.")
    else:
        tell(f"Written: {shown(output)}. Next: casual-mcp-nb check {output}")
    return exit_code(not refused)


def _show(output: Path, before: str, new: MigratedConfig) -> None:
    from casual_mcp_nb.base.secret import redacted

    after = redacted(new.text, new.secrets)
    old, new_name = os.devnull, str(output)
    if before:
        old = new_name
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), old, new_name, lineterm=""
    )
    show_diff(lines)
    for note in new.notes:
        tell(note)
    for name, where in new.variables.items():
        tell(f"Set {name} in the environment or in .env: it was at {where}.")


def _without_secrets(path: Path, text: str) -> str:
    """Remove the secrets from a config's text. Anything that is not a config becomes empty."""
    from casual_mcp_nb.base.secret import redacted
    from casual_mcp_nb.config.migration import migrated

    try:
        secrets = migrated(path, path.absolute().parent).secrets
    except ConfigError:
        return ""
    return redacted(text, secrets)
