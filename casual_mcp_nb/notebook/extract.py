"""Find the JSON in a model's answer, and convert it to an instance of a pydantic class."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.conversation.conversation import Prompt
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.errors import BadRequestError, ExtractionError, UsageError
from casual_mcp_nb.notebook.turn_service import TurnService
from casual_mcp_nb.providers.builtin.offline import OfflineClient

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel


MAX_TEXT = 2_000_000

_MAX_STARTS = 200
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[{\[]")
# A string, also one that does not end, is one match, so that no comma in it is taken for another.
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*+[}\]])', re.DOTALL)


def json_from_text(text: str) -> Any:
    """Extract the JSON value from a text that a model wrote.

    Models put JSON in fences, add words before and after it, and leave a comma after the last item.
    Nothing is evaluated.

    Returns:
        The first object or list in the likeliest place: the whole text, a fenced block, or between
        words. Without one, any other JSON value, such as a number, that makes up the whole text or
        a fenced block.

    Raises:
        ValueError: There is no JSON in the text.
    """
    plain: list[Any] = []
    for value in json_values(text):
        if isinstance(value, dict | list):
            return value
        plain.append(value)
    if plain:
        return plain[0]
    if text.strip():
        raise ValueError("There is no JSON in the text.")
    raise ValueError("The text is empty.")


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, the likeliest first.

    The order is: the whole text, fenced blocks, then each object or list in it.
    """
    text = text[:MAX_TEXT]
    for piece in (text, *_FENCED.findall(text)):
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):
            continue
    tolerant = _STRING_OR_COMMA.sub(_without_comma, text)
    end = 0
    for _ in range(_MAX_STARTS):
        match = _OPENING.search(text, end)
        if match is None:
            return
        end = match.start() + 1
        for source in dict.fromkeys((text, tolerant)):
            try:
                value, end = _DECODER.raw_decode(source, match.start())
            except (ValueError, RecursionError):
                continue
            yield value
            break


def _without_comma(match: re.Match[str]) -> str:
    """Replace a comma before a closing bracket by a space, so that positions do not change."""
    if match[0] == ",":
        return " "
    return match[0]


T = TypeVar("T", bound=BaseModel)

REPAIRS = 2
"""How often the model may correct an invalid answer."""

_MAX_PROBLEM = 1_000
_SYSTEM = """Answer with one JSON value that this JSON Schema accepts, and with nothing else: no words around it, no fence.
Take what it asks for from what you are given; where something is not there, leave it out or use null, as far as the schema \
allows.

{schema}"""
_WRONG = "Your answer cannot be used: {problem}\nAnswer again, with the corrected JSON value only."


async def extract(
    turns: TurnService,
    prompt: Prompt,
    schema: type[T],
    model: str | Model | ChatModel | None,
    conversation: bool,
    options: ModelOptions,
) -> T:
    """Have the model fill in a pydantic class, see `Session.extract`.

    Raises:
        UsageError: The schema is not a pydantic class, or the model is the offline planner.
        ExtractionError: The model gave no valid value, or was stopped.
    """
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        raise UsageError(
            "The schema must be a pydantic class.", hint="class Person(BaseModel): name: str"
        )
    chat_model = await turns.ready_model(model)
    if isinstance(chat_model.client, OfflineClient):
        raise UsageError(
            "The offline planner is not a language model and cannot extract.",
            hint="Choose a model: model=…",
        )
    # On another thread: it may import casual-llm, and a schema can be large.
    turn_options = await asyncio.to_thread(_options, chat_model, schema, options)
    history: list[ChatMessage] = []
    for _ in range(REPAIRS + 1):
        turn, turn_options = await _ask_for_json(turns, prompt, turn_options, history, conversation)
        result = read_as(schema, turn.answer)
        if not isinstance(result, str):
            return result
        if turn.truncated:
            result += ", because the answer was cut off at its token limit, max_tokens"
        history += turn.messages
        prompt = _WRONG.format(problem=result)
    raise ExtractionError(
        f"The model's answer is not a valid {schema.__name__}, even after {REPAIRS} corrections:"
        f" {result}.",
        hint=(
            "The error's `text` has its last answer. Try another wording of the prompt or the"
            " class."
        ),
        text=turn.answer,
        client=chat_model.client_name,
        model=chat_model.model,
    )


async def _ask_for_json(
    turns: TurnService,
    prompt: Prompt,
    options: TurnOptions,
    history: list[ChatMessage],
    conversation: bool,
) -> tuple[Turn, TurnOptions]:
    """Run a turn, and return it with the options for the next.

    Some servers refuse the provider's option for JSON. For them it is left out.
    """
    turn = await _json_turn(turns, prompt, options, history, conversation)
    model = options.given.get("model")
    chosen = getattr(model, "default_options", None)
    asks_for_json = chosen is not None and chosen.response_format != "text"
    if asks_for_json and isinstance(turn.exception, BadRequestError):
        options = options.replaced(model=_with_format(model, "text"))
        turn = await _json_turn(turns, prompt, options, history, conversation)
    turn.raise_for_status()
    if turn.status == "stopped":
        raise ExtractionError("The extraction was stopped before its end.", text=turn.answer)
    return turn, options


async def _json_turn(
    turns: TurnService,
    prompt: Prompt,
    options: TurnOptions,
    history: list[ChatMessage],
    conversation: bool,
) -> Turn:
    if conversation:
        return await turns.run_turn(TurnSetup(options=options), prompt)
    return await turns.run_separately(prompt, options, history)


def _options(model: ChatModel, schema: type[BaseModel], options: ModelOptions) -> TurnOptions:
    """Build options without tools.

    The schema is in the instructions, and in the provider's option for JSON if it has one.
    """
    system = _SYSTEM.format(schema=json.dumps(schema.model_json_schema(), ensure_ascii=False))
    if model.spec.takes_format:
        model = _with_format(model, schema)
    return TurnOptions(
        model=model,
        tool_set=ToolSetConfig(),
        system=system,
        discovery=False,
        stream=False,
        **options,
    )


def _with_format(model: Any, response_format: Any) -> ChatModel:
    from casual_llm import ChatOptions

    changed: ChatModel = copy.copy(model)
    changed.default_options = replace(
        model.default_options or ChatOptions(), response_format=response_format
    )
    return changed


def read_as(schema: type[T], text: str) -> T | str:
    """Parse the first JSON value in a text that the class accepts.

    If there is none, return a description of what is wrong with the first value.
    """
    problem = "it is empty"
    if text.strip():
        problem = "there is no JSON in it"
    for number, value in enumerate(json_values(text)):
        try:
            # As JSON, so that strict classes accept what JSON has no type for, such as dates.
            return schema.model_validate_json(json.dumps(value))
        except ValidationError as error:
            if number == 0:
                problem = _describe(error)
        except RecursionError:
            continue
    return problem


def _describe(error: ValidationError) -> str:
    lines = ["it does not fit the schema:"]
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, item["loc"])) or "the whole value"
        lines.append(f"- {where}: {item['msg']}")
    return "\n".join(lines)[:_MAX_PROBLEM]
