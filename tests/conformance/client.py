"""The client that the official conformance suite runs: a `Session` in ordinary use, which calls
each tool of a server once.

The suite starts `launch.py` with the server's address as its last argument; the scenario, the
protocol version and what a scenario needs beside are in variables of the environment. What goes
over the wire is judged there. Imports take most of a client's time, so they are made once: `python
client.py PLACE` listens at a place and forks a client for each `launch.py`.
"""

from __future__ import annotations

import concurrent.futures
import faulthandler
import json
import os
import select
import shlex
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import casual_llm  # noqa: F401

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import ServerError, UsageError
from casual_mcp_nb.notebook.questions import FormQuestion, SignInQuestion
from casual_mcp_nb.servers import transport as _http  # noqa: F401

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
        config |= {"auth": "oauth", "sign_in": sign_in(scenario)}
        # What an earlier server at the same port left behind is not known here.
        os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()
        os.environ["BROWSER"] = f"{shlex.join([sys.executable, str(BROWSER)])} %s &"
    session = Session({"mcpServers": {"server": config}})
    session.questions.panel_opened()
    threading.Thread(target=answer, args=(session,), daemon=True).start()
    # Questions of a cell that blocks would be asked with `input()`.
    session.parts.engine.submit(session.parts.starter.view())[0].result()
    with session:
        if session.servers["server"].state != "ready":
            sys.exit(session.servers["server"].error)
        for tool, arguments in calls(scenario, list(session.tools)):
            try:
                print(f"{tool}: {session.tools.call(tool, **arguments).result}")
            except ServerError as error:
                print(f"{tool}: {error}", file=sys.stderr)


def sign_in(scenario: str) -> dict[str, Any]:
    """Say how to sign in, from what the suite tells its client."""
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    client = {
        name: given[name] for name in ("client_id", "client_secret", "issuer") if name in given
    }
    match scenario.removeprefix("auth/"):
        case "basic-cimd":
            return {"client_metadata_url": "https://conformance-test.local/client-metadata.json"}
        case "client-credentials-basic":
            return {"grant": "client_credentials", **client}
        case "client-credentials-jwt":
            key, algorithm = given["private_key_pem"], given["signing_algorithm"]
            return {
                "grant": "client_credentials",
                "private_key": key,
                "signing_algorithm": algorithm,
                **client,
            }
        case "wif-jwt-bearer":
            return {"grant": "jwt_bearer", "assertion": given["valid_jwt"], **client}
        case "enterprise-managed-authorization":
            identity = {"assertion": given["idp_id_token"], "idp_client_id": given["idp_client_id"]}
            return {
                "grant": "identity_assertion",
                "idp_token_url": given["idp_token_endpoint"],
                **identity,
                **client,
            }
    return client


def calls(scenario: str, tools: list[ToolSpec]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Say which tools are called with what: as the scenario wishes, or each once with an example
    for what it requires.
    """
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "toolCalls" in context:
        yield from ((call["name"], call["arguments"]) for call in context["toolCalls"])
    elif scenario == "json-schema-2020-12-preservation":
        schemas = {tool.name: tool.input_schema for tool in tools}
        echo = next(
            name for name, schema in schemas.items() if "schema" in schema.get("properties", {})
        )
        yield echo, {"schema": next(schema for name, schema in schemas.items() if name != echo)}
    else:
        yield from ((tool.name, _example(tool.input_schema)) for tool in tools)


def answer(session: Session) -> None:
    """Accept each address, and send each form that the server asks to be filled in with the
    defaults, or else agreement.
    """
    while True:
        try:
            question = session.questions.wait(3600)
        except UsageError:
            return
        if isinstance(question, SignInQuestion):
            # The browser answers it.
            concurrent.futures.wait([question.future])
        elif isinstance(question, FormQuestion):
            question.answer(
                {
                    field.name: True
                    for field in question.fields
                    if (field.kind, field.default) == ("boolean", None)
                }
            )
        else:
            question.give_up("The suite asks for forms only.")


def _example(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {
        name: EXAMPLES.get(properties.get(name, {}).get("type"), "text")
        for name in schema.get("required", ())
    }


def serve(place: str) -> None:
    """Fork a client for each connection, until a line or the end of the input comes.

    Args:
        place: The path of the socket.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(place)
        here.listen()
        print("ready", flush=True)
        while here in select.select([here, sys.stdin], [], [])[0]:
            there, _ = here.accept()
            with there:
                if os.fork() == 0:
                    here.close()
                    be_client(there)


def be_client(there: socket.socket) -> NoReturn:
    """Take over streams, environment and address of a `launch.py`, and tell it how it ended."""
    code: Any = 1
    try:
        faulthandler.dump_traceback_later(MAX_SECONDS, exit=True)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(there, 1, 3)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        address, variables = json.loads(message + there.makefile("rb").read())
        os.environ.clear()
        os.environ.update(variables)
        main(address)
        code = 0
    except SystemExit as end:
        print(end, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        there.send(b"%d" % code)
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
