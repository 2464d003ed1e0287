"""The HTTP API: chat, toolsets, health, and its own description."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fastapi_offline
from casual_llm.messages import ChatMessage
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.serve.answers import Answer, DeniedTool, Health, Stats, ToolSetEntry
from casual_mcp_nb.serve.event_stream import EventStream
from casual_mcp_nb.serve.events import as_json, message_fields
from casual_mcp_nb.serve.problems import INTERNAL, MEDIA_TYPE, Problem, ProblemError, WrongField, problem_of
from casual_mcp_nb.serve.requests import ChatRequest
from casual_mcp_nb.serve.turns import ServedTurns
from casual_mcp_nb.serve.waiting import unless_gone
from casual_mcp_nb.types.trace import Trace, Turn

EVENT_STREAM = "text/event-stream"
DESCRIPTION = """Chat with models that call the tools of MCP servers.

With `Accept: text/event-stream`, `POST /chat` sends the events of the turn while it runs, and then its answer.
Every error is a problem (RFC 9457): `detail` is for people, `kind` for programs."""
_PROBLEMS = {
    400: "An unknown model or toolset, or a toolset that does not fit the servers.",
    401: "The token is missing or wrong.",
    403: "The header Host or Origin is not allowed.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    422: "A field of the request is not valid.",
    500: "The turn failed, for example at its limit of steps.",
    502: "The model or a server failed.",
    503: "Too many turns are running, or the model is overloaded. `Retry-After` says when to try again.",
    504: "The turn, or the model, took too long.",
}
_OF_ALL = (401, 403, 408, 413)


def api(
    turns: ServedTurns,
    models: Callable[[], list[str]],
    *,
    needs_token: bool,
) -> FastAPI:
    """Build the API as an ASGI application, without the checks of `Guard`.

    Args:
        turns: Runs the turns.
        models: Returns the names of the models.
        needs_token: Whether clients must send a token, for the description.
    """
    app = FastAPI(
        title="casual-mcp-nb",
        version=version("casual-mcp-nb"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.post(
        "/chat",
        summary="Answer a conversation",
        response_model=Answer,
        response_description="The answer; or, as server-sent events, what happens, and then the answer.",
        responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}},
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        if len(body.messages) > turns.limits.max_messages:
            text = f"There are more than {turns.limits.max_messages:,} messages."
            raise ProblemError(422, "validation", text, errors=[WrongField(field="messages", message=text)])
        try:
            options = body.options()
        except UsageError as error:
            raise problem_of(error) from error

        def answer(turn: Turn, messages: list[ChatMessage]) -> dict[str, Any]:
            stats = {"stats": Stats.of(turn.stats).model_dump()} if body.include_stats else {}
            denied = [DeniedTool(tool=str(each.tool), reason=each.reason, option=each.option) for each in turns.denied_in(turn)]
            return {
                "messages": [message_fields(message) for message in messages],
                "response": turn.answer,
                **stats,
                **({"denied": [each.model_dump() for each in denied]} if denied else {}),
            }

        if _wants_events(request):
            return EventStream(lambda turn, on_event: turns.run(turn, body.messages, options, on_event), answer)
        turn = Turn(Trace())
        messages = await unless_gone(request.receive, turns.run(turn, body.messages, options))
        return Response(as_json(answer(turn, messages)), media_type="application/json")

    @app.get("/toolsets", summary="The toolsets by name")
    async def list_tool_sets() -> dict[str, ToolSetEntry]:
        return {
            name: ToolSetEntry(description=tool_set.description, servers=list(tool_set.servers))
            for name, tool_set in turns.tool_sets.items()
        }

    page = Path(__file__).with_name("docs.html").read_text(encoding="utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page)

    # What the page loads, from a package instead of another site.
    app.mount("/docs", StaticFiles(directory=Path(fastapi_offline.__file__).with_name("static")))

    @app.get("/health", summary="Whether the service runs, without a token")
    async def health() -> Health:
        return Health(status="ok")

    def openapi() -> dict[str, Any]:
        return _described(get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes))

    def _described(schema: dict[str, Any]) -> dict[str, Any]:
        schemas = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update({**problem.pop("$defs"), "Problem": problem})
        fields = schemas["ChatRequest"]["properties"]
        fields["messages"]["maxItems"] = turns.limits.max_messages
        next(option for option in fields["max_steps"]["anyOf"] if option["type"] == "integer")["maximum"] = turns.max_steps
        if names := models():
            fields["model"]["enum"] = names
            example = {"model": names[0], "messages": [{"role": "user", "content": "What is 17 * 23?"}], "include_stats": True}
            schemas["ChatRequest"]["examples"] = [example]
        for option in fields["tool_set"]["anyOf"]:
            if option["type"] == "string" and (named := list(turns.tool_sets)):
                option["enum"] = named
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                for status in _PROBLEMS if path == "/chat" else _OF_ALL:
                    operation["responses"][str(status)] = {"description": _PROBLEMS[status], "content": content}
                if needs_token and path != "/health":
                    operation["security"] = [{"token": []}]
        if needs_token:
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    _answer_errors(app)
    return app


def _answer_errors(app: FastAPI) -> None:
    """Answer every error with a problem."""

    @app.exception_handler(ProblemError)
    async def problem(_: Request, error: ProblemError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def of_http(_: Request, error: HTTPException) -> Response:
        kinds = {404: "not_found", 405: "method_not_allowed"}
        return ProblemError(
            error.status_code, kinds.get(error.status_code, "bad_request"), str(error.detail), headers=error.headers
        ).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        # Not the input: it may be large, or a secret in a wrong place.
        wrong = [WrongField(field=_path(problem["loc"]), message=str(problem["msg"])[:200]) for problem in error.errors()]
        first = f" {wrong[0].field}: {wrong[0].message}." if wrong else ""
        return ProblemError(422, "validation", f"The request is not valid.{first}", errors=wrong).response()

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        # Starlette raises it again; `Guard` writes it to the log.
        return ProblemError(*INTERNAL).response()


def _path(location: tuple[int | str, ...]) -> str:
    """Format the path of a field, without the names of the alternatives that pydantic tried."""
    return ".".join(str(part)[:80] for part in location[1:]) or "body"


def _wants_events(request: Request) -> bool:
    """Check whether a client prefers server-sent events to one answer."""
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return EVENT_STREAM in accepted
