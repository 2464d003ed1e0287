"""Offers and questions of servers besides tools, passed on to another host in versions with and
without a handshake.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from conformance import everything as reference
from fastmcp import Context, FastMCP
from fastmcp.client import Client as FastMCPClient
from fastmcp.client.transports import StdioTransport
from fastmcp.server.middleware import Middleware
from fastmcp.skills import Skill
from fastmcp.skills.client import SkillsClientExtension
from fastmcp.skills.provider import SkillCatalogProvider
from kit.desk import PIXEL, Desk
from kit.skills import FORMS, Tampering, skill_folder, skill_server
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import listen

from casual_mcp_nb import Session
from casual_mcp_nb.serve import mcp_offers, mcp_questions

pytestmark = pytest.mark.defect("K1")
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Import the modules of a session, which would hold the loop of the first test."""
    Session({}, quiet=True).close()


class Gate(Middleware):
    """Holds up listings of resources until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def on_list_resources(self, context: Any, call_next: Any) -> Any:
        await self.open.wait()
        return await call_next(context)


def library(name: str, gate: Gate | None = None) -> FastMCP[Any]:
    """A server with everything that is passed on."""
    server: FastMCP[Any] = FastMCP(
        name, instructions=f"Ask {name} for books.", middleware=[gate] if gate else []
    )

    @server.resource("books://index", title="Index")
    def index() -> str:
        """All books."""
        return f"The index of {name}"

    @server.resource(f"{name}://cover", mime_type="image/png")
    def cover() -> bytes:
        return PIXEL

    @server.resource(f"{name}://books/{{title}}")
    def book(title: str) -> str:
        """A book."""
        return f"{title} of {name}"

    @server.prompt
    def review(title: str) -> str:
        """Review a book."""
        return f"Review {title} for {name}."

    @server.prompt(name=f"only_{name}")
    def only() -> str:
        return name

    @server.tool
    async def loud(ctx: Context) -> str:
        """Log a debug and a warning message."""
        await ctx.debug("quietly")
        await ctx.warning("loudly")
        return "done"

    return server


class Heard:
    """The notifications that a client received."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.told = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)
        self.told.set()

    async def wait_for(self, kind: type[Any]) -> Any:
        while not (heard := [message for message in self.messages if isinstance(message, kind)]):
            self.told.clear()
            await self.told.wait()
        return heard[0]


@asynccontextmanager
async def host(
    config: dict[str, Any], servers: dict[str, Any], mode: str, **options: Any
) -> AsyncIterator[Client]:
    """A client of a session's endpoint."""
    serving = options.pop("serving", {})
    async with Session(config, in_process=servers, quiet=True) as session:
        endpoint = await session.serve.mcp_async(**serving)
        async with Client(endpoint.url, mode=mode, **options) as client:
            yield client


@MODES
async def test_resources_prompts_and_completion(mode: str) -> None:
    servers = {"north": library("north"), "south": library("south")}
    async with host({}, servers, mode) as client:
        listed = (await client.list_resources()).resources
        assert sorted(each.uri for each in listed) == [
            "books://index",
            "north://cover",
            "south://cover",
        ]
        assert {each.title for each in listed if each.uri == "books://index"} == {"Index"}
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "north://books/{title}",
            "south://books/{title}",
        ]
        # Two servers have this one: it is that of the first.
        assert (await client.read_resource("books://index")).contents[
            0
        ].text == "The index of north"
        assert (await client.read_resource("south://books/Emma")).contents[
            0
        ].text == "Emma of south"
        assert (await client.read_resource("south://cover")).contents[0].mime_type == "image/png"
        with pytest.raises(MCPError) as missing:
            await client.read_resource("nowhere://else")
        assert missing.value.error.code == mcp.INVALID_PARAMS
        assert missing.value.error.data == {"uri": "nowhere://else"}

        prompts = {each.name: each for each in (await client.list_prompts()).prompts}
        assert sorted(prompts) == [
            "north__only_north",
            "north__review",
            "south__only_south",
            "south__review",
        ]
        assert prompts["south__review"].arguments[0].required
        messages = (await client.get_prompt("south__review", {"title": "Emma"})).messages
        assert messages[0].content.text == "Review Emma for south."
        assert (await client.get_prompt("only_north")).messages[0].content.text == "north"
        for name in ("review", "nothing"):
            with pytest.raises(MCPError):
                await client.get_prompt(name, {"title": "Emma"})
        with pytest.raises(MCPError):
            await client.get_prompt("south__review", {})
        assert (
            await client.complete(
                mcp.ResourceTemplateReference(uri="north://books/{title}"),
                {"name": "title", "value": ""},
            )
        ).completion.values == []


@MODES
async def test_only_what_the_selection_includes_is_offered(mode: str) -> None:
    servers = {"north": library("north"), "south": library("south"), "west": library("west")}
    config = {
        "tool_sets": {
            "some": {"description": "Some.", "servers": {"south": ["loud"], "west": True}}
        }
    }
    async with Session(config, in_process=servers, quiet=True) as session:
        session.selection.servers["west"] = "off"
        endpoint = await session.serve.mcp_async(tool_set="some", plain_names=True)
        async with Client(endpoint.url, mode=mode) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["loud"]
            assert sorted(each.uri for each in (await client.list_resources()).resources) == [
                "books://index",
                "south://cover",
            ]
            assert sorted(each.name for each in (await client.list_prompts()).prompts) == [
                "only_south",
                "review",
            ]
            with pytest.raises(MCPError):
                await client.read_resource("north://cover")
            assert "south" in (client.instructions or "")
            assert "Ask north" not in (client.instructions or "")


@MODES
async def test_instructions_say_how_search_works(mode: str) -> None:
    config = {"tool_discovery": {"enabled": True, "defer_all": True}}
    async with host(config, {"north": library("north")}, mode) as client:
        tools = [each.name for each in (await client.list_tools()).tools]
        assert "search_tools" in (client.instructions or "")
        assert (
            ("call_tool" in (client.instructions or ""))
            == ("call_tool" in tools)
            == (mode == "auto")
        )
        if mode == "auto":
            # Nothing is known of what this client has found.
            found = await client.call_tool("call_tool", {"name": "north__loud", "arguments": {}})
            assert found.content[0].text == "done"


@MODES
async def test_a_slow_server_costs_the_others_nothing(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_offers, "LIST_SECONDS", 0.05)
    gate, heard = Gate(), Heard()
    servers = {"slow": library("slow", gate), "north": library("north")}
    async with Session({}, in_process=servers, quiet=True) as session:
        endpoint = await session.serve.mcp_async()
        async with Client(endpoint.url, mode=mode, message_handler=heard) as client:
            while not (resources := (await client.list_resources()).resources):
                pass
            assert sorted(each.uri for each in resources) == ["books://index", "north://cover"]
            session.parts.engine.call_later(0, gate.open.set)
            if mode == "legacy":
                await heard.wait_for(mcp.ResourceListChangedNotification)
            while len((await client.list_resources()).resources) < 3:
                pass
            assert (await client.read_resource("books://index")).contents[
                0
            ].text == "The index of slow"


@MODES
async def test_a_listing_waits_for_a_server_that_still_starts(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_offers, "LIST_SECONDS", 0.0)

    class Started(Middleware):
        async def on_request(self, context: Any, call_next: Any) -> Any:
            monkeypatch.setattr(mcp_offers, "LIST_SECONDS", 30.0)
            return await call_next(context)

    late = library("late")
    late.add_middleware(Started())
    async with Session({}, in_process={"north": library("north")}, quiet=True) as session:
        endpoint = await session.serve.mcp_async()
        async with Client(endpoint.url, mode=mode) as client:

            def add() -> None:
                session.parts.chat.server_manager.add("late", server=late)

            session.parts.engine.call_later(0, add)
            resources = (await client.list_resources()).resources
            assert "late://cover" in [each.uri for each in resources]


@MODES
async def test_log_messages_reach_who_called(mode: str) -> None:
    logged: list[Any] = []

    async def log(params: Any) -> None:
        logged.append(params)

    options = {"log_level": "debug"} if mode == "auto" else {}
    async with host(
        {}, {"north": library("north")}, mode, logging_callback=log, **options
    ) as client:
        await client.call_tool("north__loud", {})
        assert [
            (each.logger, each.level, each.data) for each in logged if each.level == "warning"
        ] == [("north", "warning", "loudly")]
        if mode == "legacy":
            # From `info` on, unless the host says otherwise.
            assert len(logged) == 1
            request = mcp.SetLevelRequest(params=mcp.SetLevelRequestParams(level="debug"))
            await client.session.send_request(request, mcp.EmptyResult)
            await client.call_tool("north__loud", {})
            request = mcp.SetLevelRequest(params=mcp.SetLevelRequestParams(level="error"))
            await client.session.send_request(request, mcp.EmptyResult)
            await client.call_tool("north__loud", {})
        assert [each.data for each in logged if each.level == "debug"] == ["quietly"]


@asynccontextmanager
async def everything(protocol: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    """A client of an endpoint with the conformance suite's server behind it, which is spoken to in
    a version.
    """
    with reference.served() as address:
        config = {"servers": {"all": {"url": address, "protocol": protocol, "sampling": True}}}
        async with host(config, {}, mode, serving={"plain_names": True}, **options) as client:
            yield client


class Person:
    """A host's person, who answers questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, _context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        values = {
            name: True if field["type"] == "boolean" else "Ada"
            for name, field in params.requested_schema["properties"].items()
        }
        return mcp.ElicitResult(action="accept", content=values)

    async def sample(self, _context: Any, params: Any) -> Any:
        self.asked.append(params.messages[0].content.text)
        return mcp.CreateMessageResult(
            role="assistant", model="m", content=mcp.TextContent(text="Paris")
        )

    async def roots(self, _context: Any) -> Any:
        self.asked.append("roots")
        return mcp.ListRootsResult(roots=[mcp.Root(uri="file:///home/ada")])

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


@MODES
@pytest.mark.parametrize(
    ("protocol", "tools"),
    [
        ("legacy", ("test_sampling", "test_elicitation")),
        (
            "auto",
            (
                "test_input_required_result_multiple_inputs",
                "test_input_required_result_multi_round",
            ),
        ),
    ],
)
async def test_questions_of_servers_reach_the_host_in_every_pair_of_versions(
    mode: str, protocol: str, tools: tuple[str, ...]
) -> None:
    person = Person()
    arguments = {"test_sampling": {"prompt": "Capital?"}, "test_elicitation": {"message": "Who?"}}
    async with everything(protocol, mode, **person.callbacks) as client:
        for tool in tools:
            result = await client.call_tool(tool, arguments.get(tool, {}))
            assert not result.is_error, result.content
        assert len(person.asked) == (2 if protocol == "legacy" else 5), person.asked
        assert any(text.startswith("The server 'all' asks:") for text in person.asked)
        if protocol == "auto":
            prompt = await client.get_prompt("test_input_required_result_prompt")
            assert prompt.messages[0].content.text == "Thanks."
    async with everything(protocol, mode) as client:
        for tool in tools:
            if (mode, protocol) == ("auto", "auto"):
                with pytest.raises(MCPError) as refused:
                    await client.call_tool(tool, {})
                assert refused.value.error.code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY
            else:
                # The server is told that nobody answers, and decides what comes of it.
                assert (await client.call_tool(tool, arguments.get(tool, {}))).content


ASKING = """
from fastmcp import Context, FastMCP

server = FastMCP("asking")


@server.tool
async def ask(ctx: Context) -> str:
    "Ask for a name."
    answer = await ctx.elicit("Your name?", response_type=str)
    return f"{answer.action} {getattr(answer, 'data', None)}"


server.run(show_banner=False)
"""


async def test_a_question_that_could_be_anybodys_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(ASKING)
    asking = {
        "command": sys.executable,
        "args": [str(tmp_path / "asking.py")],
        "protocol": "legacy",
    }
    async with Session({"servers": {"asking": asking}}, quiet=True) as session:
        endpoint = await session.serve.mcp_async()
        asked, answered, person, other = asyncio.Event(), asyncio.Event(), Person(), Person()

        async def elicit(context: Any, params: Any) -> Any:
            asked.set()
            await answered.wait()
            return await person.elicit(context, params)

        async with (
            Client(endpoint.url, elicitation_callback=elicit) as one,
            Client(endpoint.url, mode="legacy", **other.callbacks) as two,
        ):
            waiting = asyncio.create_task(one.call_tool("asking__ask", {}))
            await asked.wait()
            # Over stdio a server does not say during which call it asks.
            assert (await two.call_tool("asking__ask", {})).content[0].text.startswith("cancel")
            answered.set()
            assert (await waiting).content[0].text == "accept Ada"
        assert not other.asked


@MODES
@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_the_resources_that_a_host_follows(mode: str, protocol: str) -> None:
    heard, uri = Heard(), "test://watched-resource"
    with reference.served() as address:
        config = {"servers": {"all": {"url": address, "protocol": protocol}}}
        async with Session(config, quiet=True) as session:
            endpoint = await session.serve.mcp_async(plain_names=True)
            async with Client(endpoint.url, mode=mode, message_handler=heard) as client:
                if mode == "legacy":
                    follow = mcp.SubscribeRequest(params=mcp.SubscribeRequestParams(uri=uri))
                    await client.session.send_request(follow, mcp.EmptyResult)
                    await client.call_tool("test_trigger_resource_change", {})
                    assert (await heard.wait_for(mcp.ResourceUpdatedNotification)).params.uri == uri
                    assert [each.uri for each in session.resources.subscriptions] == [uri]
                else:
                    async with listen(client.session, resource_subscriptions=[uri]) as stream:
                        assert stream.honored.resource_subscriptions == [uri]
                        await client.call_tool("test_trigger_resource_change", {})
                        assert (await anext(aiter(stream))).uri == uri
            # It ends with the client.
            while session.resources.subscriptions:
                await session.parts.engine.wait(asyncio.sleep(0))


@pytest.mark.parametrize("answer", ["allow this call", "deny"])
async def test_an_approval_without_a_connection_is_asked_in_the_answer_to_a_call(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    asked: list[Any] = []

    async def elicit(_context: Any, params: Any) -> Any:
        asked.append(params.requested_schema["properties"]["answer"]["enum"])
        return mcp.ElicitResult(action="accept", content={"answer": answer})

    async with host({}, {"desk": desk.server}, "2026-07-28", elicitation_callback=elicit) as client:
        burn = {"name": "desk__burn", "arguments": {"what": "paper"}}
        for _ in range(2):
            result = await client.call_tool(**burn)
            assert result.is_error == (answer == "deny")
        # Nobody can be known again, so "from now on" is not offered.
        assert asked == [["allow this call", "deny"]] * 2
        assert desk.burnt == (2 if answer != "deny" else 0)

        question = await client.session.call_tool(**burn, allow_input_required=True)
        (key,) = question.input_requests
        allowed = {key: mcp.ElicitResult(action="accept", content={"answer": "allow this call"})}
        elsewhere = {"name": "desk__add", "arguments": {"a": 1, "b": 2}}
        for wrong, state in (
            (burn, question.request_state + "x"),
            (elsewhere, question.request_state),
        ):
            with pytest.raises(MCPError) as refused:
                await client.session.call_tool(
                    **wrong, input_responses=allowed, request_state=state
                )
            assert refused.value.error.code == mcp.INVALID_PARAMS
        again = await client.session.call_tool(
            **burn,
            input_responses={"other": allowed[key]},
            request_state=question.request_state,
            allow_input_required=True,
        )
        assert list(again.input_requests) == [key]
        before = desk.burnt
        await client.session.call_tool(
            **burn, input_responses=allowed, request_state=again.request_state
        )
        assert desk.burnt == before + 1
        with pytest.raises(MCPError):
            await client.session.call_tool(
                **burn, input_responses=allowed, request_state=again.request_state
            )
        # Ones that are never answered end when others wait in their place, or with the endpoint.
        monkeypatch.setattr(mcp_questions, "MAX_WAITING", 1)
        first, _ = [
            await client.session.call_tool(**burn, allow_input_required=True) for _ in range(2)
        ]
        with pytest.raises(MCPError):
            await client.session.call_tool(
                **burn, input_responses=allowed, request_state=first.request_state
            )
        assert desk.burnt == before + 1


@pytest.mark.slow
async def test_over_stdio_the_list_grows_without_a_handshake_too(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    math = {"bundled": "math", "defer_loading": True}
    config.write_text(json.dumps({"servers": {"math": math}, "tool_discovery": {"enabled": True}}))
    command = ["-m", "casual_mcp_nb", "serve", "mcp", str(config), "--trust"]
    there = StdioServerParameters(command=sys.executable, args=command, cwd=tmp_path)
    async with Client(stdio_client(there), mode="auto") as client:
        assert "search_tools" in (client.instructions or "")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_tools"]
        async with listen(client.session, tools_list_changed=True) as changes:
            await client.call_tool("search_tools", {"tool_names": ["math__add"]})
            await anext(aiter(changes))
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "search_tools",
            "math__add",
        ]
        added = await client.call_tool("math__add", {"a": 1, "b": 2})
        assert not added.is_error, added.content


def reading(where: Any, mode: str = "auto") -> FastMCPClient[Any]:
    """A client that reads skills."""
    return FastMCPClient(where, mode=mode, extensions=[SkillsClientExtension()])


async def test_skills_reach_a_client_that_checks_them(tmp_path: Path) -> None:
    files = {"a b/ü.bin": b"\x00\xff"}
    odd = Skill(
        name="odd",
        description="Odd.",
        instructions="-",
        frontmatter={"metadata": {"by": "Ada"}},
        files=files,
    )
    servers = {
        "docs": skill_server(skill_folder(tmp_path / "one"), Tampering()),
        "more": skill_server(
            skill_folder(tmp_path / "two", only="Only here."),
            SkillCatalogProvider([odd]),
            name="more",
        ),
    }
    config = {
        "tool_sets": {"none": {"description": "None of docs.", "servers": {"more": ["weather"]}}},
        "tool_discovery": {"enabled": True, "defer_all": True},
    }
    async with Session(config, in_process=servers, quiet=True) as session:
        endpoint = await session.serve.mcp_async()
        async with reading(endpoint.url) as client:
            listed = {each.frontmatter.name: each for each in await client.list_skills()}
            assert sorted(listed) == ["fill-forms", "merge-letters", "odd", "only", "send-money"]
            assert listed["fill-forms"].frontmatter.description == FORMS
            skill = await client.read_skill("skill://fill-forms/SKILL.md")
            assert (
                skill.files["SKILL.md"]
                == (tmp_path / "one" / "fill-forms" / "SKILL.md").read_bytes()
            )
            assert (await client.read_skill(listed["odd"].uri)).files["a b/ü.bin"] == b"\x00\xff"
            # Two servers have it: the records of the wire tell which was read.
            reads = [
                each.text
                for each in session.servers.wire("more")
                if each.method == "resources/read"
            ]
            assert not any("fill-forms" in each for each in reads)
            with pytest.raises(MCPError, match="refused"):
                await client.read_resource(listed["send-money"].uri)
            with pytest.raises(MCPError) as unknown:
                await client.get_skill("skill://nothing/SKILL.md")
            assert unknown.value.error.code == mcp.INVALID_PARAMS
            read = await client.call_tool("read_skill", {"skill": "docs:fill-forms"})
            assert "what is missing" in read.content[0].text
            session.selection.servers["more"] = "off"
            assert "only" not in {each.frontmatter.name for each in await client.list_skills()}
            with pytest.raises(MCPError):
                await client.read_skill(listed["only"].uri)
        async with reading(endpoint.url, "legacy") as client:
            assert not client.server_capabilities.extensions
            with pytest.raises(MCPError) as missing:
                await client.session.send_request(
                    mcp.Request(method="skills/list", params=None), mcp.EmptyResult
                )
            assert missing.value.error.code == mcp.METHOD_NOT_FOUND
            # They are resources too, which this session checks as well.
            with pytest.raises(MCPError, match="refused"):
                await client.read_resource(listed["send-money"].uri)
        session.selection.servers["more"] = "deferred"
        narrow = await session.serve.mcp_async(tool_set="none")
        async with reading(narrow.url) as client:
            assert sorted(each.frontmatter.name for each in await client.list_skills()) == [
                "fill-forms",
                "merge-letters",
                "odd",
                "only",
            ]
            with pytest.raises(MCPError):
                await client.get_skill("skill://send-money/SKILL.md")


@pytest.mark.slow
async def test_the_command_line_passes_skills_on_over_stdio(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path / "skills")
    (tmp_path / "docs.py").write_text(
        "from fastmcp import FastMCP\nfrom fastmcp.skills.provider import"
        " SkillsDirectoryProvider\nFastMCP('docs',"
        f" providers=[SkillsDirectoryProvider({str(folder)!r})]).run(show_banner=False)\n"
    )
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {"servers": {"docs": {"command": sys.executable, "args": [str(tmp_path / "docs.py")]}}}
        )
    )
    command = ["-m", "casual_mcp_nb", "serve", "mcp", str(config), "--trust"]
    async with reading(StdioTransport(sys.executable, command, cwd=str(tmp_path))) as client:
        assert [each.frontmatter.name for each in await client.list_skills()] == [
            "fill-forms",
            "merge-letters",
        ]
        skill = await client.read_skill("skill://fill-forms/SKILL.md")
        assert b"fullName" in skill.files["forms/fields.md"]
