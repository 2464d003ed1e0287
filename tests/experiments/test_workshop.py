"""The workshop of one tool: what its texts cost, where searches rank it, what models call, and
where edits go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiments.test_runs import model_of
from fastmcp import FastMCP
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.errors import LimitError, UsageError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.workshop import MAX_PROPOSED, NO_CALL, Workshop, confusion, halves
from casual_mcp_nb.providers.scripted import call, scripted_model

BETTER = "Forecast the weather of a city for the coming days."
CASES = [
    *(
        ToolUseCase(f"Will it rain in town {n}?", ["weather:forecast"], id=f"future {n}")
        for n in range(16)
    ),
    *(
        ToolUseCase(f"Did it rain in town {n} in May?", ["weather:history"], id=f"past {n}")
        for n in range(4)
    ),
    ToolUseCase("Good morning!", no_call=True, id="hello"),
]


def reader(messages: Any, tools: Any) -> Any:
    """A model that finds the forecast only by the word “coming”."""
    text, texts = messages[-1].content, {tool["name"]: tool["description"] for tool in tools}
    if messages[-1].role == "tool" or "rain" not in text:
        return "Done"
    if "Did" in text or "coming" not in texts["weather__forecast"]:
        return call("weather__history", city="Oslo")
    return call("weather__forecast", city="Oslo")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "desk": desk()}, store=None, quiet=True
    ) as session:
        yield session


def test_edits_are_judged_on_one_half_and_the_other_is_kept_back(session: Session) -> None:
    workshop = session.experiments.workshop(
        "weather:forecast", CASES, models=model_of(reader), seed=3
    )
    assert {len(workshop.development), len(workshop.held_out)} == {10, 11}
    assert not {case.id for case in workshop.development} & {case.id for case in workshop.held_out}
    with pytest.raises(UsageError):
        workshop.run()
    workshop.edit(description=BETTER)
    assert workshop.after.tokens > workshop.before.tokens
    assert "not run yet" in str(workshop)
    results = workshop.run()
    assert list(results) == ["as listed", "edited"]
    (comparison,) = results.comparisons()
    assert (comparison.right.better, comparison.right.worse) == (8, 0)
    assert comparison.right.p < 0.05
    before, after = (confusion(arm) for arm in results.values())
    assert (
        before["weather:forecast", "weather:history"]
        == after["weather:forecast", "weather:forecast"]
        == 8
    )
    past = sum(case.id.startswith("past") for case in workshop.development)
    assert (
        before["weather:history", "weather:history"]
        == after["weather:history", "weather:history"]
        == past
    )
    assert ("weather:forecast", "weather:history") not in after
    # What the model reads of the session itself is as before.
    assert session.tools["weather:forecast"].description == "Forecast the weather of a city."
    assert workshop.looks == 0
    verdict = workshop.test()
    assert (verdict.looks, verdict.edits, set(verdict.results.cases)) == (
        1,
        1,
        {case.id for case in workshop.held_out},
    )
    assert verdict.comparison is not None
    assert (verdict.comparison.right.better, verdict.comparison.right.adjusted_p) == (8, None)
    again = workshop.edit(description=f"{BETTER} Or not.").test()
    assert (again.looks, again.edits) == (2, 2)
    assert again.comparison is not None
    assert again.comparison.right.adjusted_p == pytest.approx(min(1, 2 * again.comparison.right.p))
    assert "2 different edits" in str(again)
    assert "looked at 2 times" in str(workshop)


def test_what_was_run_before_is_not_run_again(session: Session) -> None:
    model = model_of(reader)
    workshop = session.experiments.workshop("weather:forecast", CASES, models=model)
    workshop.edit(description=BETTER).run()
    first = workshop.edit(parameters={"city": "A town"}).run()
    assert first.reused == len(workshop.development)
    assert workshop.current is first
    workshop.reset()
    assert workshop.current is None
    assert workshop.edits == {}


def test_a_case_without_a_call_is_counted_as_such(session: Session) -> None:
    answers = model_of(
        lambda messages, tools: (
            "Hm" if messages[-1].role == "tool" else call("desk__note", text="x")
        )
    )
    results = session.experiments.run([CASES[0], CASES[-1]], models=answers)
    assert confusion(*results.values()) == {
        ("weather:forecast", "desk:note"): 1,
        (NO_CALL, "desk:note"): 1,
    }


def test_clusters_stay_together_and_the_division_is_the_same_each_time() -> None:
    cases = [
        ToolUseCase(f"{word} {n}", [f"weather:{tool}"], cluster=f"{tool} {n}")
        for n in range(9)
        for tool in ("forecast", "history")
        for word in ("Say", "Tell")
    ]
    tool = ToolName("weather", "forecast")
    first, second = halves(cases, tool, 1)
    assert {case.cluster for case in first}.isdisjoint({case.cluster for case in second})
    assert len(first) + len(second) == len(cases)
    assert halves(cases, tool, 1) == (first, second)
    assert halves(cases, tool, 2) != (first, second)
    for half in (first, second):
        assert {case.tools[0] for case in half} == {"weather:forecast", "weather:history"}


def test_ranks_are_those_of_the_search_for_the_tool_and_its_neighbours(session: Session) -> None:
    workshop = session.experiments.workshop(
        "weather:forecast", [ToolUseCase("Umbrella tomorrow?", ["weather:forecast"])]
    )
    (own,) = [each for each in workshop.ranks if each.query == "Umbrella tomorrow?"]
    assert (own.before, own.after) == (None, None)
    workshop.edit(
        description=(
            "Say whether an umbrella is needed tomorrow. Past weather of a city. Past weather."
        )
    )
    (own,) = [each for each in workshop.ranks if each.query == "Umbrella tomorrow?"]
    assert (own.before, own.after) == (None, 1)
    assert own.change > 0
    neighbour = next(each for each in workshop.ranks if each.tool == ToolName("weather", "history"))
    assert neighbour.query == "Past weather of a city."
    assert neighbour.before == 1
    workshop.edit(name="umbrella")
    assert workshop.after.definition["name"] == "weather__umbrella"
    assert next(each for each in workshop.ranks if each.query == "Umbrella tomorrow?").after == 1


@pytest.mark.parametrize(
    "edit",
    [
        {"parameters": {"town": "x"}},
        {"name": "a b"},
        {"description": 3},
        {"parameters": {"city": None}},
    ],
    ids=str,
)
def test_wrong_edits_change_nothing(session: Session, edit: dict[str, Any]) -> None:
    workshop = session.experiments.workshop("weather:forecast")
    with pytest.raises(UsageError):
        workshop.edit(**edit)
    assert workshop.edits == {}


def test_a_workshop_needs_a_tool_and_cases_that_can_be_divided(session: Session) -> None:
    with pytest.raises(UsageError):
        session.experiments.workshop("weather:forcast")
    with pytest.raises(UsageError):
        session.experiments.workshop("weather:forecast", descriptions={})
    workshop = session.experiments.workshop("weather:forecast").edit(description="x")
    for step in (workshop.run, workshop.test):
        with pytest.raises(UsageError):
            step()


HOSTILE = "Call me \u202ealways\x1b[31m <script>alert(1)</script> " + "x" * MAX_PROPOSED


async def test_proposals_are_asked_for_with_consent_and_are_text(session: Session) -> None:
    rows = [
        {"description": HOSTILE, "parameters": {"city": "Town", "evil": "x"}},
        {"description": 3},
        "no",
        {"description": BETTER},
    ]
    model = scripted_model(f"Here you are:\n{json.dumps(rows)}")
    workshop = await session.experiments.workshop_async(
        "weather:forecast", CASES, models=model_of(reader)
    )
    asked: list[Any] = []

    async def answer(request: Any) -> bool:
        asked.append(request)
        return len(asked) > 1

    await workshop.edit(description="Worse.").run_async()
    session.parts.chat.consent.approver, session.parts.chat.consent.can_ask = answer, lambda: True
    with pytest.raises(UsageError, match="Nothing was sent"):
        await workshop.propose_async(4, model=model)
    with pytest.raises(LimitError):
        await workshop.propose_async(4, model=model, max_total_tokens=300)
    assert model.client.requests == []
    proposals = await workshop.propose_async(4, model=model)
    (sent,) = model.client.requests
    assert asked[1].reason == "proposal"
    assert asked[1].arguments["messages"][0]["text"] == sent.messages[0].content
    assert sent.tools == ()
    # The failures of the half to work with are there, and nothing of the other one.
    assert any(case.messages[0] in sent.messages[0].content for case in workshop.development)
    assert not any(case.messages[0] in sent.messages[0].content for case in workshop.held_out)
    first, second = proposals
    assert len(first.description) <= MAX_PROPOSED + 10
    assert not set("\u202e\x1b") & set(first.description)
    assert (first.parameters, second.description) == ({"city": "Town"}, BETTER)
    html = proposals._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert workshop.use(second).edits == {"description": BETTER}


async def test_an_answer_without_proposals_is_an_error(session: Session) -> None:

    async def allow(request: Any) -> bool:
        return True

    session.parts.chat.consent.approver, session.parts.chat.consent.can_ask = allow, lambda: True
    workshop = await session.experiments.workshop_async("weather:forecast")
    for answer in ("I cannot", "[]", '["x"]', "[" * 5_000):
        with pytest.raises(UsageError, match="no proposals"):
            await workshop.propose_async(model=scripted_model(answer))


def opened(path: Path) -> Session:
    return Session.from_config(path, trust=True, store=None, quiet=True)


def test_edits_are_kept_in_the_config_and_used_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {
        "servers": {"math": {"bundled": "math", "transport": "in-process", "env": {}}},
        "prices": {},
    }
    path.write_text(json.dumps(config, indent=4))
    path.chmod(0o600)
    with opened(path) as session:
        workshop = session.experiments.workshop("math:evaluate_expression")
        with pytest.raises(UsageError):
            workshop.keep()
        parameter = next(iter(workshop.before.input_schema["properties"]))
        workshop.edit(description="Compute ${HOME}.", parameters={parameter: "Such as 1 + 1"})
        assert workshop.keep() == path
        listed = session.tools["math:evaluate_expression"].description
        meaning = session.tools["math:evaluate_expression"].meaning
        session.servers.reconnect("math")
    assert path.stat().st_mode & 0o777 == 0o600
    written = json.loads(path.read_text())
    assert written["servers"]["math"].pop("descriptions") == {
        "evaluate_expression": {
            "description": "Compute $${HOME}.",
            "parameters": {parameter: "Such as 1 + 1"},
            "written_for": meaning,
        }
    }
    assert written == config
    assert path.read_text().startswith('{\n    "servers"')
    with opened(path) as session:
        session.connect(quiet=True)
        tool = session.tools["math:evaluate_expression"]
        assert tool.description == "Compute ${HOME}." != listed
        assert tool.input_schema["properties"][parameter]["description"] == "Such as 1 + 1"
        # The server's own definition is what changes are compared with, and the override is none.
        assert session.parts.chat.catalog.resolve("math:evaluate_expression").description == listed
        assert session.parts.chat.tools.changes.changes == {}
        again = session.experiments.workshop("math:evaluate_expression").edit(
            description="Compute."
        )
        assert "Such as 1 + 1" in again.patch().diff
        again.keep()
    assert json.loads(path.read_text())["servers"]["math"]["descriptions"][
        "evaluate_expression"
    ] == {
        "description": "Compute.",
        "parameters": {parameter: "Such as 1 + 1"},
        "written_for": meaning,
    }


@pytest.mark.parametrize(
    "text", ['{"servers": {}} // a comment', '{"servers": {"other": {"bundled": "math"}}}', "[]"]
)
def test_a_file_that_cannot_be_changed_stays_and_the_text_to_insert_is_shown(
    session: Session, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    workshop = session.experiments.workshop("weather:forecast").edit(description=BETTER)
    for given in (None, path):
        with pytest.raises(UsageError) as raised:
            workshop.keep(given)
        assert BETTER in str(raised.value)
    assert path.read_text() == text


def test_names_in_the_config_that_do_not_exist_are_reported(tmp_path: Path) -> None:
    texts = {"evaluate_expresion": "x", "evaluate_expression": {"parameters": {"nothing": "x"}}}
    config = {
        "servers": {"math": {"bundled": "math", "transport": "in-process", "descriptions": texts}}
    }
    with Session.from_config(config, store=None, quiet=True) as session:
        session.connect(quiet=True)
        problems = " ".join(notice.text for notice in session.consent.problems)
    assert "evaluate_expresion" in problems
    assert "nothing" in problems


def test_the_patch_has_old_and_new_texts(session: Session) -> None:
    workshop = session.experiments.workshop("weather:forecast")
    assert str(workshop.patch()) == ""
    workshop.edit(
        name="weather_forecast",
        description='Forecast """now""".',
        parameters={"city": "Name of\na town"},
    )
    patch = workshop.patch()
    assert '-  "name": "forecast"' in patch.diff
    assert '+  "name": "weather_forecast"' in patch.diff
    assert '+    "city": "Name of\\na town"' in patch.diff
    namespace: dict[str, Any] = {}
    exec(f"def tool():\n    {patch.docstring}", namespace)
    assert namespace["tool"].__doc__ == 'Forecast """now""".\n\nArgs:\n    city: Name of a town\n'
    assert patch.diff.splitlines()[0] in str(patch)


def test_hostile_texts_of_a_server_are_text_in_every_display() -> None:
    server: FastMCP[Any] = FastMCP("bad")

    @server.tool(description="<img src=x onerror=alert(1)>\x1b[2J \u202e Do it.")
    def act(city: str) -> str:
        return city

    with Session({}, in_process={"bad": server}, store=None, quiet=True) as session:
        workshop: Workshop = session.experiments.workshop("bad:act").edit(
            description="<b>Better</b>"
        )
        for shown in (workshop, workshop.patch()):
            assert "<img" not in shown._repr_html_()
            assert not set("\x1b\u202e") & set(
                shown._repr_html_() + str(shown) + shown._repr_markdown_()
            )
