"""Servers' questions to the person, in our types and the SDK's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.servers.convert import has_few_values
from casual_mcp_nb.servers.redaction import Redactor

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult


class FormTooLarge(Exception):
    """The form of a question is too large to be shown."""

    def __init__(self) -> None:
        super().__init__("the form is too large to be shown")


def question_of(
    params: ElicitRequestParams, server: str, redact: Redactor, *, of_task: bool = False
) -> ServerQuestion:
    """Convert a question, with its text and form redacted.

    Raises:
        FormTooLarge: It has a form that would hold the event loop.
    """
    from mcp_types import ElicitRequestURLParams

    message = redact(params.message)
    if isinstance(params, ElicitRequestURLParams):
        return ServerQuestion(
            server, message, url=params.url, url_id=params.elicitation_id, of_task=of_task
        )
    if not has_few_values(params.requested_schema):
        raise FormTooLarge
    return ServerQuestion(
        server, message, form=redact.schema(params.requested_schema), of_task=of_task
    )


def elicit_result(answer: QuestionAnswer) -> ElicitResult:
    """Convert an answer."""
    from mcp_types import ElicitResult
    from pydantic_core import to_jsonable_python

    content: Any = None
    if answer.content is not None:
        content = to_jsonable_python(dict(answer.content))
    return ElicitResult(action=answer.action, content=content)
