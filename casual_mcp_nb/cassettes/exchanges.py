"""What a cassette keeps of each request to a server: one row for each method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.base.content import ContentPart
from casual_mcp_nb.base.mcp import (
    AppContents,
    Completions,
    PromptMessage,
    PromptMessages,
    Resource,
    ResourceContents,
    ServerPrompt,
    Skill,
    SkillContents,
)
from casual_mcp_nb.base.passed import as_written
from casual_mcp_nb.cassettes import Kind, Plain
from casual_mcp_nb.conversation.codec import dump_value, load_value

Request = Mapping[str, Plain]


@dataclass(frozen=True)
class Exchange:
    """How a method's request and answer become plain values, and the answer a value again.

    `request` gets the method's arguments. `read` gets the plain answer, and the request with its
    server.
    """

    kind: Kind
    request: Callable[..., dict[str, Plain]]
    plain: Callable[[Any], Plain]
    read: Callable[[Any, Request], Any]


def call_request(server: str, tool: str, arguments: Mapping[str, Plain]) -> dict[str, Plain]:
    """Build the request of a tool call, with the handles of results that it passes."""
    return {"server": server, "tool": tool, "arguments": as_written(arguments)}


def _reader(kind: type[Any]) -> Callable[[Any, Request], Any]:
    def read(plain: Any, request: Request) -> Any:
        return load_value(kind, plain)

    return read


def _no_arguments() -> dict[str, Plain]:
    return {}


def _plain_offers(offers: Iterable[Any]) -> list[dict[str, Plain]]:
    """Convert resources, prompts or skills to plain values, without their server."""
    return [dump_value(offer, ("server",)) for offer in offers]


def _list_of(kind: Kind, item: type[Any]) -> Exchange:
    def read(plain: Any, request: Request) -> tuple[Any, ...]:
        server = request["server"]
        return tuple(load_value(item, {**fields, "server": server}) for fields in plain)

    return Exchange(kind, _no_arguments, _plain_offers, read)


def _of_uri(uri: str) -> dict[str, Plain]:
    return {"uri": uri}


def _skill_request(skill: Skill, path: str) -> dict[str, Plain]:
    return {"skill": skill.name, "file": path}


def _read_app(plain: Any, request: Request) -> AppContents:
    if not isinstance(plain["part"], Mapping):
        raise ValueError("Not a page.")
    return load_value(AppContents, plain)


def _plain_contents(contents: ResourceContents) -> list[Plain]:
    return list(map(dump_value, contents.parts))


def _read_contents(plain: Any, request: Request) -> ResourceContents:
    parts = tuple(load_value(ContentPart, part) for part in plain)
    return ResourceContents(str(request.get("server", "")), str(request.get("uri", "")), parts)


def _prompt_request(name: str, arguments: Mapping[str, str]) -> dict[str, Plain]:
    return {"name": name, "arguments": dict(arguments)}


def _plain_prompt(prompt: PromptMessages) -> dict[str, Plain]:
    messages = []
    for message in prompt.messages:
        messages.append({"role": message.role, "content": dump_value(message.content)})
    plain: dict[str, Plain] = {"messages": messages}
    if prompt.description:
        plain["description"] = prompt.description
    return plain


def _read_prompt(plain: Any, request: Request) -> PromptMessages:
    messages = []
    for each in plain["messages"]:
        messages.append(PromptMessage(str(each["role"]), load_value(ContentPart, each["content"])))
    return PromptMessages(
        str(request.get("server", "")),
        str(request.get("name", "")),
        dict(request.get("arguments", {})),
        tuple(messages),
        str(plain.get("description", "")),
    )


def _completion_request(
    offer: Resource | ServerPrompt, argument: str, text: str, others: Mapping[str, str]
) -> dict[str, Plain]:
    request: dict[str, Plain] = {"argument": argument, "text": text, "others": dict(others)}
    if isinstance(offer, Resource):
        return {"uri": offer.uri, **request}
    return {"name": offer.name, **request}


def _plain_completions(completions: Completions) -> dict[str, Plain]:
    return {
        "values": list(completions.values),
        "total": completions.total,
        "more": completions.more,
    }


def _subscription(*, on: bool) -> Exchange:
    def request(uri: str) -> dict[str, Plain]:
        return {"uri": uri, "on": on}

    def plain(nothing: None) -> bool:
        return True

    def read(plain: Any, request: Request) -> None:
        return None

    return Exchange("subscription", request, plain, read)


EXCHANGES: Mapping[str, Exchange] = {
    "resources": _list_of("resources", Resource),
    "prompts": _list_of("prompts", ServerPrompt),
    "skills": _list_of("skills", Skill),
    "read": Exchange("read", _of_uri, _plain_contents, _read_contents),
    "read_app": Exchange("app", _of_uri, dump_value, _read_app),
    "read_skill": Exchange("skill", _skill_request, dump_value, _reader(SkillContents)),
    "prompt": Exchange("prompt", _prompt_request, _plain_prompt, _read_prompt),
    "complete": Exchange(
        "completion", _completion_request, _plain_completions, _reader(Completions)
    ),
    "subscribe": _subscription(on=True),
    "unsubscribe": _subscription(on=False),
}
"""By the methods of `ServerResources`."""
