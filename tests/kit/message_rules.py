"""The providers' rules for the messages of a request, each with its source.

The loopback servers of other tests take anything; one with rules answers what the real provider
would not take with its error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kit.provider import Provider
from kit.scripted_http import Reply, Request

Rule = Callable[[Mapping[str, Any]], str | None]
"""Takes the body of a request and gives the provider's words for what is wrong with it."""


class StrictProvider(Provider):
    """A provider that answers a request which breaks one of its rules with 400 and its reason;
    others get the next reply.

    Args:
        rules: Its rules.
        replies: As of `Provider`.
        status: The status of a refusal.
    """

    def __init__(self, rules: Sequence[Rule], *replies: Any, status: int = 400) -> None:
        super().__init__(*replies)
        self.rules = rules
        self.refusals: list[str] = []
        self._status = status

    def _next(self, request: Request) -> Reply:
        refusal = next(
            (words for rule in self.rules if (words := rule(request.body)) is not None), None
        )
        if refusal is None:
            return super()._next(request)
        self.refusals.append(refusal)
        return Reply(
            self._status,
            {
                "error": {
                    "message": refusal,
                    "type": "invalid_request_error",
                    "param": None,
                    "code": None,
                }
            },
        )

    @property
    def taken(self) -> list[Request]:
        """The requests that broke no rule."""
        return [
            request for request in self.seen if not any(rule(request.body) for rule in self.rules)
        ]


# Chat completions.


def openai_names(body: Mapping[str, Any]) -> str | None:
    """OpenAI's error `invalid_value`: "Expected a string that matches the pattern
    '^[a-zA-Z0-9_-]+$'"; the API reference of chat completions has 64 as the longest.
    """
    bad = [
        call
        for call in _calls(body)
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
    ]
    return (
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern."
        if bad
        else None
    )


def openai_ids(body: Mapping[str, Any]) -> str | None:
    """OpenAI's error `string_above_max_length` (langgenius/dify#28987, vercel/ai#5171)."""
    long = [call["id"] for call in _calls(body) if not 0 < len(call["id"]) <= 40]
    return (
        f"Invalid 'messages[1].tool_calls[0].id': string too long. Expected 40, got {len(long[0])}."
        if long
        else None
    )


def openai_pairs(body: Mapping[str, Any]) -> str | None:
    """OpenAI's API: "An assistant message with 'tool_calls' must be followed by tool messages
    responding to each 'tool_call_id'", and each tool message must answer such a call.
    """
    open_ids: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                return (
                    "messages with role 'tool' must be a response to a preceding message with"
                    " 'tool_calls'."
                )
            open_ids.remove(message["tool_call_id"])
        elif open_ids:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages"
                " responding to each 'tool_call_id'."
            )
        open_ids += [call["id"] for call in message.get("tool_calls") or ()]
    return None


def parsed_arguments(body: Mapping[str, Any]) -> str | None:
    """vLLM (`_postprocess_messages`) and llama.cpp (minja templates) parse the arguments of the
    whole history.
    """
    for call in _calls(body):
        try:
            if not isinstance(
                json.loads(call["function"]["arguments"], parse_constant=_refuse), dict
            ):
                return "Tool call arguments must be a JSON object."
        except ValueError as error:
            return f"Expecting value: {error}"
    return None


def mistral_ids(body: Mapping[str, Any]) -> str | None:
    """Mistral's API and mistral_common: langchain-ai/langchain#24668."""
    bad = [call["id"] for call in _calls(body) if not re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"])]
    return (
        f"Tool call id was {bad[0]} but must be a-z, A-Z, 0-9, with a length of 9." if bad else None
    )


def mistral_order(body: Mapping[str, Any]) -> str | None:
    """Mistral's API, error 3230 `invalid_request_message_order`: zed-industries/zed#37021,
    charmbracelet/crush#279.
    """
    roles = [message["role"] for message in body["messages"]]
    refused = {("tool", "user"), ("user", "user"), ("assistant", "assistant"), ("user", "tool")}
    bad = next((pair for pair in pairwise(roles) if pair in refused or pair[1] == "system"), None)
    return f"Unexpected role '{bad[1]}' after role '{bad[0]}'" if bad else None


def template_order(body: Mapping[str, Any]) -> str | None:
    """The chat templates of Gemma, Mistral and Llama 2 on vLLM and llama.cpp raise for anything but
    person and model in turn; calls and results do not count.
    """
    counted = [
        m
        for m in body["messages"]
        if m["role"] == "user" or (m["role"] == "assistant" and not m.get("tool_calls"))
    ]
    system = [
        number for number, message in enumerate(body["messages"]) if message["role"] == "system"
    ]
    if system not in ([], [0]):
        return "System message must be at the beginning."
    roles = [message["role"] for message in counted]
    expected = ["user" if number % 2 == 0 else "assistant" for number in range(len(roles))]
    return (
        None
        if roles == expected
        else "Conversation roles must alternate user/assistant/user/assistant/..."
    )


def deepseek_reasoning(body: Mapping[str, Any]) -> str | None:
    """https://api-docs.deepseek.com/guides/thinking_mode#tool-calls: in turns with calls "the
    reasoning_content must be fully passed back to the API in all subsequent requests"; an empty one
    too (deepseek-ai/deepseek-harness#739).
    """
    for number, message in enumerate(body["messages"]):
        if (
            message["role"] == "assistant"
            and message.get("tool_calls")
            and "reasoning_content" not in message
        ):
            return (
                "Missing `reasoning_content` field in the assistant message at message index"
                f" {number}."
            )
    return None


def gemini_signatures(body: Mapping[str, Any]) -> str | None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: the first call of each step has its
    signature, in `extra_content.google.thought_signature` on the OpenAI-compatible endpoint,
    unchanged or the fixed text for other models.
    """
    for message in body["messages"]:
        calls = message.get("tool_calls")
        if calls and not calls[0].get("extra_content", {}).get("google", {}).get(
            "thought_signature"
        ):
            name = calls[0]["function"]["name"]
            return (
                "Function call is missing a thought_signature in functionCall parts. Function call"
                f" `default_api:{name}`."
            )
    return None


def openrouter_details(expected: Any) -> Rule:
    """https://openrouter.ai/docs/use-cases/reasoning-tokens: `reasoning_details` go back
    unmodified; the provider behind it, here Anthropic, refuses thinking whose signature does not
    fit.
    """

    def rule(body: Mapping[str, Any]) -> str | None:
        calling = [message for message in body["messages"] if message.get("tool_calls")]
        bad = [message for message in calling if message.get("reasoning_details") != expected]
        return "messages.1.content.0: Invalid `signature` in `thinking` block" if bad else None

    return rule


def most_images(most: int) -> Rule:
    """vLLM with `--limit-mm-per-prompt`: "At most 1 image(s) may be provided in one prompt."."""

    def rule(body: Mapping[str, Any]) -> str | None:
        count = sum(
            part.get("type") == "image_url"
            for message in body["messages"]
            for part in _parts(message)
        )
        return f"At most {most} image(s) may be provided in one prompt." if count > most else None

    return rule


def no_images(words: str) -> Rule:
    """A model that cannot see, in a provider's words."""

    def rule(body: Mapping[str, Any]) -> str | None:
        return (
            words if '"image_url"' in json.dumps(body) or '"images"' in json.dumps(body) else None
        )

    return rule


def refused_field(name: str) -> Rule:
    """Groq: "property 'messages.1.reasoning_content' is unsupported"; DeepSeek's first reasoning
    model: 400 for the field.
    """

    def rule(body: Mapping[str, Any]) -> str | None:
        at = [number for number, message in enumerate(body["messages"]) if name in message]
        return f"property 'messages.{at[0]}.{name}' is unsupported" if at else None

    return rule


OPENAI = (openai_names, openai_ids, openai_pairs, parsed_arguments)
MISTRAL = (mistral_ids, mistral_order, parsed_arguments)

# The Responses API.


def responses_items(body: Mapping[str, Any]) -> str | None:
    """OpenAI's OpenAPI schema: `call_id` has 1 to 64 characters, `name` matches `^[a-zA-Z0-9_-]+$`;
    the API: "No tool output found for function call", "No tool call found for function call
    output".
    """
    calls = [
        item for item in body["input"] if item.get("type") in ("function_call", "tool_search_call")
    ]
    outputs = [
        item
        for item in body["input"]
        if item.get("type") in ("function_call_output", "tool_search_output")
    ]
    for item in [*calls, *outputs]:
        if not 1 <= len(item["call_id"]) <= 64:
            return (
                "Invalid 'input[1].call_id': string too long. Expected a string with maximum"
                " length 64."
            )
    for call in calls:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", call.get("name", "search")):
            return "Invalid 'input[1].name': string does not match pattern."
    if missing := {call["call_id"] for call in calls} - {output["call_id"] for output in outputs}:
        return f"No tool output found for function call {missing.pop()}."
    if strange := {output["call_id"] for output in outputs} - {call["call_id"] for call in calls}:
        return f"No tool call found for function call output with call_id {strange.pop()}."
    return None


RESPONSES = (responses_items,)

# Anthropic's messages.


def anthropic_calls(body: Mapping[str, Any]) -> str | None:
    """https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use: the results of
    all calls of an answer are in the next message, before any other block; ids match
    `^[a-zA-Z0-9_-]+$`, names `^[a-zA-Z0-9_-]{1,128}$`.
    """
    for number, message in enumerate(body["messages"]):
        uses = [block for block in message["content"] if block["type"] == "tool_use"]
        for use in uses:
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", use["id"]):
                return (
                    f"messages.{number}.content.0.tool_use.id: String should match pattern"
                    " '^[a-zA-Z0-9_-]+$'"
                )
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", use["name"]):
                return (
                    f"messages.{number}.content.0.tool_use.name: String should match pattern"
                    " '^[a-zA-Z0-9_-]{1,128}$'"
                )
            if not isinstance(use["input"], dict):
                return (
                    f"messages.{number}.content.0.tool_use.input: Input should be a valid"
                    " dictionary"
                )
        following = (
            body["messages"][number + 1]["content"] if number + 1 < len(body["messages"]) else []
        )
        first = [block.get("tool_use_id") for block in following[: len(uses)]]
        if sorted(map(str, first)) != sorted(use["id"] for use in uses):
            return (
                f"messages.{number}: `tool_use` ids were found without `tool_result` blocks"
                " immediately after"
            )
    return None


def anthropic_results(body: Mapping[str, Any]) -> str | None:
    """Anthropic's API: "content cannot be empty if `is_error` is true" and "all content must be
    type text" then.
    """
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result" and block.get("is_error"):
                if not block["content"]:
                    return "tool_result: content cannot be empty if `is_error` is true"
                if any(part["type"] != "text" for part in _parts(block)):
                    return "tool_result: all content must be type `text` if `is_error` is true"
    return None


def anthropic_text(body: Mapping[str, Any]) -> str | None:
    """Anthropic's API: "text content blocks must contain non-whitespace text", "all messages must
    have non-empty content".
    """
    for message in body["messages"]:
        if not message["content"]:
            return (
                "messages: all messages must have non-empty content except for the optional final"
                " assistant message"
            )
        for block in _blocks(message):
            if block["type"] == "text" and not block["text"].strip():
                return "messages: text content blocks must contain non-whitespace text"
    return None


def anthropic_turns(body: Mapping[str, Any]) -> str | None:
    """Anthropic's API joins messages of one role itself; servers that copy it ("roles must
    alternate") do not.
    """
    roles = [message["role"] for message in body["messages"]]
    return (
        "messages: roles must alternate"
        if any(one == other for one, other in pairwise(roles))
        else None
    )


def anthropic_images(body: Mapping[str, Any]) -> str | None:
    """https://docs.claude.com/en/docs/build-with-claude/vision: base64 of PNG, JPEG, GIF or WebP,
    or an address.
    """
    for message in body["messages"]:
        for block in _blocks(message):
            if block["type"] == "image" and block["source"]["type"] == "base64":
                base64.b64decode(block["source"]["data"], validate=True)
                if block["source"]["media_type"] not in (
                    "image/png",
                    "image/jpeg",
                    "image/gif",
                    "image/webp",
                ):
                    return (
                        "messages.1.content.0.image.source.base64.media_type: Input should be"
                        " 'image/jpeg', …"
                    )
    return None


ANTHROPIC = (anthropic_calls, anthropic_results, anthropic_text, anthropic_turns, anthropic_images)

# Ollama's chat.


def ollama_types(body: Mapping[str, Any]) -> str | None:
    """Ollama's `api.Message` in Go: arguments are an object, images are base64, and nothing else is
    decoded.
    """
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                return (
                    "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments"
                )
        for image in message.get("images") or ():
            base64.b64decode(image, validate=True)
    return None


OLLAMA = (ollama_types,)

# Google's generateContent.


def gemini_parts(body: Mapping[str, Any]) -> str | None:
    """Google's API: each part has one kind of data, and a text that is not empty, unless it brings
    back a signature; names of functions begin with a letter or an underscore
    (https://ai.google.dev/api/caching#FunctionDeclaration).
    """
    for content in body["contents"]:
        if not content["parts"]:
            return "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty."
        for part in content["parts"]:
            if part.keys() <= {"text"} and not part.get("text"):
                return "Unable to submit request because it must have a text parameter."
            call = part.get("functionCall") or part.get("functionResponse") or {"name": "_"}
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}", call["name"]):
                return "Invalid function name. Must start with a letter or an underscore."
            if not isinstance(call.get("args", {}), dict) or not isinstance(
                call.get("response", {}), dict
            ):
                return (
                    "Invalid value at 'contents[0].parts[0].function_call.args'"
                    " (type.googleapis.com/google.protobuf.Struct)"
                )
            if "inlineData" in part:
                base64.urlsafe_b64decode(part["inlineData"]["data"])
    return None


def gemini_turns(body: Mapping[str, Any]) -> str | None:
    """Google's API: google-gemini/gemini-cli#3814 (as many responses as calls, in the next
    content), and "Please ensure that function call turn comes immediately after a user turn or
    after a function response turn".
    """
    contents = body["contents"]
    for number, content in enumerate(contents):
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if calls and (
            content["role"] != "model" or number == 0 or contents[number - 1]["role"] != "user"
        ):
            return (
                "Please ensure that function call turn comes immediately after a user turn or after"
                " a function response turn."
            )
        following = contents[number + 1]["parts"] if calls and number + 1 < len(contents) else []
        answers = [part["functionResponse"] for part in following if "functionResponse" in part]
        if [(one["name"], one.get("id")) for one in answers] != [
            (one["name"], one.get("id")) for one in calls
        ]:
            return (
                "Please ensure that the number of function response parts is equal to the number of"
                " function call parts of the function call turn."
            )
        if any("functionResponse" in part for part in content["parts"]):
            before = contents[number - 1]["parts"] if number else []
            if content["role"] != "user" or not any("functionCall" in part for part in before):
                return (
                    "Please ensure that function response turn comes immediately after a function"
                    " call turn."
                )
    return None


def gemini_native_signatures(body: Mapping[str, Any]) -> str | None:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: the first call of each step has its
    signature, or the fixed text for what another model made.
    """
    for number, content in enumerate(body["contents"]):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"]["name"]
            return (
                "Function call is missing a thought_signature in functionCall parts. Additional"
                f" data, function call `default_api:{name}`, position {number}."
            )
    return None


GEMINI = (gemini_parts, gemini_turns, gemini_native_signatures)

RULES = {
    "openai": OPENAI,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "litellm": OPENAI,
}


def _calls(body: Mapping[str, Any]) -> list[Any]:
    return [call for message in body["messages"] for call in message.get("tool_calls") or ()]


def _parts(message: Mapping[str, Any]) -> list[Any]:
    return message["content"] if isinstance(message.get("content"), list) else []


def _blocks(message: Mapping[str, Any]) -> Iterator[Any]:
    for block in message["content"]:
        yield block
        yield from _parts(block)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
