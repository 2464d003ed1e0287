"""Hints for the next action, in the words of a door: a notebook, Python, a shell, HTTP.

Hints are written for notebooks or Python, as in `%mcp reconnect time` or `session.connect()`. When
an error is made, its hint is reworded for the door of this process. Sentences that make sense only
at another door are left out. Only hints are reworded, because other texts have what servers and
models said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Door = Literal["notebook", "python", "shell", "http"]
"""A notebook with the magics, Python without them, the command `casual-mcp-nb`, or an HTTP API
client.
"""

WAYS = (
    ("%mcp demo --model {}", 'Session.quick("{}", servers={{…}})', "casual-mcp-nb demo --model {}"),
    ("%mcp demo", "Session.demo()", "casual-mcp-nb demo"),
    ("%mcp connect … --model {}", 'Session(…, model="{}")', "--model {}"),
    ("%mcp connect", "Session.from_config(…)", ""),
    ("%mcp reconnect {}", 'session.servers.reconnect("{}")', "casual-mcp-nb servers"),
    ("%mcp tasks wait {}", "session.servers.tasks.wait({})", ""),
    ("%mcp tasks result {}", "session.servers.tasks.result({})", ""),
    ("%mcp tasks cancel {}", "session.servers.tasks.cancel({})", ""),
    ("%mcp limit {} off", 'session.limits.clear("{}")', ""),
    ("%mcp limit {} DOLLARS", 'session.limits.set("{}", max_cost=…)', ""),
    ("%mcp limit {} COUNT tokens", 'session.limits.set("{}", max_total_tokens=…)', ""),
    ("%mcp servers", "session.connect()", "casual-mcp-nb servers"),
    ("%mcp doctor {}", 'session.servers.doctor("{}")', "casual-mcp-nb doctor --tool {}"),
    ("%mcp doctor", "session.servers.doctor()", "casual-mcp-nb doctor --connect"),
    ("%mcp load {}", 'session.tools.load("{}")', ""),
    ("%mcp defer {}", 'session.selection.servers["{}"] = "deferred"', ""),
    ("%mcp memory on", "session.tools.memory.on = True", ""),
    ("%mcp toolset all", "session.selection.tool_set = None", ""),
    ("%mcp conversations", "session.conversations", ""),
    ("%mcp close, then %mcp resume {}", 'session.close(), then Session.resume("{}")', ""),
    ("%mcp resume ID", "session.conversations.resume(id)", ""),
    ("%mcp resume {}", 'session.conversations.resume("{}")', ""),
    ("%mcp new", "session.conversations.new()", ""),
    ("%mcp add {}", 'session.servers.add("{0}", "{0}")', ""),
    ("%mcp find {}", 'session.servers.find("{}")', "casual-mcp-nb find {}"),
    ("%mcp trust --accept", "session.consent.trust().accept()", "--trust"),
    ("%mcp trust", "session.consent.trust()", ""),
    ("overwrite=True, or %mcp export with --overwrite", "overwrite=True", "--overwrite"),
)
"""The same action in a notebook, in Python, and in a shell, which is empty if there is no such
command.
"""

_ARGUMENT = r"([\w:./\-]*\w)"
_OF_A_NOTEBOOK = r"%%?mcp\b"
_OF_PYTHON = (
    r"\b[Ss]ession(?:\.\w|\()|\b[a-z]\w*=(?:True|False|None|…|['\"\d])|\bawait\b|\bIn Python\b"
)
_FOREIGN = {
    "python": re.compile(_OF_A_NOTEBOOK),
    "shell": re.compile(f"{_OF_A_NOTEBOOK}|{_OF_PYTHON}"),
    "http": re.compile(f"{_OF_A_NOTEBOOK}|{_OF_PYTHON}|casual-mcp-nb|(?<!\\w)--\\w"),
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

_door: Door = "python"


def enter(door: Door) -> None:
    """Word this process's hints for a door from now on."""
    global _door
    _door = door


@contextmanager
def at(door: Door) -> Iterator[None]:
    """Word hints for a door while the body runs."""
    before = _door
    enter(door)
    try:
        yield
    finally:
        enter(before)


def in_words_of(text: str, door: Door | None = None) -> str:
    """Reword a hint for a door, without the sentences that cannot be followed there.

    Args:
        text: The hint.
        door: The door, or None for that of this process.

    Returns the hint, which can be empty.
    """
    door = door or _door
    if door == "notebook" or not text:
        return text
    for magic, python, shell in WAYS:
        if door == "python":
            text = _replaced(text, magic, python)
        elif door == "shell" and shell:
            text = _replaced(text, magic, shell)
            text = _replaced(text, python, shell)
    foreign = _FOREIGN[door]
    return " ".join(sentence for sentence in _SENTENCE.split(text) if not foreign.search(sentence))


def pip_install(package: str) -> str:
    """Write the command that installs a package for this process."""
    if _door == "notebook":
        # A shell's `pip` may belong to another Python than the kernel.
        return f"%pip install {package}"
    return f"pip install {package}"


def _replaced(text: str, form: str, words: str) -> str:
    """Reword hints that have a certain form, and keep their arguments."""
    parts = [part.replace("{{", "{").replace("}}", "}") for part in re.split(r"\{0?\}", form)]
    if parts[0] not in text:
        return text
    pattern = _ARGUMENT.join(map(re.escape, parts))
    if form[-1].isalnum() or form[-1] == "}":
        # The form ends where a word ends.
        pattern += r"(?![\w-])"
    return re.sub(pattern, lambda match: words.format(*match.groups()), text)
