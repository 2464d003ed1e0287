"""`session.extract`: an instance of the person's class, out of whatever the model wraps it in, or a
clear error.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kit.provider import PROVIDERS, Provider, answer
from kit.scripted_http import Reply
from pydantic import BaseModel, ConfigDict, Field, RootModel

from casual_mcp_nb import Session
from casual_mcp_nb.errors import AuthenticationError, ExtractionError, UsageError
from casual_mcp_nb.notebook.extract import json_values, read_as
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import scripted_model


class Person(BaseModel):
    """Somebody in a text."""

    name: str = Field(description="The first name.")
    age: int = Field(ge=0)
    likes: list[str] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    born: datetime.date


class People(RootModel[list[Person]]):
    """Several."""


ADA = {"name": "Ada", "age": 36}
GOOD = json.dumps(ADA)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({"servers": {"math": {"bundled": "math", "transport": "in-process"}}}) as session:
        yield session


WRAPPED = {
    "bare": GOOD,
    "in a fence": f"Here it is:\n```json\n{GOOD}\n```\nAnything else?",
    "in a fence without a word": f"```\n{GOOD}\n```",
    "in words": f"Sure! {GOOD} That is {{all}}.",
    "after other braces": f"Of {{name}} and [1, 2] I made {GOOD}.",
    "in a list": f"[{GOOD}]"[1:-1],
    "over several lines": json.dumps(ADA, indent=2) + "\n",
    "the second of two": f'{{"name": "Nobody"}} or rather {GOOD}',
    "with a brace in a text": f'{{"note": "a }} here"}} {GOOD}',
}


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
def test_the_json_is_found_in_whatever_is_around_it(session: Session, text: str) -> None:
    assert session.extract("Ada is 36.", Person, model=scripted_model(text)) == Person(
        name="Ada", age=36
    )


def test_what_is_no_json_is_told_back_and_a_corrected_answer_counts(session: Session) -> None:
    model = scripted_model("I do not know.", '{"name": "Ada", "age": -3}', GOOD)
    assert session.extract("Ada is 36.", Person, model=model).age == 36
    last = model.client.requests[-1].messages
    assert [message.role for message in last] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert "no JSON" in last[3].content
    assert "- age: " in last[5].content


def test_after_two_repairs_the_error_holds_what_was_said_last(session: Session) -> None:
    model = scripted_model("no", "no again", '{"age": "never"}')
    with pytest.raises(ExtractionError, match=r"(?s)Person.* 2 .*name: Field required") as caught:
        session.extract("Ada is 36.", Person, model=model)
    assert caught.value.text == '{"age": "never"}'
    assert "`text`" in caught.value.hint
    assert len(model.client.requests) == 3


def test_no_tools_are_offered_and_the_schema_is_read(session: Session) -> None:
    model = scripted_model(GOOD)
    session.extract("Ada is 36.", Person, model=model)
    (request,) = model.client.requests
    assert request.tools == ()
    assert "The first name." in request.messages[0].content
    assert "Somebody in a text." in request.messages[0].content


def test_an_extraction_leaves_the_conversation_unchanged_unless_it_continues_it(
    session: Session,
) -> None:
    session.chat("I am Ada.", model=scripted_model("Hello Ada."))
    alone, going_on = scripted_model(GOOD), scripted_model("Hm.", GOOD)
    session.extract("Who is 36?", Person, model=alone)
    assert len(alone.client.requests[0].messages) == 2
    assert len(session.turns) == session.stats.llm_calls == 1
    session.extract("And who am I?", Person, model=going_on, conversation=True)
    assert [message.content for message in going_on.client.requests[0].messages[1:]] == [
        "I am Ada.",
        "Hello Ada.",
        "And who am I?",
    ]
    assert [turn.answer for turn in session.turns] == ["Hello Ada.", "Hm.", GOOD]
    session.chat("So?", model=(follow := scripted_model("Yes.")))
    assert len(follow.client.requests[0].messages) == 8


async def test_the_awaited_twin_and_lists_and_strict_classes(session: Session) -> None:
    people = await session.extract_async(
        "Ada is 36.", People, model=scripted_model(f"```\n[{GOOD}]\n```")
    )
    assert people.root == [Person(name="Ada", age=36)]
    born = session.extract(
        "Ada, 1815-12-10", Strict, model=scripted_model('{"born": "1815-12-10"}')
    )
    assert born.born == datetime.date(1815, 12, 10)


def test_the_offline_planner_says_that_it_cannot() -> None:
    with Session.demo() as demo, pytest.raises(UsageError, match="offline planner"):
        demo.extract("Ada is 36.", Person)


@pytest.mark.parametrize("schema", [dict, {"name": str}, Person(name="x", age=1), int])
def test_what_is_no_pydantic_class_is_refused(session: Session, schema: Any) -> None:
    with pytest.raises(UsageError, match="pydantic"):
        session.extract("x", schema, model=scripted_model(GOOD))


FORMATS = {
    "openai": lambda body: body["response_format"]["json_schema"]["schema"],
    "openai-responses": lambda body: body["text"]["format"]["schema"],
    "anthropic": lambda body: None,
    "gemini": lambda body: body["generationConfig"]["responseJsonSchema"],
    "ollama": lambda body: body["format"],
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_is_asked_in_its_own_way(provider: str) -> None:
    with (
        Provider(answer(provider, GOOD)) as server,
        Session(server.config(provider), in_process={}) as session,
    ):
        assert session.extract("Ada is 36.", Person).name == "Ada"
        (seen,) = server.seen
        asked = FORMATS[provider](seen.body)
        assert asked is None or set(asked["properties"]) == {"name", "age", "likes"}
        assert "JSON Schema" in json.dumps(seen.body)
        assert not seen.body.get("tools")


def test_a_server_that_cannot_be_asked_for_json_is_only_told() -> None:
    refused = Reply(400, {"error": {"message": "response_format is not supported"}})
    with Provider(refused, answer("openai", "no"), answer("openai", GOOD)) as server:
        with Session(server.config("openai"), in_process={}) as session:
            assert session.extract("Ada is 36.", Person).name == "Ada"
        assert ["response_format" in seen.body for seen in server.seen] == [True, False, False]


def test_an_error_of_the_provider_is_raised_as_it_is() -> None:
    with Provider(Reply(401, {"error": {"message": "who are you?"}})) as server:
        with (
            Session(server.config("openai"), in_process={}) as session,
            pytest.raises(AuthenticationError),
        ):
            session.extract("Ada is 36.", Person)
        assert len(server.seen) == 1


def test_an_extraction_that_is_stopped_asks_no_more(session: Session) -> None:
    async def slow(messages: object, tools: object) -> str:
        session.stop()
        await asyncio.sleep(5)
        return GOOD

    model = scripted_model(slow, GOOD)
    with pytest.raises(ExtractionError, match="was stopped"):
        session.extract("Ada is 36.", Person, model=model, conversation=True)
    assert [turn.status for turn in session.turns] == ["stopped"]
    assert len(model.client.requests) == 1


def test_the_model_that_was_handed_in_stays_as_it_was(session: Session) -> None:
    model = scripted_model(GOOD)
    model.provider = "openai"
    session.extract("Ada is 36.", Person, model=model)
    assert isinstance(model, ChatModel)
    assert model.default_options is None


def test_hostile_texts_are_read_in_no_time() -> None:
    for text in (
        "{" * 100_000,
        "[" * 100_000,
        '{"a":' * 50_000,
        "```\n" * 20_000,
        "{}" * 50_000,
        '"' * 100_000,
    ):
        assert isinstance(read_as(Person, text), str)
    assert list(json_values("")) == []
