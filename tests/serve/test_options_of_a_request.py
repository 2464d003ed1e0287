"""The options of one call over HTTP and on the command line: every one that a turn has, or a reason
why not.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from casual_llm.messages import ImageContent, TextContent, UserMessage
from fastmcp import FastMCP
from kit.pictures import DOT
from kit.provider import Provider, answer
from kit.scripted_http import Reply, ScriptedHttp

from casual_mcp_nb import Service, Session
from casual_mcp_nb.base.content import MAX_BYTES, MAX_IMAGES
from casual_mcp_nb.base.model_options import flags_of
from casual_mcp_nb.cli.app import WRONG_USAGE, main
from casual_mcp_nb.cli.chat import TurnSettings
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.images import fetched_images
from casual_mcp_nb.serve.api import NOT_FOR_CLIENTS, ChatRequest

pytestmark = pytest.mark.defect("H6")

VALUES: dict[str, Any] = {
    "temperature": 0.25,
    "max_tokens": 77,
    "top_p": 0.5,
    "seed": 7,
    "stop": ["END"],
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
}
WRONG: dict[str, Any] = {
    "temperature": 9,
    "max_tokens": 0,
    "top_p": 2,
    "seed": "many",
    "stop": [""],
    "tool_choice": "",
    "parallel_tool_calls": "no",
    "reasoning_effort": "much",
    "discovery": "off",
    "strategy": "guess",
    "delivery": "mail",
    "max_steps": 0,
    "repair_calls": 1,
}
OTHER_NAMES = {"system": "system_prompt"}


def crates() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("crates")

    @server.tool(annotations={"readOnlyHint": True})
    def crate_code(name: str) -> str:
        """Return the code of a crate."""
        return name

    return server


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(answer("openai", "Yes.")) as server:
        yield server


@pytest.fixture(scope="module")
def service(provider: Provider) -> Iterator[Service]:
    config = {**provider.config("openai"), "tool_discovery": {"enabled": True, "defer_all": True}}
    with (
        Session(config, in_process={"crates": crates()}, quiet=True) as session,
        session.serve.http(port=0) as service,
    ):
        yield service


def post(service: Service, content: Any = "Hello?", **options: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": content}], **options}
    return httpx.post(f"{service.url}/chat", json=body, timeout=30)


def test_a_request_has_every_option_of_a_turn_or_a_reason_why_not() -> None:
    named = {OTHER_NAMES.get(name, name) for name in ChatOptions.__annotations__}
    own = ChatRequest.model_fields.keys() - {"messages", "include_stats"}
    assert own | NOT_FOR_CLIENTS.keys() == named
    assert not own & NOT_FOR_CLIENTS.keys()


def test_the_command_has_every_option_that_a_line_can_have() -> None:
    settings = {field.name for field in fields(TurnSettings)}
    wanted = {option for option, _ in flags_of(ChatOptions).values()}
    assert {"toolset" if name == "tool_set" else name for name in wanted} <= settings


def test_the_options_of_a_request_reach_the_model(service: Service, provider: Provider) -> None:
    assert post(service, **VALUES, discovery=False).status_code == 200
    body = provider.seen[-1].body
    assert {
        name: body.get(name)
        for name in VALUES
        if name not in ("tool_choice", "parallel_tool_calls")
    } == {
        name: value
        for name, value in VALUES.items()
        if name not in ("tool_choice", "parallel_tool_calls")
    }
    assert body["tool_choice"] == "none"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["crates__crate_code"]
    post(service)
    assert [tool["function"]["name"] for tool in provider.seen[-1].body["tools"]] == [
        "search_tools"
    ]
    assert "temperature" not in provider.seen[-1].body
    post(service, strategy="browse")
    assert "browse_toolkit" in [
        tool["function"]["name"] for tool in provider.seen[-1].body["tools"]
    ]
    post(service, delivery="bridge")
    assert "call_tool" in [tool["function"]["name"] for tool in provider.seen[-1].body["tools"]]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_a_problem_with_the_name_of_the_field(
    service: Service, provider: Provider, name: str
) -> None:
    before = len(provider.seen)
    response = post(service, **{name: WRONG[name]})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"].partition(".")[0] == name
    assert len(provider.seen) == before


@pytest.mark.parametrize("name", sorted(NOT_FOR_CLIENTS))
def test_what_is_not_for_clients_is_refused(service: Service, name: str) -> None:
    assert post(service, **{name: {}}).status_code == 422


def test_every_option_of_a_request_has_a_wrong_value_here() -> None:
    assert WRONG.keys() == ChatRequest.model_fields.keys() - {
        "model",
        "messages",
        "system_prompt",
        "tool_set",
        "include_stats",
    }


def test_a_client_cannot_have_more_steps_than_the_service(service: Service) -> None:
    assert post(service, max_steps=50).status_code == 200
    assert post(service, max_steps=51).status_code == 400


@pytest.fixture
def pictures() -> Iterator[ScriptedHttp]:
    bodies = {"/dot.png": DOT, "/page": b"<html></html>", "/large.png": DOT + bytes(MAX_BYTES)}

    with ScriptedHttp(
        lambda request: Reply(200, bodies[request.path], {"content-type": "image/jpeg"})
    ) as server:
        yield server


def image(address: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "What is it?"}, {"type": "image", "source": address}]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
def test_no_private_address_is_fetched_for_a_client(
    service: Service, provider: Provider, pictures: ScriptedHttp, host: str
) -> None:
    before = len(provider.seen)
    response = post(service, image(f"http://{host}:{pictures.url.rpartition(':')[2]}/dot.png"))
    assert response.status_code == 400
    assert pictures.seen == []
    assert len(provider.seen) == before


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://example.org/a.png", "http://", "http://a b", "/etc/passwd"],
)
def test_what_is_not_an_address_is_not_valid(service: Service, address: str) -> None:
    assert post(service, image(address)).status_code in (400, 422)


async def test_an_image_by_address_is_sent_as_its_data_with_its_real_type(
    pictures: ScriptedHttp,
) -> None:
    here = {"127.0.0.1"}
    asked = UserMessage(
        content=[TextContent(text="?"), *[ImageContent(source=f"{pictures.url}/dot.png")] * 2]
    )
    (message,) = await fetched_images([asked], here)
    assert [part.source for part in message.content[1:]] == [  # type: ignore[index,union-attr]
        {"type": "base64", "data": base64.b64encode(DOT).decode()}
    ] * 2
    assert message.content[1].media_type == "image/png"  # type: ignore[index,union-attr]
    assert len(pictures.seen) == 1
    for path in ("page", "large.png"):
        with pytest.raises(UsageError):
            await fetched_images(
                [UserMessage(content=[ImageContent(source=f"{pictures.url}/{path}")])], here
            )
    many = [ImageContent(source=f"{pictures.url}/{number}") for number in range(MAX_IMAGES + 1)]
    with pytest.raises(UsageError, match=str(MAX_IMAGES)):
        await fetched_images([UserMessage(content=many)], here)


def test_the_command_sends_its_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    provider: Provider,
) -> None:
    monkeypatch.chdir(tmp_path)
    servers = {"math": {"bundled": "math", "transport": "in-process"}}
    Path("casual_mcp_config.json").write_text(
        json.dumps({**provider.config("openai"), "servers": servers})
    )
    Path("dot.png").write_bytes(DOT)
    words = [
        "chat",
        "Hello?",
        "--json",
        "--image",
        "dot.png",
        "--no-discovery",
        "--system",
        "Be brief.",
    ]
    for name, value in VALUES.items():
        flag = name.replace("_", "-")
        words += (
            [f"--no-{flag}"]
            if value is False
            else [f"--{flag}", value[0] if isinstance(value, list) else str(value)]
        )
    assert main(words) == 0, capsys.readouterr().err
    body = provider.seen[-1].body
    wanted = {name: value for name, value in VALUES.items() if name != "parallel_tool_calls"}
    assert {name: body.get(name) for name in wanted} == wanted
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert [part["type"] for part in body["messages"][1]["content"]] == ["text", "image_url"]
    capsys.readouterr()
    for wrong in (
        ["--temperature", "9"],
        ["--strategy", "guess"],
        ["--max-steps", "0"],
        ["--image", "none.png"],
    ):
        assert main(["chat", "Hello?", *wrong]) == WRONG_USAGE
