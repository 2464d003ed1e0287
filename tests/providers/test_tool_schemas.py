"""Tools whose schemas providers refuse: reduced, left out, or found when a request is refused; the
turn goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from jsonschema import Draft202012Validator
from kit import schema_rules
from kit.odd_schemas import REPORTED, generated
from kit.provider import PROVIDERS, answer
from kit.schema_rules import SchemaStrict, definitions_in
from kit.scripted_http import Reply

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.dialects import DIALECTS, dialect_of
from casual_mcp_nb.base.mend import Mender
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.base.tool_door import admit
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import BadRequestError
from casual_mcp_nb.providers._tool_refusals import tool_refusal
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import ClientLimits, RateLimitWait, RequestAdapted

pytestmark = pytest.mark.defect("M3")

RULES = {**schema_rules.RULES, "openai": schema_rules.openai, "compatible": schema_rules.llama}
"""What refuses a definition, by the line of the table."""
PLAIN = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
GENERATED = dict(generated(200))


def definition(name: str, schema: Mapping[str, Any] = PLAIN) -> Mapping[str, Any]:
    """Build a definition as a tool of a server has it."""
    return ToolSpec("s", name, "Do it.", schema, wire_name=name).definition


def plain(count: int) -> list[Mapping[str, Any]]:
    return [definition(f"tool_{number}") for number in range(count)]


class Asked:
    """A model at a server that refuses schemas, and what it said."""

    def __init__(self, model: ChatModel, server: SchemaStrict) -> None:
        self.model, self.server = model, server
        self.notices: list[str] = []

    async def ask(
        self, tools: Sequence[Mapping[str, Any]], *, stream: bool = False, **options: Any
    ) -> ModelResponse:
        def heard(event: object) -> None:
            if isinstance(event, RequestAdapted):
                self.notices.append(event.notice)

        model = self.model.with_options(RequestOptions(**options)) if options else self.model
        return await model.complete(
            [UserMessage(content="Do it")], tools, on_event=heard, stream=stream
        )


@pytest.fixture
def asked(factory_for: Any) -> Iterator[Any]:
    with ExitStack() as stack:

        def start(provider: str, problem: Any = None, **more: Any) -> Asked:
            server = stack.enter_context(SchemaStrict(provider, problem, **more))
            return Asked(factory_for(Config.model_validate(server.config)).chat_model(), server)

        yield start


@pytest.mark.parametrize("line", DIALECTS)
@pytest.mark.parametrize("name", [*REPORTED, "generated"])
def test_what_passes_the_door_is_refused_by_no_provider(line: str, name: str) -> None:
    schemas = list(GENERATED.values()) if name == "generated" else [REPORTED[name]]
    for schema in schemas:
        admission = admit(definition("tool", schema), DIALECTS[line])
        assert admission.definition is not None
        assert RULES[line]("tool", admission.definition["parameters"]) is None
        # The tool keeps its schema, and what nobody refuses is not touched.
        assert (
            definition("tool", schema)["parameters"] is not admission.definition["parameters"]
            or not admission.changes
        )


@pytest.mark.parametrize("name", [*REPORTED, *GENERATED])
def test_a_mended_schema_is_valid_and_a_valid_one_is_not_touched(name: str) -> None:
    # Read from JSON, as servers send it: its texts are equal to ours, and not the same objects.
    schema = json.loads(json.dumps(REPORTED.get(name) or GENERATED[name]))
    mender = Mender()
    mended = mender.mend(schema)
    validator = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    assert validator.is_valid(mended)
    assert (mended is schema) == (mender.changes == [])
    assert Mender().mend(mended) is mended


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_200_odd_tools_are_offered_and_no_request_is_refused(
    asked: Any, provider: str
) -> None:
    tools = [
        definition(name.replace(" ", "_")[:60], schema)
        for name, schema in {**REPORTED, **GENERATED}.items()
    ]
    tools = [{**tool, "name": f"t{number}"} for number, tool in enumerate(tools)]
    desk = asked(provider)
    for start in range(0, len(tools), 60):
        answer = await desk.ask(tools[start : start + 60])
        assert answer.message.content == "done"
        assert len(definitions_in(provider, desk.server.answered[-1])) == len(
            tools[start : start + 60]
        )
    assert (desk.server.refused, desk.notices) == ([], [])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_one_hopeless_tool_among_thirty_is_left_out_and_named(
    asked: Any, provider: str, stream: bool
) -> None:
    tools = [*plain(29), definition("hopeless", {"type": "array"})]
    desk = asked(provider)
    answer = await desk.ask(tools, stream=stream)
    assert answer.message.content == "done"
    assert desk.server.refused == []
    assert len(definitions_in(provider, desk.server.answered[0])) == 29
    assert [notice.partition(" is ")[0] for notice in desk.notices] == ["Tool 'hopeless'"]


def refuses(*names: str) -> Any:
    """A rule that nobody could know beforehand."""
    return lambda name, schema: "an unknown rule" if name in names else None


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "bad", [("tool_0",), ("tool_29",), ("tool_13",), ("tool_4", "tool_21"), ("tool_28", "tool_29")]
)
async def test_a_tool_that_the_provider_refuses_is_found(
    asked: Any, provider: str, stream: bool, bad: tuple[str, ...]
) -> None:
    desk = asked(provider, refuses(*bad))
    answer = await desk.ask(plain(30), stream=stream)
    assert answer.message.content == "done"
    sent = [name for name, _, _ in definitions_in(provider, desk.server.answered[-1])]
    assert sent == [f"tool_{number}" for number in range(30) if f"tool_{number}" not in bad]
    assert {notice.partition(" is ")[0] for notice in desk.notices} == {
        f"Tool '{name}'" for name in bad
    }
    further = len(desk.server.refused) + len(desk.server.answered) - 1
    named = provider not in ("openai", "ollama")
    # Each tool costs the request that is made without it, and where no name and no place is given,
    # those of the bisection. Before another bisection, the tool found before is tried alone if it
    # was not.
    assert further <= len(bad) * (1 if named else 1 + math.ceil(math.log2(30))) + (
        0 if named else len(bad) - 1
    )
    # What was found is known from then on.
    before = len(desk.server.refused)
    assert (await desk.ask(plain(30), stream=stream)).message.content == "done"
    assert len(desk.server.refused) == before
    # A tool with another definition is tried again.
    other = {**PLAIN, "title": "Another"}
    await desk.ask([definition("tool_1"), definition(bad[0], other)], stream=stream)
    assert len(desk.server.refused) > before


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_tools_that_are_refused_only_together_are_not_blamed_one_by_one(
    asked: Any, provider: str
) -> None:
    desk = asked(provider, together=20)
    answer = await desk.ask(plain(30))
    assert answer.message.content == "done"
    assert len(definitions_in(provider, desk.server.answered[-1])) == 15
    assert len(desk.notices) == 15
    assert all("together" in notice for notice in set(desk.notices))
    assert len(desk.server.refused) + len(desk.server.answered) <= 10


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_when_every_tool_is_refused_the_model_still_answers(
    asked: Any, provider: str
) -> None:
    desk = asked(provider, lambda name, schema: "an unknown rule")
    answer = await desk.ask(plain(12))
    assert answer.message.content == "done"
    assert definitions_in(provider, desk.server.answered[-1]) == []


async def test_a_tool_that_has_to_be_called_is_not_left_out_in_silence(asked: Any) -> None:
    desk = asked("anthropic", refuses("tool_3"))
    with pytest.raises(BadRequestError, match="tool_3"):
        await desk.ask(plain(5), tool_choice="tool_3")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_arguments_come_back_under_their_real_names(
    asked: Any, provider: str, stream: bool
) -> None:
    where = {"type": "object", "properties": {"user name": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "filter[name]": {"type": "string"},
            "where": where,
            "n": {"type": "integer"},
        },
    }
    tool = definition("find", schema)
    keys = DIALECTS[provider if provider != "openai" else "compatible"].keys
    names = ("filter[name]", "user name") if keys is None else ("filter_name", "user_name")
    desk = asked(provider, calls=[("find", {names[0]: "a", "where": {names[1]: "b"}, "n": 1})])
    answer = await desk.ask([tool], stream=stream)
    (call,) = answer.message.tool_calls or ()
    assert call.function.name == "find"
    assert json.loads(call.function.arguments) == {
        "filter[name]": "a",
        "where": {"user name": "b"},
        "n": 1,
    }
    _, sent, _ = definitions_in(provider, desk.server.answered[0])[0]
    assert set(sent["properties"]) == {names[0], "where", "n"}


def test_names_that_would_become_the_same_stay_apart() -> None:
    properties = {"a[b]": {"type": "string"}, "a b": {"type": "string"}, "a_b": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["a b"]}
    admission = admit(definition("t", schema), DIALECTS["anthropic"])
    assert admission.definition is not None
    sent = admission.definition["parameters"]
    assert len(sent["properties"]) == 3
    assert {admission.renamed.get(name, name) for name in sent["properties"]} == set(properties)
    assert [admission.renamed[name] for name in sent["required"]] == ["a b"]


def test_a_choice_at_the_top_keeps_its_meaning() -> None:
    send = {
        "properties": {"kind": {"const": "mail"}, "to": {"type": "string"}},
        "required": ["kind", "to"],
    }
    post = {
        "properties": {"kind": {"const": "post"}, "street": {"type": "string"}},
        "required": ["kind", "street"],
    }
    admission = admit(
        definition("t", {"type": "object", "oneOf": [send, post]}), DIALECTS["openai"]
    )
    assert admission.definition is not None
    sent = admission.definition["parameters"]
    assert set(sent["properties"]) == {"kind", "to", "street"}
    assert sent["required"] == ["kind"]
    assert sent["properties"]["kind"] == {"anyOf": [{"const": "mail"}, {"const": "post"}]}
    words = admission.definition["description"]
    assert all(word in words for word in ('kind = "mail" and to', 'kind = "post" and street'))


REFUSALS = {
    "openai": (
        """{"error": {"message": "Invalid schema for function 'b': None is not of type 'array'."}}""",
        "b",
    ),
    "openai, a name": ("Invalid 'tools[1].function.name': string does not match pattern.", "b"),
    "anthropic": ("tools.1.custom.input_schema: JSON schema is invalid.", "b"),
    "gemini": (
        (
            "* GenerateContentRequest.tools[0].function_declarations[2].parameters.required[0]:"
            " property"
        ),
        "c",
    ),
    "bedrock": ("The value at toolConfig.tools.1.toolSpec.inputSchema.json is invalid", "b"),
    "vllm": (
        (
            "[{'type': 'dict_type', 'loc': ('body', 'tools', 2, 'function', 'parameters'), 'msg':"
            " '…'}]"
        ),
        "c",
    ),
    "llama.cpp": ("Failed to initialize samplers: failed to parse grammar", ""),
    "llama.cpp, a pattern": (
        "JSON schema conversion failed:\\nPattern must start with '^' and end with '$'",
        "",
    ),
    "ollama": (
        "json: cannot unmarshal string into Go struct field ToolProperty.required of type []string",
        "",
    ),
    "a foreign gateway": ("The tool schema of `c` is not supported", "c"),
}
OTHERS = [
    "max_tokens: 100000 > 8192, which is the maximum",
    "tools.1.custom.defer_loading: Extra inputs are not permitted",
    "messages.3.content.0.tool_use.input: Field required",
    "Invalid 'tools': array too long. Expected an array with maximum length 128",
    "Invalid schema for response_format 'answer': failed to parse grammar",
    "messages: text content blocks must be non-empty",
    "tools[1].type: Field required",
    "This model does not support tools",
]


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_in_every_provider_s_words_lead_to_the_tool(name: str) -> None:
    text, tool = REFUSALS[name]
    refusal = tool_refusal(400, text, text, ["a", "b", "c"])
    assert refusal is not None
    assert refusal.name == tool
    assert tool_refusal(401, text, text, ["a", "b", "c"]) is None


@pytest.mark.parametrize("text", OTHERS)
def test_a_refusal_that_is_not_about_a_schema_is_left_alone(text: str) -> None:
    assert tool_refusal(400, text, text, ["a", "b", "c"]) is None


@pytest.mark.parametrize("text", OTHERS[:1] + OTHERS[5:])
async def test_a_refusal_that_is_not_about_a_schema_is_not_searched(
    loopback: Any, model_of: Any, text: str
) -> None:
    server = loopback({"error": {"message": text}}, status=400)
    with pytest.raises(BadRequestError):
        await model_of(server, "openai").complete(
            [UserMessage(content="Do it")], plain(8), stream=False
        )
    assert len(server.seen) == 1


async def test_a_description_that_is_too_long_is_cut_to_what_the_provider_says(
    loopback: Any, serving: Any, model_of: Any
) -> None:
    words = (
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum"
        " length 1024, but got 2000."
    )
    server = serving(
        Reply(400, {"error": {"message": words}}), Reply(200, answer("openai", "done"))
    )
    long = {**definition("t"), "description": "word " * 400}
    reply = await model_of(server, "openai").complete(
        [UserMessage(content="Do it")], [long], stream=False
    )
    assert reply.message.content == "done"
    assert len(server.seen[1].body["tools"][0]["function"]["description"]) <= 1_024


def test_the_table_names_its_sources() -> None:
    for dialect in DIALECTS.values():
        assert dialect.sources
        assert all(source.startswith("https://") for source in dialect.sources)
    assert dialect_of("openai", "api.openai.com", at_home=True) is DIALECTS["openai"]
    assert dialect_of("openai", "127.0.0.1", at_home=False) is DIALECTS["compatible"]
    assert (
        dialect_of("openai", "generativelanguage.googleapis.com", at_home=False)
        is DIALECTS["gemini"]
    )
    assert dialect_of("anthropic", "gateway.example", at_home=False) is DIALECTS["anthropic"]


async def test_a_probe_that_waits_for_a_limit_takes_nothing_from_the_time_of_the_provider(
    asked: Any,
) -> None:
    def refuses_first(name: str, schema: Any) -> str | None:
        if name == "tool_3" and not desk.server.refused:
            desk.model.limits.pause(6)
        return "an unknown rule" if name == "tool_3" else None

    desk = asked("openai", refuses_first)
    desk.model.timeout = 5
    answer = await desk.ask(plain(5))
    assert answer.message.content == "done"


async def test_what_was_refused_and_probes_reserve_no_more_tokens_than_they_take(
    asked: Any,
) -> None:
    desk = asked("openai", refuses("tool_3"))
    desk.model.limits = ClientLimits("desk", tokens=10_000)
    waits: list[object] = []

    def heard(event: object) -> None:
        if isinstance(event, RateLimitWait):
            waits.append(event)

    text = "word " * 6_000
    answer = await desk.model.complete([UserMessage(content=text)], plain(5), on_event=heard)
    assert answer.message.content == "done"
    assert waits == []
