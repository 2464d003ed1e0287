"""What other agents write themselves, before the person's words or in place of them."""

from __future__ import annotations

import re

_ELEMENTS = (
    # Claude Code.
    r"bash-(?:input|stderr|stdout)|command-(?:args|message|name)"
    r"|ide_(?:diagnostics|opened_file|selection)|local-command-(?:caveat|stderr|stdout)"
    r"|new-diagnostics|session-start-hook|system-reminder|task-notification|teammate-message"
    r"|user-memory-input|user-prompt-submit-hook"
    # Codex.
    r"|INSTRUCTIONS|app-context|collaboration_mode|environment_context|permissions|skill"
    r"|subagent_notification|turn_aborted|user_instructions|user_shell_command"
)
_NOTES = r"document|[Ii]mage|Pasted text|Request interrupted|The file has no message"
_ADDED = re.compile(
    rf"\A(?:\s*(?:<({_ELEMENTS})\b[^<>]*>.*?(?:</\1>|\Z)"
    rf"|# AGENTS\.md instructions.*?(?:</INSTRUCTIONS>|\Z)|\[(?:{_NOTES})\b[^\]]*\]))+",
    re.DOTALL,
)


def own_words(text: str) -> str:
    """Leave out what an agent wrote before the person's words, such as `<system-reminder>`.

    Empty if the person wrote nothing.
    """
    return _ADDED.sub("", text)
