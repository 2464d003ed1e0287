"""A server that has what the official suite asks servers for, made with the SDK: `python
everything.py` tells its address.

It is judged itself, and again through `Session.serve.mcp`, which has to add no failure.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp_types as mcp
import uvicorn
from kit.desk import PIXEL
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

IMAGE = base64.b64encode(PIXEL).decode()
AUDIO = base64.b64encode(
    b"RIFF&\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\2\0\0\0\0\0"
).decode()
PAUSE_SECONDS = 0.05
MISSING_CAPABILITY = -32021
STATE = "signed-by-this-server"

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def form(**properties: Any) -> dict[str, Any]:
    """The schema of a form, all of whose fields are required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT, YES = {"type": "string"}, {"type": "boolean"}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
}
_TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
_PLAIN = ["option1", "option2", "option3"]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _PLAIN},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "legacyEnum": {"type": "string", "enum": _PLAIN, "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
    },
}

RESOURCES: dict[str, mcp.TextResourceContents | mcp.BlobResourceContents] = {
    "test://static-text": mcp.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": mcp.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=IMAGE
    ),
    "test://watched-resource": mcp.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched."
    ),
}
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")

Context = Any
Answer = mcp.CallToolResult | mcp.InputRequiredResult


def said(*content: Any) -> mcp.CallToolResult:
    """A result of texts and other blocks."""
    return mcp.CallToolResult(
        content=[
            mcp.TextContent(text=block) if isinstance(block, str) else block for block in content
        ]
    )


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> mcp.EmbeddedResource:
    """A resource in a result or a message."""
    return mcp.EmbeddedResource(
        resource=mcp.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    )


def elicitation(message: str, **properties: Any) -> mcp.ElicitRequest:
    """A question to a person."""
    return mcp.ElicitRequest(
        params=mcp.ElicitRequestFormParams(message=message, requested_schema=form(**properties))
    )


def sampling(text: str, max_tokens: int = 100) -> mcp.CreateMessageRequest:
    """A question to a model."""
    message = mcp.SamplingMessage(role="user", content=mcp.TextContent(text=text))
    return mcp.CreateMessageRequest(
        params=mcp.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


NAME = elicitation("What is your name?", name=TEXT)
CONFIRM = elicitation("Please confirm", ok=YES)
CAPITAL = sampling("What is the capital of France?")
GREETING = sampling("Generate a greeting", 50)
ROOTS = mcp.ListRootsRequest()


class Everything:
    """The server: its tools are the methods whose names begin with `tool_`."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.revision = 0
        self.server: Server[Any] = _Server(
            "everything",
            version="1.0.0",
            instructions="A server for the conformance suite.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_subscribe_resource=_accept,
            on_unsubscribe_resource=_accept,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_completion=self.complete,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        self.server.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, _accept)

    @property
    def tools(self) -> dict[str, Callable[..., Awaitable[Answer]]]:
        """The tools by name."""
        return {
            f"test_{name[5:]}": getattr(self, name)
            for name in dir(self)
            if name.startswith("tool_")
        }

    async def list_tools(self, context: Context, params: Any) -> mcp.ListToolsResult:
        empty: dict[str, Any] = {"type": "object", "properties": {}}
        schemas = {
            "test_sampling": form(prompt=TEXT),
            "test_elicitation": form(message=TEXT),
            "test_custom_headers": form(region={"type": "string", "x-mcp-header": "Region"}),
        }
        about = f" Revision {self.revision}."
        tools = [
            mcp.Tool(
                name=name, description=f"{name}.{about}", input_schema=schemas.get(name, empty)
            )
            for name in self.tools
        ]
        rich = mcp.Tool(
            name="json_schema_2020_12_tool",
            description="A rich schema.",
            input_schema=SCHEMA_2020_12,
        )
        return mcp.ListToolsResult(tools=[*tools, rich])

    async def call_tool(self, context: Context, params: mcp.CallToolRequestParams) -> Answer:
        tool = self.tools.get(params.name)
        if tool is None:
            raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await tool(context, params)

    async def tool_simple_text(self, context: Context, params: Any) -> Answer:
        return said("This is a simple text response for testing.")

    async def tool_image_content(self, context: Context, params: Any) -> Answer:
        return said(mcp.ImageContent(data=IMAGE, mime_type="image/png"))

    async def tool_audio_content(self, context: Context, params: Any) -> Answer:
        return said(mcp.AudioContent(data=AUDIO, mime_type="audio/wav"))

    async def tool_embedded_resource(self, context: Context, params: Any) -> Answer:
        return said(embedded("test://embedded-resource", "This is an embedded resource content."))

    async def tool_multiple_content_types(self, context: Context, params: Any) -> Answer:
        mixed = embedded(
            "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
        )
        return said(
            "Multiple content types test:",
            mcp.ImageContent(data=IMAGE, mime_type="image/png"),
            mixed,
        )

    async def tool_tool_with_logging(self, context: Context, params: Any) -> Answer:
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await _log(context, text)
            await asyncio.sleep(PAUSE_SECONDS)
        return said("Done.")

    async def tool_logging_tool(self, context: Context, params: Any) -> Answer:
        await _log(context, "Logged.")
        return said("Done.")

    async def tool_tool_with_progress(self, context: Context, params: Any) -> Answer:
        for step in (0, 50, 100):
            await context.session.report_progress(step, 100)
            await asyncio.sleep(PAUSE_SECONDS)
        return said("Done.")

    async def tool_error_handling(self, context: Context, params: Any) -> Answer:
        return mcp.CallToolResult(
            content=[mcp.TextContent(text="This tool intentionally fails.")], is_error=True
        )

    async def tool_custom_headers(self, context: Context, params: Any) -> Answer:
        return said(f"Region: {(params.arguments or {}).get('region')}")

    async def tool_sampling(self, context: Context, params: Any) -> Answer:
        answer = await _asked(
            context, sampling(params.arguments["prompt"]), mcp.CreateMessageResult
        )
        return said(f"LLM response: {answer.content.text}")

    async def tool_elicitation(self, context: Context, params: Any) -> Answer:
        question = elicitation(params.arguments["message"], username=TEXT, email=TEXT)
        answer = await _asked(context, question, mcp.ElicitResult)
        return said(f"User response: action={answer.action}, content={json.dumps(answer.content)}")

    async def tool_elicitation_sep1034_defaults(self, context: Context, params: Any) -> Answer:
        return await self._filled_in(context, DEFAULTS)

    async def tool_elicitation_sep1330_enums(self, context: Context, params: Any) -> Answer:
        return await self._filled_in(context, ENUMS)

    async def _filled_in(self, context: Context, schema: dict[str, Any]) -> Answer:
        question = mcp.ElicitRequest(
            params=mcp.ElicitRequestFormParams(message="Please fill in", requested_schema=schema)
        )
        answer = await _asked(context, question, mcp.ElicitResult)
        return said(
            f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"
        )

    async def tool_reconnection(self, context: Context, params: Any) -> Answer:
        if context.close_sse_stream is not None:
            await context.close_sse_stream()
        await asyncio.sleep(PAUSE_SECONDS)
        return said("Done.")

    async def tool_missing_capability(self, context: Context, params: Any) -> Answer:
        capabilities = context.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            raise MCPError(
                MISSING_CAPABILITY,
                "This tool needs sampling.",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return said("Done.")

    async def tool_streaming_elicitation(self, context: Context, params: Any) -> Answer:
        await context.session.report_progress(1, 2)
        return await self.tool_input_required_result_elicitation(context, params)

    async def tool_trigger_resource_change(self, context: Context, params: Any) -> Answer:
        uri = "test://watched-resource"
        await self.bus.publish(ResourceUpdated(uri))
        told = mcp.ResourceUpdatedNotification(
            params=mcp.ResourceUpdatedNotificationParams(uri=uri)
        )
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await context.session.send_notification(told, context.request_id)
        return said("Changed.")

    async def tool_trigger_tool_change(self, context: Context, params: Any) -> Answer:
        self.revision += 1
        await self.bus.publish(ToolsListChanged())
        return said("Changed.")

    async def tool_trigger_prompt_change(self, context: Context, params: Any) -> Answer:
        self.revision += 1
        await self.bus.publish(PromptsListChanged())
        return said("Changed.")

    async def tool_input_required_result_elicitation(self, context: Context, params: Any) -> Answer:
        answer = (params.input_responses or {}).get("user_name")
        if not isinstance(answer, mcp.ElicitResult):
            return _needs(user_name=NAME)
        return said(f"Hello, {(answer.content or {}).get('name')}!")

    async def tool_input_required_result_sampling(self, context: Context, params: Any) -> Answer:
        answer = (params.input_responses or {}).get("capital_question")
        return said(f"Answer: {answer}") if answer else _needs(capital_question=CAPITAL)

    async def tool_input_required_result_list_roots(self, context: Context, params: Any) -> Answer:
        answer = (params.input_responses or {}).get("client_roots")
        return said(f"Roots: {answer}") if answer else _needs(client_roots=ROOTS)

    async def tool_input_required_result_request_state(
        self, context: Context, params: Any
    ) -> Answer:
        _check(params)
        return said("state-ok") if params.input_responses else _needs(STATE, confirm=CONFIRM)

    tool_input_required_result_tampered_state = tool_input_required_result_request_state

    async def tool_input_required_result_multiple_inputs(
        self, context: Context, params: Any
    ) -> Answer:
        _check(params)
        wanted = {"user_name": NAME, "greeting": GREETING, "client_roots": ROOTS}
        return (
            said("Thanks.")
            if set(wanted) <= set(params.input_responses or {})
            else _needs(STATE, **wanted)
        )

    async def tool_input_required_result_multi_round(self, context: Context, params: Any) -> Answer:
        match params.request_state:
            case None:
                return _needs("round-1", step1=elicitation("Step 1: What is your name?", name=TEXT))
            case "round-1":
                return _needs(
                    "round-2", step2=elicitation("Step 2: What is your favorite color?", color=TEXT)
                )
            case "round-2":
                return said("Thanks.")
        raise MCPError(mcp.INVALID_PARAMS, "Invalid request state")

    async def tool_input_required_result_capabilities(
        self, context: Context, params: Any
    ) -> Answer:
        capabilities = context.session.client_capabilities or mcp.ClientCapabilities()
        wanted: dict[str, Any] = (
            {"capital_question": CAPITAL} if capabilities.sampling is not None else {}
        )
        wanted |= {"user_name": NAME} if capabilities.elicitation is not None else {}
        return said("Thanks.") if params.input_responses or not wanted else _needs(**wanted)

    async def list_resources(self, context: Context, params: Any) -> mcp.ListResourcesResult:
        return mcp.ListResourcesResult(
            resources=[
                mcp.Resource(name=uri[7:], uri=uri, mime_type=each.mime_type)
                for uri, each in RESOURCES.items()
            ]
        )

    async def list_templates(
        self, context: Context, params: Any
    ) -> mcp.ListResourceTemplatesResult:
        template = mcp.ResourceTemplate(
            name="data", uri_template="test://template/{id}/data", mime_type="application/json"
        )
        return mcp.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: Context, params: mcp.ReadResourceRequestParams
    ) -> mcp.ReadResourceResult:
        uri = str(params.uri)
        if uri in RESOURCES:
            return mcp.ReadResourceResult(contents=[RESOURCES[uri]])
        if (match := _TEMPLATE.fullmatch(uri)) is None:
            raise MCPError(mcp.INVALID_PARAMS, "Resource not found", {"uri": uri})
        text = json.dumps(
            {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        )
        return mcp.ReadResourceResult(
            contents=[mcp.TextResourceContents(uri=uri, mime_type="application/json", text=text)]
        )

    async def list_prompts(self, context: Context, params: Any) -> mcp.ListPromptsResult:
        arguments = {
            "test_simple_prompt": (),
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
            "test_prompt_with_image": (),
            "test_input_required_result_prompt": (),
        }
        return mcp.ListPromptsResult(
            prompts=[
                mcp.Prompt(
                    name=name,
                    description=f"Revision {self.revision}.",
                    arguments=[mcp.PromptArgument(name=each, required=True) for each in names],
                )
                for name, names in arguments.items()
            ]
        )

    async def get_prompt(
        self, context: Context, params: mcp.GetPromptRequestParams
    ) -> mcp.GetPromptResult | mcp.InputRequiredResult:
        given = params.arguments or {}
        content: list[Any]
        match params.name:
            case "test_simple_prompt":
                content = ["This is a simple prompt for testing."]
            case "test_prompt_with_arguments":
                content = [f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"]
            case "test_prompt_with_embedded_resource":
                resource = embedded(given["resourceUri"], "Embedded resource content for testing.")
                content = [resource, "Please process the embedded resource above."]
            case "test_prompt_with_image":
                content = [
                    mcp.ImageContent(data=IMAGE, mime_type="image/png"),
                    "Please analyze the image above.",
                ]
            case "test_input_required_result_prompt":
                if "user_context" not in (params.input_responses or {}):
                    return _needs(
                        user_context=elicitation(
                            "What context should the prompt use?", context=TEXT
                        )
                    )
                content = ["Thanks."]
            case _:
                raise MCPError(mcp.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        blocks = [
            mcp.TextContent(text=block) if isinstance(block, str) else block for block in content
        ]
        return mcp.GetPromptResult(
            messages=[mcp.PromptMessage(role="user", content=block) for block in blocks]
        )

    async def complete(
        self, context: Context, params: mcp.CompleteRequestParams
    ) -> mcp.CompleteResult:
        values = [
            word for word in ("paris", "park", "party") if word.startswith(params.argument.value)
        ]
        return mcp.CompleteResult(
            completion=mcp.Completion(values=values, total=len(values), has_more=False)
        )


class _Server(Server[Any]):
    def create_initialization_options(self, *_args: Any, **_kwargs: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(True, True, True))


async def _accept(context: Context, params: Any) -> mcp.EmptyResult:
    return mcp.EmptyResult()


async def _log(context: Context, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await context.session.send_log_message("info", text, related_request_id=context.request_id)


async def _asked(context: Context, request: Any, result: Any) -> Any:
    from mcp.shared.message import ServerMessageMetadata

    related = ServerMessageMetadata(related_request_id=context.request_id)
    return await context.session.send_request(request, result, metadata=related)


def _needs(state: str | None = None, **requests: Any) -> mcp.InputRequiredResult:
    return mcp.InputRequiredResult(input_requests=requests, request_state=state)


def _check(params: Any) -> None:
    if params.request_state not in (None, STATE):
        raise MCPError(mcp.INVALID_PARAMS, "Invalid request state")


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve it on a free port of this computer, on another thread; give the address."""
    app = Everything().server.streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
            assert thread.is_alive(), "the server has ended"
        (listener,) = server.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


if __name__ == "__main__":
    with served() as address:
        print(address, flush=True)
        threading.Event().wait()
