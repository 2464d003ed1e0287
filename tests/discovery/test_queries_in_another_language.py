"""A query is compared word by word, so the model is told which language to search in, before and
after.
"""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.languages import languages
from casual_mcp_nb.discovery.search_tools import SearchToolsTool

pytestmark = pytest.mark.defect("E7")
CLOCK = ToolSpec(
    "time",
    "current_time",
    "The time now in a city.",
    {"type": "object"},
    wire_name="time__current_time",
)


async def test_the_search_tool_names_the_language_to_search_in_cheaply() -> None:
    definition = SearchToolsTool([CLOCK]).definition
    rule = definition["parameters"]["properties"]["query"]["description"]
    assert "language" in rule
    assert estimate_tokens(definition["description"].partition("<manifest>")[0] + rule) < 70


@pytest.mark.parametrize(
    "query", ["Wie spät ist es?", "¿Qué hora es?", "東京は何時ですか", "Uhrzeit"]
)
async def test_an_empty_answer_says_in_which_language_to_search(query: str) -> None:
    answer = await SearchToolsTool([CLOCK]).execute({"query": query})
    assert answer.newly_loaded_tools == []
    assert "in English" in answer.content


@pytest.mark.parametrize(
    ("query", "noted"),
    [
        ("Wie spät ist es in Tokyo city?", True),
        ("какое время в городе, city", True),
        ("city: 今何時ですか、時間を教えて", True),
        ("the time now in a city", False),
        ("time in the city of José María Ñuñoa", False),
        ("time city", False),
    ],
)
async def test_hits_for_few_words_of_another_language_get_the_note_too(
    query: str, noted: bool
) -> None:
    answer = await SearchToolsTool([CLOCK]).execute({"query": query})
    assert [tool.name for tool in answer.newly_loaded_tools] == ["current_time"]
    assert ("English" in answer.content) is noted


async def test_tools_described_in_the_language_of_the_query_need_no_hint() -> None:
    uhr = ToolSpec("uhr", "uhrzeit", "Die Uhrzeit in einer Stadt, wie sie gerade ist.")
    german = await SearchToolsTool([uhr]).execute({"query": "Wie ist die Uhrzeit bei uns?"})
    assert "German" not in german.content
    assert "German" in (await SearchToolsTool([uhr]).execute({"query": "what is the hour"})).content


@pytest.mark.parametrize(
    ("texts", "spoken"),
    [
        (
            ["List the files of a folder."] * 3 + ["Liste des fichiers dans un dossier."],
            ("English", "French"),
        ),
        (
            ["List the files of a folder."] * 9 + ["Liste des fichiers dans un dossier."],
            ("English",),
        ),
        (["Показать список файлов в папке"], ("Russian",)),
        (["显示文件"], ("Chinese",)),
        (["ファイルを表示"], ("Japanese",)),
        (["파일 목록"], ("Korean",)),
        (["ls", "", "\ud800\x00 ?!", "🙂"], ()),
        ([], ()),
    ],
)
def test_the_languages_of_descriptions(texts: list[str], spoken: tuple[str, ...]) -> None:
    assert languages(texts) == spoken
