"""This package's use of libraries beyond their documentation: one place that lists it, its reason
and its fallback.

CI runs this test and those of `tests/servers` and `tests/providers` with the lowest and with the
newest releases that `pyproject.toml` allows.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from casual_llm import OllamaClient

from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.providers._clients import builds_requests

PACKAGE = Path(__file__).resolve().parents[2] / "casual_mcp_nb"


@dataclass(frozen=True)
class Used:
    """A name of a library.

    Args:
        distribution: The library.
        place: The module, and the name in it.
        why: What it is used for, and where.
        without: What happens in a release that does not have it.
        parameters: The parameters that are relied on.
    """

    distribution: str
    place: str
    why: str
    without: str
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.place.rpartition(":")[2].rpartition(".")[2]


BUILDS = ("self", "model", "messages", "options")
NO_REQUESTS = "the client cannot be created, and the error names the release that can"
PRIVATE = [
    Used(
        "mcp",
        "mcp.client.session:ClientSession._absorb_tool_listing",
        "servers/_sdk_session.py reads a long list of tools in slices, and tells the session what"
        " it read",
        "tools with wrong `x-mcp-header`s are offered, and no argument is repeated in a header",
        ("self", "result", "complete"),
    ),
    Used(
        "mcp",
        "mcp.client.session:ClientSession._build_capabilities",
        "servers/_sdk_session.py declares roots and sampling only to the versions that have them",
        "they are declared to all versions",
        ("self", "version"),
    ),
    Used(
        "mcp",
        "mcp.client.auth.oauth2:OAuthClientProvider._get_token_endpoint",
        "servers/sign_in.py sends the requests of other grants there, and proofs with each request"
        " to it",
        "only a person can sign in",
        ("self",),
    ),
    Used(
        "mcp",
        "mcp.client.auth.oauth2:OAuthClientProvider._expected_issuer",
        "servers/sign_in.py tells the person where they sign in",
        "no one can sign in",
        ("self",),
    ),
    Used(
        "fastmcp",
        "fastmcp.client.client:Client._await_with_session_monitoring",
        "servers/_sdk_session.py leaves the watching of a session to the session",
        "each request takes two more tasks",
        ("self", "coro"),
    ),
    Used(
        "casual-llm",
        "casual_llm.providers.openai:OpenAIClient._build_request_kwargs",
        "providers/builtin/openai.py builds a request without sending it: casual-llm's own call"
        " loses usage and tool calls",
        NO_REQUESTS,
        BUILDS,
    ),
    Used(
        "casual-llm",
        "casual_llm.providers.anthropic:AnthropicClient._build_request_kwargs",
        "providers/builtin/anthropic.py, likewise",
        NO_REQUESTS,
        BUILDS,
    ),
    Used(
        "casual-llm",
        "casual_llm.providers.ollama:OllamaClient._build_request_kwargs",
        "providers/builtin/ollama.py, likewise",
        NO_REQUESTS,
        BUILDS,
    ),
    Used(
        "openai",
        "openai:AsyncStream._iter_events",
        "providers/builtin/openai.py reads a stream to its end, where the SDK leaves generators for"
        " the loop to close",
        "each streamed chat with OpenAI's chat completions fails",
        ("self",),
    ),
    Used(
        "ollama",
        "ollama:AsyncClient._request",
        "providers/builtin/ollama.py sends schemas as they are, which the SDK's own models"
        " would cut",
        "each chat with Ollama fails",
        ("self",),
    ),
]
EXTENDED = [
    Used(
        "mcp",
        "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher.send_raw_request",
        "servers/_sdk_session.py repairs results before the SDK validates them",
        "one wrong part of a result makes the whole call fail",
        ("self", "method", "params", "opts"),
    ),
    Used(
        "mcp",
        "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher.run",
        "servers/_sdk_session.py learns of the end of a stream",
        "a server that ended is noticed at the next call",
        ("self", "on_request", "on_notify"),
    ),
    Used(
        "mcp",
        "mcp.client.session:ClientSession.validate_tool_result",
        "servers/_sdk_session.py keeps a result that breaks its own schema",
        "such a call fails, and the check runs on the event loop",
        ("self", "name", "result"),
    ),
    Used(
        "mcp",
        "mcp.client.session:ClientSession.dispatch_input_request",
        "servers/_sdk_session.py refuses what was not declared",
        "a server can ask for what was not declared, and gets the SDK's answer",
        ("self", "ctx", "request"),
    ),
    Used(
        "mcp",
        "mcp.client.streamable_http:streamable_http_client",
        "servers/transport.py raises the limit of an event",
        "servers over HTTP cannot be connected",
        ("url", "http_client", "max_sse_event_size"),
    ),
    *(
        Used(
            "mcp",
            f"mcp.client.auth.oauth2:OAuthClientProvider.{name}",
            f"servers/sign_in.py {why}",
            without,
            parameters,
        )
        for name, why, without, parameters in (
            (
                "_auth_flow",
                "adds proofs of possession",
                "bound tokens are refused",
                ("self", "request"),
            ),
            ("_initialize", "reads the stored tokens", "each session signs in again", ("self",)),
            (
                "_perform_authorization",
                "obtains tokens by other grants",
                "only a person can sign in",
                ("self",),
            ),
            (
                "_handle_token_response",
                "reads bound tokens",
                "they are refused",
                ("self", "response"),
            ),
            (
                "_handle_refresh_response",
                "reads bound tokens",
                "they are not renewed",
                ("self", "response"),
            ),
            (
                "_select_authorization_server",
                "keeps to the config's issuer",
                "a server chooses",
                ("self", "advertised"),
            ),
        )
    ),
    Used(
        "fastmcp",
        "fastmcp.client.transports.base:TransportOptions",
        "servers/_sdk_session.py provides its own session class",
        "no server can be connected",
        ("session_class",),
    ),
]
"""Public names that are overridden, or whose parameters are not in every release."""


@pytest.mark.defect("D15")
@pytest.mark.parametrize("used", [*PRIVATE, *EXTENDED], ids=lambda used: used.place)
def test_what_is_used_of_a_library_is_there(used: Used) -> None:
    release = f"{used.distribution} {version(used.distribution)}"
    module, _, path = used.place.partition(":")
    try:
        thing = importlib.import_module(module)
        for name in path.split("."):
            thing = getattr(thing, name)
    except (ImportError, AttributeError):
        pytest.fail(f"{release} has no {used.place}. {used.why}; without it: {used.without}.")
    missing = [name for name in used.parameters if name not in inspect.signature(thing).parameters]  # type: ignore[arg-type]
    assert not missing, f"{used.place} of {release} takes no {', '.join(missing)}. {used.why}."


def test_no_private_method_of_these_libraries_is_used_that_is_not_listed() -> None:
    ours: set[str] = set()
    called: dict[str, str] = {}
    for path in PACKAGE.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                ):
                    ours.add(name)
                case (
                    ast.Attribute(attr=name, ctx=ast.Store())
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    ours.add(name)
                case ast.Call(func=ast.Attribute(attr=name, value=value)) if re.match(
                    "_[a-z]", name
                ):
                    if (
                        path.relative_to(PACKAGE).parts[0] in ("providers", "servers")
                        and ast.unparse(value) != "os"
                    ):
                        called[name] = str(path.relative_to(PACKAGE))
    assert {
        name: path
        for name, path in called.items()
        if name not in ours | {used.name for used in PRIVATE}
    } == {}


def test_a_release_of_casual_llm_that_builds_no_requests_is_named() -> None:
    class Changed:
        """A client of a later release."""

    with pytest.raises(MissingDependencyError, match=r"casual-llm [\d.]+ builds .*casual-llm=="):
        builds_requests(Changed())
    client = OllamaClient()  # type: ignore[misc]
    assert builds_requests(client) is client
