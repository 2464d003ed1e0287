"""Extract an instance of a pydantic class from a model's answer."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import BadRequestError, ExtractionError, UsageError
from casual_mcp_nb.notebook.turn_service import Prompt, TurnService
from casual_mcp_nb.providers import OfflineClient
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.model_options import ModelOptions
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel

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
    """Have the model fill a pydantic model, see `Session.extract`."""
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        raise UsageError("The schema must be a pydantic class.", hint="class Person(BaseModel): name: str")
    chat_model = await turns.ready_model(model)
    if isinstance(chat_model.client, OfflineClient):
        raise UsageError("The offline planner is not a language model and cannot extract.", hint="Choose a model: model=…")
    # On a thread: it may be the first to need casual-llm, and a schema can be large.
    turn_options = await asyncio.to_thread(_options, chat_model, schema, options)
    history: list[ChatMessage] = []
    for _ in range(REPAIRS + 1):
        turn, turn_options = await _ask_for_json(turns, prompt, turn_options, history, conversation)
        result = read_as(schema, turn.answer)
        if not isinstance(result, str):
            return result
        if turn.truncated:
            result += "; the answer was cut off at its token limit, max_tokens"
        history += turn.messages
        prompt = _WRONG.format(problem=result)
    raise ExtractionError(
        f"The model's answer is not a valid {schema.__name__}, even after {REPAIRS} corrections: {result}.",
        hint="The error's `text` has its last answer; try another wording of the prompt or the class.",
        text=turn.answer,
        client=chat_model.client_name,
        model=chat_model.model,
    )


async def _ask_for_json(
    turns: TurnService, prompt: Prompt, options: TurnOptions, history: list[ChatMessage], conversation: bool
) -> tuple[Turn, TurnOptions]:
    """Run a turn, and return it with the options for the next: some servers refuse the option for JSON, so it is left out."""
    turn = await _json_turn(turns, prompt, options, history, conversation)
    if isinstance(turn.exception, BadRequestError) and _wants_format(options):
        options = options.replaced(model=_without_format(options.given.get("model")))
        turn = await _json_turn(turns, prompt, options, history, conversation)
    turn.raise_for_status()
    if turn.status == "stopped":
        raise ExtractionError("The extraction was stopped before its end.", text=turn.answer)
    return turn, options


async def _json_turn(
    turns: TurnService, prompt: Prompt, options: TurnOptions, history: list[ChatMessage], conversation: bool
) -> Turn:
    if conversation:
        return await turns.run_turn(Turn(Trace()), prompt, options)
    return await turns.run_separately(prompt, options, history)


def _options(model: ChatModel, schema: type[BaseModel], options: ModelOptions) -> TurnOptions:
    """Build options without tools, and with the schema as an instruction and as the provider's JSON option if it has one."""
    system = _SYSTEM.format(schema=json.dumps(schema.model_json_schema(), ensure_ascii=False))
    if model.spec.takes_format:
        model = _with_format(model, schema)
    return TurnOptions(model=model, tool_set=ToolSetConfig(), system=system, discovery=False, stream=False, **options)


def _with_format(model: ChatModel, response_format: Any) -> ChatModel:
    from casual_llm import ChatOptions

    changed = copy.copy(model)
    changed.default_options = replace(model.default_options or ChatOptions(), response_format=response_format)
    return changed


def _without_format(model: Any) -> ChatModel:
    return _with_format(model, "text")


def _wants_format(options: TurnOptions) -> bool:
    chosen = getattr(options.given.get("model"), "default_options", None)
    return chosen is not None and chosen.response_format != "text"


def read_as(schema: type[T], text: str) -> T | str:
    """Parse the first JSON value in a text that the class accepts, or describe the errors in the first value."""
    from casual_mcp_nb.extract.json_text import json_values

    problem = "there is no JSON in it" if text.strip() else "it is empty"
    for number, value in enumerate(json_values(text)):
        try:
            # As JSON, so that strict classes accept what JSON has no type for, such as dates.
            return schema.model_validate_json(json.dumps(value))
        except ValidationError as error:
            problem = _describe(error) if number == 0 else problem
        except RecursionError:
            continue
    return problem


def _describe(error: ValidationError) -> str:
    lines = [
        f"- {'.'.join(map(str, item['loc'])) or 'the whole value'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "\n".join(["it does not fit the schema:", *lines])[:_MAX_PROBLEM]
