"""The client that the official conformance suite runs: a `Session` in ordinary use, which calls each tool of a server once.

The suite gives the server's address as the last argument; the scenario, the protocol version and what a scenario needs beside
are in variables of the environment. What goes over the wire is judged there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ServerError, UsageError
from casual_mcp_nb.notebook.interaction.elicitation import FormQuestion
from casual_mcp_nb.types.tool import ToolSpec

EXAMPLES: dict[str, Any] = {"number": 2.5, "integer": 2, "boolean": True, "array": [], "object": {}}
BROWSER = Path(__file__).with_name("browser.py")
START_SECONDS = 60
MAX_SECONDS = 100
"""Before the suite gives up, which leaves the client running and says nothing."""


def main(address: str) -> None:
    """Connect to a server and call each of its tools.

    Args:
        address: The server's address.
    """
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    protocol = "legacy" if version < "2026" else "auto"
    config: dict[str, Any] = {"url": address, "protocol": protocol, "init_timeout": START_SECONDS}
    if scenario.startswith("auth/"):
        config["auth"] = "oauth"
        os.environ["BROWSER"] = f"{shlex.join([sys.executable, str(BROWSER)])} %s &"
    with Session({"mcpServers": {"server": config}}) as session:
        if session.servers["server"].state != "ready":
            sys.exit(session.servers["server"].error)
        threading.Thread(target=answer_forms, args=(session,), daemon=True).start()
        for tool, arguments in calls(scenario, list(session.tools)):
            try:
                print(f"{tool}: {session.call_tool(tool, **arguments).result}")
            except ServerError as error:
                print(f"{tool}: {error}", file=sys.stderr)


def calls(scenario: str, tools: list[ToolSpec]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Say which tools are called with what: as the scenario wishes, or each once with an example for what it requires."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "toolCalls" in context:
        yield from ((call["name"], call["arguments"]) for call in context["toolCalls"])
    elif scenario == "json-schema-2020-12-preservation":
        schemas = {tool.name: tool.input_schema for tool in tools}
        echo = next(name for name, schema in schemas.items() if "schema" in schema.get("properties", {}))
        yield echo, {"schema": next(schema for name, schema in schemas.items() if name != echo)}
    else:
        yield from ((tool.name, _example(tool.input_schema)) for tool in tools)


def answer_forms(session: Session) -> None:
    """Send each form that the server asks to be filled in with the defaults, and agree where there is none."""
    while True:
        try:
            question = session.questions.wait(3600)
        except UsageError:
            return
        if isinstance(question, FormQuestion):
            question.answer({field.name: True for field in question.fields if (field.kind, field.default) == ("boolean", None)})
        else:
            question.give_up("The suite asks for forms only.")


def _example(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: EXAMPLES.get(properties.get(name, {}).get("type"), "text") for name in schema.get("required", ())}


if __name__ == "__main__":
    faulthandler.dump_traceback_later(MAX_SECONDS, exit=True)
    main(sys.argv[-1])
