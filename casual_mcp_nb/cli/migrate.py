"""`casual-mcp-nb migrate-config`: make a config of ours from one of casual-mcp or of another MCP host."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli.exit_codes import FAILED
from casual_mcp_nb.cli.source import DEFAULT_CONFIG
from casual_mcp_nb.cli.terminal import AsJson, Flag, show_diff, tell, write_json
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
    """Make a config from one of casual-mcp, Claude Desktop, VS Code, Cursor or another MCP host, and show what is new in it.

    A config of casual-mcp before 1.0, whose models name a provider instead of a client, is converted in its file: only clients
    and models change. Otherwise secrets are not copied: the new file refers to environment variables, which are listed. So is
    what is not kept.

    Args:
        source: The old file.
        output: The new file; by default casual_mcp_config.json, or the old file if it is of casual-mcp before 1.0.
        overwrite: Replace the new file if it exists.
        dry_run: Write nothing.
        json: Write JSON.
    """
    from casual_mcp_nb.config.loader import check_config
    from casual_mcp_nb.config.migration import is_legacy_file, migrated, migrated_in_place
    from casual_mcp_nb.config.saving import replace_text
    from casual_mcp_nb.types.files import write_text

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
        tell(f"{shown(output)} has the present format already. Nothing was changed.")
    elif refused:
        tell(f"{shown(output)} exists and was not changed. To replace it: --overwrite; or name another file.")
    elif not dry_run:
        tell(f"Written: {shown(output)}. Next: casual-mcp-nb check {output}")
    return FAILED if refused else 0


def _show(output: Path, before: str, new: MigratedConfig) -> None:
    """Show the changes in the file, the settings that are dropped, and the variables to set."""
    from casual_mcp_nb.types.secret import redacted

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
    from casual_mcp_nb.config.migration import migrated
    from casual_mcp_nb.types.secret import redacted

    try:
        secrets = migrated(path, path.absolute().parent).secrets
    except ConfigError:
        return ""
    return redacted(text, secrets)
