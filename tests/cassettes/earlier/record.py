"""Record the conversation of the cassettes in this folder, with any release: `python record.py
FILE`.

Each is named after the day of the code that recorded it. A new one is added when what is recorded
changes, and none is changed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {},
    "tool_discovery": {"enabled": True, "defer_all": True},
    "tool_results": {"max_tokens": 200},
}
HARBOUR = {
    "berth": "Find the berth of a ship.",
    "tide": "Look up the tide at a port.",
    "depth": "Measure the depth of the water.",
    "tug": "Order a tug for a ship.",
    "pilot": "Call a pilot to a ship.",
    "log_entry": "Write an entry in the log of a ship.",
}
SHOP = {
    "create_chart": "Create a chart from a table.",
    "delete_chart": "Delete a chart.",
    "list_orders": "List the orders of a customer.",
    "pay": "Pay an invoice.",
    "refund": "Refund an order.",
    "find_customer": "Find a customer by name.",
}
FIND, BERTH, TIDE, TUG = "search_tools", "harbour__berth", "harbour__tide", "harbour__tug"
TURNS: dict[str, list[Any]] = {
    "Make a chart.": [
        call(FIND, query="make a chart"),
        call("shop__create_chart", what="sales"),
        "There it is.",
    ],
    "Where is Fram?": [
        call(FIND, query="where does a ship lie"),
        call(BERTH, what="Fram"),
        call(TUG, what="Fram"),
        call(FIND, query="call a tug"),
        call(TUG, what="Fram"),
        "Berth 7.",
    ],
    "And a long one.": [
        call(FIND, query="tide at a port", server_name="harbour"),
        call(TIDE, what="Oslo", count=300),
        call(TIDE, count="many"),
        call("no_such_tool"),
        "Long.",
    ],
}


def server(name: str, tools: dict[str, str]) -> FastMCP[Any]:
    """Make a server whose tools repeat a word."""
    made: FastMCP[Any] = FastMCP(name)
    for tool, about in tools.items():
        made.tool(_repeating(tool), name=tool, description=about)
    return made


def _repeating(tool: str) -> Any:
    def run(what: str = "", count: int = 1) -> str:
        return f"{tool} of {what}: " + "word " * count

    return run


def main(file: Path) -> None:
    """Record the cassette."""
    in_process = {"harbour": server("harbour", HARBOUR), "shop": server("shop", SHOP)}
    with Session(CONFIG, in_process=in_process, quiet=True, store=None) as session:
        # The name in the first releases.
        use = session.cassette if hasattr(session, "cassette") else session.cassettes.use
        recording = use(file, "all")
        for prompt, answers in TURNS.items():
            session.chat(prompt, model=scripted_model(*answers), echo="none")
        recording.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
