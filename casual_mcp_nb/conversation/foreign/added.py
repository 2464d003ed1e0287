"""What other agents write themselves, before the person's words or in place of them."""

from __future__ import annotations

import re

_ELEMENTS = (
    # Claude Code.
    *("bash-input", "bash-stderr", "bash-stdout", "command-args", "command-message"),
    *("command-name", "ide_diagnostics", "ide_opened_file", "ide_selection"),
    *("local-command-caveat", "local-command-stderr", "local-command-stdout", "new-diagnostics"),
    *("session-start-hook", "system-reminder", "task-notification", "teammate-message"),
    *("user-memory-input", "user-prompt-submit-hook"),
    # Codex.
    *("INSTRUCTIONS", "app-context", "collaboration_mode", "environment_context", "permissions"),
    *("skill", "subagent_notification", "turn_aborted", "user_instructions", "user_shell_command"),
)
_ADDED = re.compile(
    rf"\A(?:\s*(?:<({'|'.join(_ELEMENTS)})\b[^<>]*>.*?(?:</\1>|\Z)"
    r"|# AGENTS\.md instructions.*?(?:</INSTRUCTIONS>|\Z)"
    r"|\[(?:document|[Ii]mage|Pasted text|Request interrupted|The file has no message)\b[^\]]*\]))+",
    re.DOTALL,
)


def own_words(text: str) -> str:
    """Leave out what an agent wrote before the person's words, such as `<system-reminder>`.

    Empty if the person wrote nothing.
    """
    return _ADDED.sub("", text)
