"""`casual-mcp-nb sessions` and `usage`: sessions with other agents, and which tools were used."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.cli.terminal import AsJson, show, write_json
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.usage import ToolUsage


def sessions(
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 50,
    json: AsJson = False,
) -> None:
    """List your sessions with Claude Code and Codex on this computer, the newest first.

    Nothing is changed, sent or executed. In a notebook, `%mcp open FILE` shows one.

    Args:
        limit: How many are listed.
    """
    from casual_mcp_nb.conversation.foreign.listing import find_foreign_sessions

    found = find_foreign_sessions(limit)
    if not json:
        show(found, whole=True)
        return
    rows = []
    for each in found:
        row = {**asdict(each), "path": str(each.path), "changed": each.changed.isoformat()}
        rows.append(row)
    write_json(rows)


def usage(
    conversation: str | None = None,
    *,
    sessions: Annotated[Path | None, Parameter(name="--sessions")] = None,
    store: Path | None = None,
    json: AsJson = False,
) -> None:
    """Show how tools were really used in saved conversations, and what those cost that never were.

    Only names, counts and times are read. Nothing is changed or sent.

    Args:
        conversation: The id of a saved conversation, or how it begins. Without it, all count.
        sessions: Another agent's session, or a folder of them, in place of saved conversations.
        store: The file with saved conversations, in place of MCP_STORE or the default one.
    """
    if sessions is None:
        found = _stored_usage(store, conversation)
    elif conversation is None and store is None:
        found = _usage_of_sessions(sessions)
    else:
        raise UsageError(
            "--sessions takes the place of saved conversations.",
            hint="Leave out the conversation and --store, or --sessions.",
        )
    if not json:
        show(found, whole=True)
        return
    rows = []
    for each in found:
        rows.append({**asdict(each), "tool": str(each.tool)})
    counts = attributes(found, ("conversations", "turns", "requests", "calls"))
    write_json(
        {
            **counts,
            "unread": found.unread_records,
            "never_used": [str(each.tool) for each in found.never_used],
            "unused_tokens": found.unused_tokens,
            "tools": rows,
        }
    )


def _stored_usage(path: Path | None, id: str | None) -> ToolUsage:
    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.conversation.store import ConversationStore, store_path
    from casual_mcp_nb.notebook.saving import DEFAULT, store_of

    store = None if path is not None else store_of(DEFAULT, Config())
    if store is None:
        # A script saves nothing by itself, but reads what notebooks have saved.
        store = ConversationStore.at(path or store_path())
    if not store.path.exists():
        raise UsageError(
            f"{shown(store.path)} does not exist: there are no saved conversations.",
            hint="Name the file with --store, or another agent's session with --sessions.",
        )
    return store.usage(id)


def _usage_of_sessions(path: Path) -> ToolUsage:
    """Count the uses of tools in a session of another agent, or in all of a folder."""
    from casual_mcp_nb.conversation.conversation import Conversation
    from casual_mcp_nb.conversation.usage import UsageCounter

    path = path.expanduser()
    counter = UsageCounter()
    files = [path]
    if path.is_dir():
        # Files of subagents are read with the session that they belong to.
        found = sorted([*path.rglob("*.json"), *path.rglob("*.jsonl")])
        files = [each for each in found if each.is_file() and _is_session(each)]
        if not files:
            raise UsageError(
                f"No file in {shown(path)} is a session.",
                hint="casual-mcp-nb sessions lists those of Claude Code and Codex here.",
            )
    for file in files:
        conversation = Conversation.load(file)
        counter.add(conversation, conversation.unread_records)
    return counter.usage()


def _is_session(path: Path) -> bool:
    from casual_mcp_nb.conversation.foreign.opening import reader_of

    return not path.name.startswith("agent-") and reader_of(path) is not None
