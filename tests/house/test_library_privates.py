"""Private names of libraries that this package overrides or calls: one place that says which, and fails when one moves.

pyproject.toml holds these libraries at their minor releases. To let a new one in: install it, run this test and those of
`tests/connections` and `tests/providers`, then move the bound.
"""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version

import pytest

PRIVATES: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("mcp", "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher._dispatch"): (
        "connections/_session.py answers messages that cannot be read",
        ("self", "item", "on_request", "on_notify", "sender_ctx"),
    ),
    ("mcp", "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher._write"): (
        "connections/_session.py records what is sent",
        ("self", "message", "metadata"),
    ),
    ("mcp", "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher.send_raw_request"): (
        "connections/_session.py repairs results before the SDK validates them",
        ("self", "method", "params", "opts"),
    ),
    ("mcp", "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher.run"): (
        "connections/_session.py hears of the end of a stream",
        ("self", "on_request", "on_notify"),
    ),
    ("mcp", "mcp.client.session:ClientSession._absorb_tool_listing"): (
        "connections/_session.py reads a long list of tools in slices",
        ("self", "result", "complete"),
    ),
    ("mcp", "mcp.client.session:ClientSession.validate_tool_result"): (
        "connections/_session.py keeps a result that breaks its own schema",
        ("self", "name", "result"),
    ),
    ("mcp", "mcp.client.session:ClientSession._build_capabilities"): (
        "connections/_session.py declares roots and sampling only to the versions that have them",
        ("self", "version"),
    ),
    ("mcp", "mcp.client.session:ClientSession.dispatch_input_request"): (
        "connections/_session.py refuses what was not declared",
        ("self", "ctx", "request"),
    ),
    ("mcp", "mcp.client.streamable_http:streamable_http_client"): (
        "connections/_http.py lifts the limit of an event",
        ("url", "http_client", "max_sse_event_size"),
    ),
    ("fastmcp", "fastmcp.client.client:Client._await_with_session_monitoring"): (
        "connections/_session.py leaves the monitoring to the session",
        ("self", "coro"),
    ),
    ("fastmcp", "fastmcp.client.transports.base:TransportOptions"): (
        "connections/_session.py hands in its own session class",
        ("session_class",),
    ),
    ("casual-llm", "casual_llm.providers.openai:OpenAIClient._build_request_kwargs"): (
        "providers/_openai.py builds a request without sending it",
        ("self", "model", "messages", "options"),
    ),
    ("casual-llm", "casual_llm.providers.anthropic:AnthropicClient._build_request_kwargs"): (
        "providers/_anthropic.py builds a request without sending it",
        ("self", "model", "messages", "options"),
    ),
    ("casual-llm", "casual_llm.providers.ollama:OllamaClient._build_request_kwargs"): (
        "providers/_ollama.py builds a request without sending it",
        ("self", "model", "messages", "options"),
    ),
    ("ollama", "ollama:AsyncClient._request"): (
        "providers/_ollama.py sends tools as they are",
        ("self",),
    ),
}
"""For each private: the distribution and where the name is, what it is used for, and the parameters that are relied on."""


@pytest.mark.defect("D15")
@pytest.mark.parametrize(("distribution", "place"), PRIVATES)
def test_a_private_that_we_rely_on_is_where_it_was(distribution: str, place: str) -> None:
    use, parameters = PRIVATES[distribution, place]
    said = f"{distribution} {version(distribution)} moved {place}, on which casual_mcp_nb relies: {use}."
    module, _, path = place.partition(":")
    try:
        thing = importlib.import_module(module)
        for name in path.split("."):
            thing = getattr(thing, name)
    except (ImportError, AttributeError):
        pytest.fail(f"{said} It is not there any more.")
    missing = [name for name in parameters if name not in inspect.signature(thing).parameters]  # type: ignore[arg-type]
    assert not missing, f"{said} It takes no {', '.join(missing)} any more."
