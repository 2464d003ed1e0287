"""How past questions change a ranking, and that nothing changes without them."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.search import PAST_QUESTION
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

TOOLS = [
    ToolSpec("travel", "rail_board", "Departures at a station"),
    ToolSpec("travel", "rail_fares", "Prices between two stations"),
    ToolSpec("mail", "send_email", "Send an email to people"),
    ToolSpec("mail", "search", "Search messages in the inbox"),
    ToolSpec("units", "convert_units", "Convert a value between units"),
]
BOARD, FARES, SEND = TOOLS[:3]
QUESTIONS = (
    "When does the next train to Bergen leave?",
    "send an email to Ada",
    "convert a value, then search messages, and send an email",
    "rail_fares",
    "what is a penny worth",
)


def asked(text: str, tool: ToolSpec, definition: str | None = None) -> PastQuestion:
    return PastQuestion(text, tool.tool_name, definition or tool.digest, None, "id")


def results(index: ToolSearchIndex) -> list[object]:
    """Everything that searches return: the tools, the scores to the last bit, and why."""
    every: list[object] = []
    for query in QUESTIONS:
        for hit in index.search(query, len(TOOLS)):
            every.append((hit.tool.wire_name, hit.score.hex(), hit.explain().shares))
        for tool in TOOLS:
            every.append(index.explain(query, tool, server="mail"))
    return every


def test_without_questions_and_for_others_nothing_changes() -> None:
    index = ToolSearchIndex(TOOLS)
    before = results(index)
    assert index.with_past(()) is index
    assert index.with_past([asked("a question", BOARD)])._past is None
    learned = index.with_past([asked(text, BOARD) for text in QUESTIONS])
    assert results(learned) != before
    assert results(index) == before
    assert {index.ranked_by(query) for query in QUESTIONS} == {"words"}


def test_questions_about_other_definitions_and_other_tools_do_not_count() -> None:
    index = ToolSearchIndex(TOOLS)
    others = [
        asked("when does the train leave", BOARD, "another"),
        PastQuestion("when does the train leave", ToolName("no", "tool"), "hash", 0.0, "id"),
    ]
    assert results(index.with_past(others)) == results(index)


def test_a_tool_is_found_by_a_question_with_none_of_its_words() -> None:
    index = ToolSearchIndex(TOOLS)
    learned = index.with_past([asked("when does the Bergensbanen leave", BOARD)])
    query = "the next Bergensbanen"
    assert not index.search(query)
    assert [hit.tool for hit in learned.search(query)] == [BOARD]
    assert not learned.search(query, server="mail")
    assert learned.find(query).ranked_by == "words and past questions"
    assert learned.find("send an email").ranked_by == "words"


@pytest.mark.parametrize("server", [None, "mail"])
def test_the_shares_add_up_with_a_past_question(server: str | None) -> None:
    past = [asked(text, tool) for text in QUESTIONS for tool in (BOARD, SEND)]
    index = ToolSearchIndex(TOOLS).with_past(past)
    for query in QUESTIONS:
        for hit in index.search(query, 9, server):
            shares = hit.explain().shares
            assert sum(share.share for share in shares) == pytest.approx(hit.score)
            if hit.tool in (BOARD, SEND):
                (past_share,) = (each for each in shares if each.term == PAST_QUESTION)
                assert query in past_share.field


def test_where_the_words_say_much_a_past_question_says_little() -> None:
    index = ToolSearchIndex(TOOLS)
    learned = index.with_past(
        [asked("send an email to people", FARES), asked("the train to Oslo", FARES)]
    )
    assert learned.search("send an email to people")[0].tool == SEND
    best, weak = (
        learned.explain(query, FARES).shares[-1].share / max(1.0, index.search(query, 1)[0].score)
        for query in ("send an email to people", "people in the train to Oslo")
    )
    assert weak > 2 * best


def test_a_tool_that_is_used_often_does_not_come_first_everywhere() -> None:
    index = ToolSearchIndex(TOOLS)
    often = [asked(f"read messages of person {number} in the inbox", SEND) for number in range(300)]
    query = "search messages in the inbox"
    before, after = index.search(query), index.with_past(often).search(query)
    assert after[0].tool == before[0].tool
    (share,) = (each for each in after[1].explain().shares if each.term == PAST_QUESTION)
    assert share.frequency == 5


def test_meaning_and_past_questions_count_together() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, float("mail" in text or "letter" in text)] for text in texts]

    index = ToolSearchIndex(TOOLS, embed=embed).with_past([asked("post a letter to Ada", BOARD)])
    results = index.find("post a letter")
    assert results.ranked_by == "words, meaning and past questions"
    assert {hit.tool.server for hit in results} >= {"mail", "travel"}
    for hit in results:
        shares = hit.explain().shares
        assert sum(share.share for share in shares) == pytest.approx(hit.score)
