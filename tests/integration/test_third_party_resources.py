"""Every resource, template, prompt, completion and subscription of real servers."""

from __future__ import annotations

import pytest
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.providers.scripted import scripted_model

pytestmark = pytest.mark.integration

VALUES = {
    "city": "Oslo",
    "department": "Engineering",
    "name": "Alice",
    "resourceType": "Text",
    "resourceId": "2",
    "topic": "tides",
}


def test_every_resource_is_read(session: Session) -> None:
    resources = session.resources.list()
    assert resources.problems == {}
    assert {"everything", "memory", "database"} <= resources.by_server.keys()
    for resource in resources:
        contents = session.resources.read(resource, **dict.fromkeys(resource.parameters or (), 2))
        assert contents.text or contents.data
    templates = {
        resource.uri for resource in resources.of_server("everything") if resource.is_template
    }
    assert templates == {
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}",
    }
    blob = session.resources.read("demo://resource/dynamic/blob/3")
    assert blob.data is not None
    assert (blob.server, blob.parts[0].mime_type) == ("everything", "text/plain")


def test_every_prompt_is_filled_in(session: Session) -> None:
    prompts = session.prompts.list()
    assert prompts.problems == {}
    assert {"everything", "fetch", "database"} <= prompts.by_server.keys()
    for prompt in prompts:
        if prompt.server == "fetch":
            continue
        values = {
            argument.name: VALUES[argument.name]
            for argument in prompt.arguments
            if argument.required
        }
        assert session.prompts.get(f"{prompt.server}:{prompt.name}", **values).messages
    with_resource = session.prompts.get(
        "everything:resource-prompt", resourceType="Text", resourceId="2"
    )
    assert {message.content.kind for message in with_resource.messages} == {"text", "resource"}


def test_the_prompt_of_the_fetch_server_reads_a_page(session: Session, page: str) -> None:
    assert "The tide is high" in session.prompts.get("fetch:fetch", url=page).text


def test_arguments_are_completed(session: Session) -> None:
    assert tuple(session.prompts.complete("everything:completable-prompt", "department", "E")) == (
        "Engineering",
    )
    names = session.prompts.complete(
        "everything:completable-prompt", "name", "", department="Engineering"
    )
    assert "Alice" in names
    assert "1" in session.prompts.complete(
        "demo://resource/dynamic/text/{resourceId}", "resourceId", "1"
    )
    assert len(session.prompts.complete("fetch:fetch", "url", "h")) == 0


def test_links_of_results_are_followed(session: Session) -> None:
    for link in session.tools.call("everything:get-resource-links", count=2).content:
        if link.kind == "link":
            assert session.resources.read(link).uri == link.uri


def test_changes_are_reported(session: Session) -> None:
    uri = "demo://resource/dynamic/text/1"
    session.resources.subscribe(uri)
    session.tools.call("everything:toggle-subscriber-updates")
    try:
        wait_until(lambda: session.resources.subscriptions[0].updates > 0, "a change is reported")
    finally:
        session.tools.call("everything:toggle-subscriber-updates")
        session.resources.unsubscribe(uri)
    assert len(session.resources.subscriptions) == 0


def test_a_resource_and_a_prompt_reach_the_model(session: Session) -> None:
    prompt = session.prompts.get("everything:args-prompt", city="Oslo")
    attach = ["demo://resource/static/document/features.md", prompt]
    turn = session.chat("Hello", model=scripted_model("Hi."), attach=attach, echo="none")
    text = text_of(turn.steps[0].request.messages[-2].content)
    assert "features.md" in text
    assert "Oslo" in text
