"""Provider for OpenAI's Responses API, as a casual-llm client."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.wire_names import MAX_WIRE_NAME
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    FINDING,
    READ_RESULT,
    SEARCH_TOOLS,
    HostedCall,
)
from casual_mcp_nb.conversation.step import without_cards
from casual_mcp_nb.providers._calls import call_of
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    InvalidResponse,
    OwnClient,
    Reported,
    StreamTruncated,
    answer_of,
    as_sent,
    embed_over_openai,
    ended_early,
    first_found,
    gpt_defers,
    gpt_version,
    hosted_call,
    miss_of,
    over_openai,
    part_at,
    read_stream,
    taken_by,
    usage_of,
)
from casual_mcp_nb.providers._messages import (
    RESPONSES_IDS,
    Part,
    built,
    images,
    kept_fields,
    merged,
    parts_of,
)
from casual_mcp_nb.providers._options import (
    definitions_of,
    is_reasoning_model,
    messages_for,
    thinks,
    unsent_to_reasoning,
)
from casual_mcp_nb.providers._strict_schema import all_required, strict_schema, without_nulls
from casual_mcp_nb.providers.builtin.openai import MAX_TOOLS, MODELS
from casual_mcp_nb.providers.registry import (
    Definitions,
    OnText,
    ProviderAdapter,
    ProviderSpec,
    plain_tools_param,
)

if TYPE_CHECKING:
    from casual_llm import ChatOptions
    from casual_llm.messages import (
        AssistantMessage,
        AssistantToolCall,
        ChatMessage,
        ImageContent,
        TextContent,
        ToolResultMessage,
    )
    from openai.types.responses import (
        Response,
        ResponseOutputItem,
        ResponseStreamEvent,
        ResponseToolSearchCall,
    )
    from openai.types.responses import ResponseFunctionToolCall as FunctionCall
    from pydantic import BaseModel

    from casual_mcp_nb.base.config_base import RequestOptions
    from casual_mcp_nb.base.model_options import ReasoningEffort
    from casual_mcp_nb.conversation.step import ModelResponse


WIRE = "openai-responses"
_SEARCH_CALL = "tool_search_call"
_MAX_NAMESPACE = 128
_EARLIER = "_earlier"
_NEVER_FOUND = FINDING | {CALL_TOOL, READ_RESULT}
_HOSTED: Mapping[str, Mapping[str, Any]] = {
    "web_search": {"type": "web_search"},
    "file_search": {"type": "file_search"},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
}
# By type of item: the tool, and the fields for what the model asked and what came of it.
_HOSTED_CALLS = {
    "web_search_call": ("web_search", "action", "sources"),
    "file_search_call": ("file_search", "queries", "results"),
    "code_interpreter_call": ("code_interpreter", "code", "outputs"),
}
_STATUS_OF_CODE = {"server_error": 500, "rate_limit_exceeded": 429, "vector_store_timeout": 504}


class ResponsesClient(OwnClient):
    """A casual-llm client for OpenAI's Responses API."""

    def __init__(
        self, api_key: str | None = None, base_url: str | None = None, timeout: float = 60.0
    ) -> None:
        from openai import AsyncOpenAI

        self.client = AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout)

    async def ask(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Make a request without streaming."""
        return _read(await self._sent(model, messages, options), model, options)

    async def stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
    ) -> ModelResponse:
        """Make a streaming request. A server that answers in one piece is handled too."""
        from openai.types.responses import Response

        events = await self._sent(model, messages, options, stream=True)
        read = partial(_read, model=model, options=options)
        return await read_stream(
            events, on_text, _ResponseStream(model, options), Response.construct, read
        )

    async def _sent(
        self, model: str, messages: list[ChatMessage], options: ChatOptions, **more: Any
    ) -> Any:
        create = self.client.responses.create
        request = await built(_request, self, model, messages, options)
        return await create(**taken_by(create, request), **more)


def _offer_found(tools: Definitions, found_tools: Definitions) -> dict[str, Any]:
    return {**plain_tools_param(tools), "found": list(map(dict, found_tools))}


def _request(
    client: object, model: str, messages: Sequence[ChatMessage], options: ChatOptions
) -> dict[str, Any]:
    """Build the arguments for `responses.create`.

    OpenAI stores nothing: each request has the whole conversation.

    `temperature` and `top_p` are not sent to reasoning models, which refuse them. Options that the
    API lacks (`stop`, `seed`, penalties) are left out.
    """
    messages = merged(messages_for(client, model, messages, WIRE, RESPONSES_IDS))
    if options.system_message_handling == "merge":
        from casual_llm.message_converters.utils import merge_system_messages

        messages = merge_system_messages(messages)
    extra = {name: value for name, value in options.extra.items() if name not in ("tools", "found")}
    deferred = _Deferred.of(messages, options.extra.get("found"))
    tools = [_tool(tool) for tool in [*definitions_of(options), *deferred.plain]]
    thinks = is_reasoning_model(model) or "reasoning" in extra
    request: dict[str, Any] = {"store": False, **extra}
    if thinks:
        request.setdefault("include", ["reasoning.encrypted_content"])
    else:
        sampling = {"temperature": options.temperature, "top_p": options.top_p}
        request |= drop_none(sampling)
    if options.max_tokens is not None:
        request["max_output_tokens"] = options.max_tokens
    if tools:
        request |= {"tools": tools, "tool_choice": _tool_choice(options.tool_choice)}
    if options.response_format != "text":
        request["text"] = {**request.get("text", {}), "format": _format(options.response_format)}
    return request | {
        "model": model,
        "input": list(deferred.input(messages, model, {tool.get("name") for tool in tools})),
    }


@dataclass(frozen=True)
class _Deferred:
    """Tools that searches found, and where they join the input: behind the results from the calls
    that found them.

    Some models call a function in an `additional_tools` item in a separate namespace, and others in
    the default one, so a call by this model goes back as it came. A call by another model, or from
    before its function was deferred, goes back under a name that no function has, unless the
    function is in `tools`. So it is in no namespace, and stays the same when a search finds its
    function later.

    Args:
        plain: Definitions that are in `tools` all the same.
        added: The names that each message adds.
        definitions: The found tools, or None where the provider loads none.
    """

    plain: list[Mapping[str, Any]]
    added: list[list[str]]
    definitions: Mapping[str, Mapping[str, Any]] | None

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], found_tools: Definitions | None) -> _Deferred:
        if found_tools is None:
            return cls([], [[] for _ in messages], None)
        definitions = {tool["name"]: tool for tool in found_tools}
        added = first_found(messages, definitions)
        joining = set(chain.from_iterable(added))
        plain = [tool for name, tool in definitions.items() if name not in joining]
        return cls(plain, added, definitions)

    def input(
        self, messages: Sequence[ChatMessage], model: str, plain: Collection[object]
    ) -> Iterator[dict[str, Any]]:
        """Yield a conversation's items. Calls to tools in `plain` have no namespace."""
        waiting: list[dict[str, Any]] = []
        for message, names in zip(messages, self.added, strict=True):
            if waiting and message.role != "tool":
                yield {"type": "additional_tools", "role": "developer", "tools": waiting}
                waiting = []
            if names and self.definitions is not None and isinstance(message.content, str):
                message = message.model_copy(
                    update={"content": without_cards(message.content, names)}
                )
                waiting += [_tool(self.definitions[name], by_search=True) for name in names]
            match message.role:
                case "tool":
                    yield {
                        "type": "function_call_output",
                        "call_id": message.tool_call_id,
                        "output": _output(message),
                    }
                case "assistant":
                    yield from _answered(message, model, plain, native=self.definitions is not None)
                case "user" if isinstance(message.content, list):
                    yield {
                        "role": "user",
                        "content": list(map(_input_part, message.content)),
                    }
                case role:
                    yield {"role": role, "content": message.content or ""}
        if waiting:
            yield {"type": "additional_tools", "role": "developer", "tools": waiting}


def _tool(tool: Mapping[str, Any], *, by_search: bool = False) -> dict[str, Any]:
    if "type" in tool:
        return dict(tool)
    parameters = tool["parameters"]
    # With nulls for optional parameters, a found tool would cost more than its card does through
    # the bridge.
    strict = None
    if not by_search or all_required(parameters) == parameters:
        strict = strict_schema(parameters)
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": strict or dict(parameters),
        "strict": strict is not None,
    }


def _tool_choice(choice: str | None) -> str | dict[str, str]:
    if choice in (None, "auto", "none", "required"):
        return choice or "auto"
    return {"type": "function", "name": choice or ""}


def _format(wanted: str | type[BaseModel]) -> dict[str, Any]:
    if isinstance(wanted, str):
        return {"type": "json_object"}
    schema = wanted.model_json_schema()
    strict = strict_schema(all_required(schema))
    return {
        "type": "json_schema",
        "name": wanted.__name__[:64],
        "schema": strict or schema,
        "strict": strict is not None,
    }


def _output(message: ToolResultMessage) -> str | list[dict[str, Any]]:
    shown = images(message)
    if not shown:
        return message.content
    parts = list(map(_input_part, shown))
    if message.content:
        parts.insert(0, {"type": "input_text", "text": message.content})
    return parts


def _answered(
    message: AssistantMessage, model: str, plain: Collection[object], *, native: bool
) -> Iterator[dict[str, Any]]:
    own = iter(kept_fields(message, WIRE, model).calls)
    for part in parts_of(message, WIRE, model):
        if not isinstance(part, dict):
            yield _replayed(part, next(own), plain, native=native)
        elif part["type"] == "text":
            more = {name: value for name, value in part.items() if name not in ("type", "text")}
            yield {"role": "assistant", "content": part["text"], **more}
        else:
            yield part


def _replayed(
    call: AssistantToolCall, own: Mapping[str, Any], plain: Collection[object], *, native: bool
) -> dict[str, Any]:
    function = call.function
    if own.get("type") == _SEARCH_CALL:
        searched = {"type": _SEARCH_CALL, "execution": "client", "status": "completed"}
        return {**searched, "call_id": call.id, "arguments": json.loads(function.arguments)}
    call_item = {
        "type": "function_call",
        "call_id": call.id,
        "name": function.name,
        "arguments": function.arguments,
    }
    if function.name in plain or function.name in _NEVER_FOUND:
        return call_item
    if native and "namespace" not in own:
        return {**call_item, "name": f"{function.name[: MAX_WIRE_NAME - len(_EARLIER)]}{_EARLIER}"}
    namespace = own.get("namespace")
    if isinstance(namespace, str):
        call_item["namespace"] = namespace
    return call_item


def _input_part(part: TextContent | ImageContent) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "input_text", "text": part.text}
    source = part.source
    url = source
    if not isinstance(source, str):
        url = f"data:{part.media_type};base64,{source.get('data', '')}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _read(
    response: Response,
    model: str,
    options: ChatOptions,
    items: list[ResponseOutputItem] | None = None,
) -> ModelResponse:
    """Parse the response in a completed event. `items` is its output if it was streamed."""
    output: list[ResponseOutputItem] | None = items or getattr(response, "output", None)
    status = getattr(response, "status", None)
    if status == "failed":
        raise _failure(response.error)
    if not isinstance(output, list):
        raise InvalidResponse(as_sent(response))
    if status not in ("completed", "incomplete", None):
        raise StreamTruncated(f"The response is {status}.")
    found_names = {tool["name"] for tool in options.extra.get("found", ())}
    parts: list[Part] = []
    calls: list[AssistantToolCall] = []
    for item in output:
        part = _part(item, found_names)
        if part is not None:
            parts.append(part)
        if item.type == "function_call" or _is_search(item):
            calls.append(_call(item, options))
    reason = part_at(response, "incomplete_details.reason")
    # If the cache was not missed, there is no reason.
    miss = miss_of(
        part_at(response, "prompt_cache_diagnostics.reason"),
        part_at(response, "prompt_cache_diagnostics.cache_missed_tokens"),
    )
    answer = answer_of(
        parts,
        calls,
        wire=WIRE,
        model=model,
        usage=usage_of(response.usage, _COUNTS, miss),
        reason=reason or status,
        response_id=getattr(response, "id", None),
    )
    return replace(answer, hosted_calls=tuple(_hosted_calls(output)))


def _hosted_calls(output: Sequence[ResponseOutputItem]) -> Iterator[HostedCall]:
    """Collect calls to the provider's own tools.

    A web search's results are the pages that the answer cites.
    """
    ran = [item.to_dict(warnings=False) for item in output if item.type in _HOSTED_CALLS]
    searches = [item for item in ran if item["type"] == "web_search_call"]
    for item in ran:
        name, input_field, result = _HOSTED_CALLS[str(item["type"])]
        outcome = _cited(output) if searches and item is searches[-1] else item.get(result)
        failed = item.get("status") == "failed"
        yield hosted_call(name, item.get(input_field), outcome, failed=failed)


def _cited(output: Sequence[ResponseOutputItem]) -> list[object]:
    cited: dict[str, object] = {}
    for item in output:
        for part in item.content if item.type == "message" else ():
            for note in getattr(part, "annotations", None) or ():
                if note.type == "url_citation":
                    cited[str(note.url)] = note.to_dict(warnings=False)
    return list(cited.values())


def _failure(error: object) -> Exception:
    code, message = getattr(error, "code", None) or "failed", getattr(error, "message", None)
    if "policy" in code:
        return ContentFiltered(message or "")
    return Reported(f"{code}: {message or error}", _STATUS_OF_CODE.get(code, 400))


def _part(item: ResponseOutputItem, found_names: Collection[str]) -> Part | None:
    match item.type:
        case "function_call":
            namespace = getattr(item, "namespace", None)
            if not isinstance(namespace, str) or len(namespace) > _MAX_NAMESPACE:
                namespace = None
            call: Part = {"type": "call"}
            if namespace or getattr(item, "name", None) in found_names:
                call["fields"] = {"namespace": namespace}
            return call
        case "tool_search_call" if _is_search(item):
            return {"type": "call", "fields": {"type": _SEARCH_CALL}}
        case "tool_search_call" | "tool_search_output" | "additional_tools":
            # The provider's own search: without these, it does not know the functions that it
            # called.
            searched: Part = item.to_dict(exclude_none=True, warnings=False)
            searched.pop("created_by", None)
            return searched
        case kind if kind in _HOSTED_CALLS:
            ran: Part = item.to_dict(warnings=False)
            return ran
        case "message":
            text = "".join(
                getattr(part, "text", None) or getattr(part, "refusal", None) or ""
                for part in item.content
            )
            if not text:
                return None
            said: Part = {"type": "text", "text": text}
            phase = getattr(item, "phase", None)
            if phase:
                said["phase"] = phase
            return said
        case "reasoning" if part_at(item, "encrypted_content") or part_at(item, "content"):
            own: Part = item.to_dict(exclude_none=True)
            # The status is read-only.
            own.pop("status", None)
            return own
    return None


def _is_search(item: ResponseOutputItem) -> TypeGuard[ResponseToolSearchCall]:
    """Check whether an item asks this client to search, as it does where a request declares
    that.
    """
    return item.type == _SEARCH_CALL and getattr(item, "execution", None) == "client"


def _call(item: FunctionCall | ResponseToolSearchCall, options: ChatOptions) -> AssistantToolCall:
    if item.type == "tool_search_call":
        return call_of(item.call_id, SEARCH_TOOLS, item.arguments)
    arguments = item.arguments or ""
    tools = {}
    for tool in (*options.extra.get("tools", ()), *options.extra.get("found", ())):
        tools[tool.get("name")] = tool
    # A model can copy the name of an earlier call.
    name = item.name if item.name in tools else item.name.removesuffix(_EARLIER)
    schema = tools.get(name, {}).get("parameters")
    if "null" in arguments and schema is not None and strict_schema(schema) is not None:
        arguments = without_nulls(arguments, schema)
    return call_of(item.call_id, name, arguments)


def _diagnose(client: object, model: str, before: str | None) -> dict[str, Any]:
    if before is None or gpt_version(model) < (5, 6):
        return {}
    return {"prompt_cache_options": {"comparison_response_id": before}}


_COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cached_tokens": "input_tokens_details.cached_tokens",
    "reasoning_tokens": "output_tokens_details.reasoning_tokens",
    "cache_write_tokens": "input_tokens_details.cache_write_tokens",
}


@dataclass
class _ResponseStream:
    model: str
    options: ChatOptions
    items: dict[int, ResponseOutputItem] = field(default_factory=dict)
    last: Response | None = None
    anything: bool = False

    def add(self, event: ResponseStreamEvent) -> str:
        """Add an event. Return the text in it."""
        self.anything |= event.type.startswith(
            ("response.output_", "response.function_", "response.reasoning")
        )
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return event.delta
            case "response.output_item.done":
                self.items[event.output_index] = event.item
            case "response.completed" | "response.incomplete" | "response.failed":
                self.last = event.response
            case "error":
                raise _failure(event)
        return ""

    def answer(self) -> ModelResponse:
        if self.last is None:
            raise ended_early("without its end mark", anything=self.anything)
        return _read(
            self.last, self.model, self.options, [self.items[index] for index in sorted(self.items)]
        )


def _unsent(model: str, options: RequestOptions) -> dict[str, str]:
    return unsent_to_reasoning(model, options, options.reasoning_effort is not None)


def _choose_tools(options: RequestOptions) -> dict[str, Any]:
    if options.parallel_tool_calls is None:
        return {}
    return {"parallel_tool_calls": options.parallel_tool_calls}


def _effort(effort: ReasoningEffort) -> dict[str, Any]:
    return {"reasoning": {"effort": effort}}


def _client() -> type[Any]:
    return ResponsesClient


def _build_classes() -> None:
    """Build the classes for responses and their events, which the SDK would build with the first
    one, blocking the loop.
    """
    from openai.types.responses import Response, ResponseStreamEvent

    Response.model_rebuild()
    # The events are one union, in an `Annotated`.
    for union in get_args(ResponseStreamEvent)[:1]:
        for kind in get_args(union):
            kind.model_rebuild()


SPEC = ProviderSpec(
    name=WIRE,
    about="OpenAI's Responses API, with reasoning that is kept between steps",
    position=20,
    build=partial(over_openai, kind=_client),
    adapter=ProviderAdapter(
        plain_tools_param,
        ask=ResponsesClient.ask,
        stream=ResponsesClient.stream,
        name=WIRE,
        offer_found=_offer_found,
    ),
    client=_client,
    sdk="openai",
    key_variable="OPENAI_API_KEY",
    homes=("openai.com",),
    models=MODELS,
    max_tools=MAX_TOOLS,
    thinks=thinks,
    api="OpenAI's Responses API",
    lacking=("seed", "stop"),
    own_fields=("prompt_cache_options",),
    unsent=_unsent,
    choose_tools=_choose_tools,
    effort=_effort,
    counted_by_tiktoken=True,
    embed=embed_over_openai,
    first_used=("responses",),
    diagnose=_diagnose,
    defers=gpt_defers,
    hosted=_HOSTED,
    warm_up=_build_classes,
)
