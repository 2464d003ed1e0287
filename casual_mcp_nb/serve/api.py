"""The HTTP API: requests, answers, streamed events, health, and its own description."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import fastapi_offline
from casual_llm.messages import (
    AssistantMessage,
    ChatMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    create_model,
    field_validator,
)
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Strategy
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.model_options import DeliverySetting, ModelOptions
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.base.tool import Denial
from casual_mcp_nb.conversation.codec import PlainLimits, followed, message_fields
from casual_mcp_nb.conversation.event import Event
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.follower import Follower
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.serve.turns import (
    INTERNAL,
    MEDIA_TYPE,
    Problem,
    ProblemError,
    ServedTurns,
    WrongField,
    disconnected,
    problem_of,
    unless_gone,
)

LIMITS = PlainLimits(text=10_000, items=200, depth=12, number=2**63)
"""How much of an event's values is sent.

A larger number is exact in no JavaScript client, and may have thousands of digits.
"""
MAX_EVENT = 200_000
"""Maximum event size in bytes."""


def as_json(value: Any) -> str:
    """Convert plain values to JSON in ASCII, which can also hold lone surrogates."""
    return json.dumps(value, separators=(",", ":"))


def event_as_sse(event: Event) -> bytes:
    """Format an event as a server-sent event. One that is too large has only its time."""
    name = type(event).__name__
    sent = as_sse(name, followed(event, LIMITS))
    if len(sent) > MAX_EVENT:
        return as_sse(name, {"at": event.at, "cut": True})
    return sent


def as_sse(name: str, value: Any) -> bytes:
    """Format a server-sent event."""
    return f"event: {name}\ndata: {as_json(value)}\n\n".encode()


PING_SECONDS = 15.0
"""How often a comment is sent while nothing happens, so that proxies keep the connection open."""
_PING = b": still running\n\n"

Run = Callable[[Turn, Callable[[Event], None]], Coroutine[Any, Any, "list[ChatMessage]"]]


class EventStream(Response):
    """Runs a turn and sends its events, ending with `Answer` or `Problem`.

    A client that disconnects stops the turn.

    A client that reads slowly delays nothing but its own response: the events wait in the trace.
    """

    media_type = "text/event-stream"

    def __init__(
        self, run: Run, answer: Callable[[Turn, list[ChatMessage]], dict[str, Any]]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._run = run
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. The status is an error's if the turn cannot begin."""
        turn = Turn(Trace())
        follower = Follower(turn.trace)
        running = asyncio.create_task(self._run(turn, follower.on_event))
        running.add_done_callback(follower.on_end)
        gone = asyncio.create_task(disconnected(receive))
        gone.add_done_callback(lambda _: running.cancel())
        try:
            await self._send(turn, follower, running, scope, receive, send)
        finally:
            gone.cancel()
            running.cancel()
            await asyncio.wait({running, gone})
            if not running.cancelled():
                # A client that left early does not ask how it ended.
                running.exception()

    async def _send(
        self,
        turn: Turn,
        follower: Follower,
        running: asyncio.Task[list[ChatMessage]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        async def send_part(part: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": more})

        parts = _parts(follower)
        first = await anext(parts, None)
        could_begin = first is not None or not running.done()
        if not could_begin and not running.cancelled() and (error := running.exception()):
            await problem_of(error).response()(scope, receive, send)
            return
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        if first is not None:
            await send_part(first)
        async for part in parts:
            await send_part(part)
        if running.cancelled():
            return
        if error := running.exception():
            last = as_sse("Problem", problem_of(error).problem.model_dump())
        else:
            last = as_sse("Answer", self._answer(turn, running.result()))
        await send_part(last, more=False)


async def _parts(follower: Follower) -> AsyncIterator[bytes]:
    """Yield the events as bytes, and a comment wherever nothing happens for a while."""
    events = aiter(follower)
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait({coming}, timeout=PING_SECONDS)
            if not coming.done():
                yield _PING
                continue
            event = coming.result()
            if event is None:
                return
            yield event_as_sse(event)
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()


class Tokens(BaseModel):
    """Tokens over all model calls in the turn. Null if unknown."""

    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    origin: Origin = Field(description="Who counted them.")


class ToolCallCounts(BaseModel):
    """The turn's tool calls. `search_tools` and its like count under the server `_synthetic`."""

    by_tool: dict[str, int]
    by_server: dict[str, int]
    total: int


class Discovery(BaseModel):
    """The turn's searches."""

    search_calls: int
    tools_discovered: int


class Stats(BaseModel):
    """The resources that the turn used."""

    tokens: Tokens
    tool_calls: ToolCallCounts
    llm_calls: int
    discovery: Discovery | None = Field(description="Null if discovery is off.")


class DeniedTool(BaseModel):
    """A tool that the model called and that was not run, because nobody could be asked."""

    tool: str = Field(description="Its name, `server:tool`.")
    reason: str = Field(description="Why its calls would be asked about.")
    option: str = Field(
        description="The service setting that allows them, or empty if there is none."
    )


class Answer(BaseModel):
    """The answer to a conversation."""

    messages: list[AssistantMessage | ToolResultMessage | SystemMessage | UserMessage] = Field(
        description="The turn's new messages: answers, calls, results."
    )
    response: str = Field(description="The text of the last answer.")
    stats: Stats | None = Field(default=None, description="With `include_stats`.")
    denied: list[DeniedTool] = Field(
        default_factory=list, description="The tools that were denied, if there are any."
    )


class ToolSetEntry(BaseModel):
    """A toolset."""

    description: str
    servers: list[str]


class Health(BaseModel):
    """The service's state."""

    status: Literal["ok"]


class Base64Source(TypedDict):
    """An image's data."""

    type: Literal["base64"]
    data: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class Image(ImageContent):
    """An image: its data, or its address on the public internet, which the service fetches."""

    type: Literal["image"]
    source: (  # type: ignore[assignment]
        Annotated[
            str,
            Field(
                pattern=r"^(?:data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+={0,2}|https?://[!-~]{1,2000})$"
            ),
        ]
        | Base64Source
    )
    media_type: Annotated[str, Field(pattern=r"^image/[a-z0-9.+-]+$")] = "image/jpeg"


class Text(TextContent):
    """A text."""

    type: Literal["text"]


class User(UserMessage):
    """A user message."""

    role: Literal["user"]
    content: str | list[Annotated[Text | Image, Field(discriminator="type")]]  # type: ignore[assignment]


class Assistant(AssistantMessage):
    """A model's answer, with its calls."""

    role: Literal["assistant"]


class System(SystemMessage):
    """A system prompt. The first message only."""

    role: Literal["system"]


class ToolMessage(ToolResultMessage):
    """A call's result."""

    role: Literal["tool"]


NOT_FOR_CLIENTS: Mapping[str, str] = {
    "extra_body": "it goes to the provider unread, with the service's key",
    "extra_headers": "they go to the provider unread, with the service's key",
    "template": "templates are files on the service's computer",
    "variables": "they are for the service's templates",
    "context": "it has values of the service's process",
    "meta": "only the service answers its servers",
    "mock": "stubs are functions of the service's process",
    "stream": "the Accept header decides it",
    "step": "no one is there to continue",
    "attach": "a client reads resources by itself",
}
"""Turn options that no client can set, each with the reason. All others are request fields."""


def _of_the_model() -> dict[str, Any]:
    """Make fields of the options that a client can set for a model, with their help."""
    fields = {}
    for name, field in RequestOptions.model_fields.items():
        if name in NOT_FOR_CLIENTS:
            continue
        text = None
        if metadata := getattr(ModelOptions.__annotations__[name], "__metadata__", ()):
            help = metadata[0].help
            text = f"{help[0].upper()}{help[1:]}."
        kind: Any = field.annotation
        if field.metadata:
            kind = Annotated[kind, *field.metadata]
        fields[name] = (kind, Field(default=None, description=text))
    return fields


if TYPE_CHECKING:
    ModelFields = BaseModel
else:
    ModelFields = create_model("ModelFields", **_of_the_model())


class ChatRequest(ModelFields):
    """A conversation, whose last message will be answered."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="A model name from the config.")
    messages: list[
        Annotated[User | Assistant | System | ToolMessage, Field(discriminator="role")]
    ] = Field(
        min_length=1,
        description=(
            "The conversation. To continue, send it with the answer's messages and the next one."
        ),
    )
    system_prompt: str | None = Field(
        default=None, description="Replaces the service's own and a system message."
    )
    tool_set: str | None = Field(
        default=None, description="Name of a toolset, or null for the service's choice."
    )
    discovery: StrictBool | Literal["auto"] | None = Field(
        default=None,
        description=(
            "Whether deferred tools are hidden behind the search tool, or null for the service's"
            " choice."
        ),
    )
    strategy: Strategy | None = Field(
        default=None, description="How the model finds deferred tools."
    )
    delivery: DeliverySetting | None = Field(
        default=None, description="How the model receives search results."
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="Maximum number of model calls, at most the service's own."
    )
    repair_calls: StrictBool | None = Field(
        default=None, description="Whether calls that the model writes as text are run."
    )
    # Not strict: casual-mcp takes "yes" and 1 as well.
    include_stats: bool = Field(default=False, description="Whether the answer has `stats`.")

    @field_validator("*", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # The description says so; pydantic would take true for 1.
        kinds = get_args(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and (int in kinds or float in kinds):
            raise ValueError("a number is needed, not true or false")
        return value

    def options(self) -> TurnOptions:
        """Build the turn's options."""
        given = self.model_dump(
            exclude={"messages", "include_stats", "system_prompt"}, exclude_none=True
        )
        return TurnOptions(system=self.system_prompt, **given)


EVENT_STREAM = "text/event-stream"
DESCRIPTION = """Chat with models that call MCP servers' tools.

With `Accept: text/event-stream`, `POST /chat` sends the turn's events while it runs, and then its answer.
Every error is a problem (RFC 9457): `detail` is for people, `kind` for programs."""
_PROBLEMS = {
    400: "An unknown model or toolset, or a toolset that does not fit the servers.",
    401: "The token is missing or wrong.",
    403: "The Host or Origin header is not allowed.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    422: "A request field is not valid.",
    500: "The turn failed, for example at its step limit.",
    502: "The model or a server failed.",
    503: (
        "Too many turns are running, or the model is overloaded. `Retry-After` tells when to try"
        " again."
    ),
    504: "The turn, or the model, took too long.",
}
_OF_ALL = (401, 403, 408, 413)


def api(
    turns: ServedTurns,
    models: Callable[[], list[str]],
    *,
    needs_token: bool,
) -> FastAPI:
    """Build the API as an ASGI application, without `Guard`'s checks."""
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
        response_description="The answer, or a stream of server-sent events that ends with it.",
        responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}},
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        if len(body.messages) > turns.limits.max_messages:
            text = f"There are more than {turns.limits.max_messages:,} messages."
            raise ProblemError(
                422, "validation", text, errors=[WrongField(field="messages", message=text)]
            )
        try:
            options = body.options()
        except UsageError as error:
            raise problem_of(error) from error

        def answer(turn: Turn, messages: list[ChatMessage]) -> dict[str, Any]:
            document: dict[str, Any] = {
                "messages": list(map(message_fields, messages)),
                "response": turn.answer,
            }
            if body.include_stats:
                stats = Stats.model_validate(turn.stats, from_attributes=True)
                document["stats"] = stats.model_dump()
            if denied := turns.denied_in(turn):
                document["denied"] = [_denied_tool(each).model_dump() for each in denied]
            return document

        async def run(turn: Turn, on_event: Callable[[Event], None] = ignore) -> list[ChatMessage]:
            return await turns.run(turn, body.messages, options, on_event)

        if _wants_events(request):
            return EventStream(run, answer)
        turn = Turn(Trace())
        messages = await unless_gone(request.receive, run(turn))
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

    # The page's files, from a package instead of another site.
    app.mount("/docs", StaticFiles(directory=Path(fastapi_offline.__file__).with_name("static")))

    @app.get("/health", summary="Whether the service runs, without a token")
    async def health() -> Health:
        return Health(status="ok")

    def openapi() -> dict[str, Any]:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update({**problem.pop("$defs"), "Problem": problem})
        fields = schemas["ChatRequest"]["properties"]
        fields["messages"]["maxItems"] = turns.limits.max_messages
        for option in fields["max_steps"]["anyOf"]:
            if option["type"] == "integer":
                option["maximum"] = turns.max_steps
        if names := models():
            fields["model"]["enum"] = names
            example = {
                "model": names[0],
                "messages": [{"role": "user", "content": "What is 17 * 23?"}],
                "include_stats": True,
            }
            schemas["ChatRequest"]["examples"] = [example]
        for option in fields["tool_set"]["anyOf"]:
            if option["type"] == "string" and turns.tool_sets:
                option["enum"] = list(turns.tool_sets)
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                for status in _PROBLEMS if path == "/chat" else _OF_ALL:
                    operation["responses"][str(status)] = {
                        "description": _PROBLEMS[status],
                        "content": content,
                    }
                if needs_token and path != "/health":
                    operation["security"] = [{"token": []}]
        if needs_token:
            schema["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    _answer_errors(app)
    return app


def _answer_errors(app: FastAPI) -> None:

    @app.exception_handler(ProblemError)
    async def problem(_: Request, error: ProblemError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def of_http(_: Request, error: HTTPException) -> Response:
        kinds = {404: "not_found", 405: "method_not_allowed"}
        return ProblemError(
            error.status_code,
            kinds.get(error.status_code, "bad_request"),
            str(error.detail),
            headers=error.headers,
        ).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        # Not the input: it may be large, or a secret in a wrong place.
        wrong = []
        for problem in error.errors():
            wrong.append(WrongField(field=_path(problem["loc"]), message=str(problem["msg"])[:200]))
        text = "The request is not valid."
        if wrong:
            text += f" {wrong[0].field}: {wrong[0].message}."
        return ProblemError(422, "validation", text, errors=wrong).response()

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        # Starlette raises it again; `Guard` writes it to the log.
        return ProblemError(*INTERNAL).response()


def _denied_tool(denial: Denial) -> DeniedTool:
    return DeniedTool(tool=str(denial.tool), reason=denial.reason, option=denial.option)


def _path(location: tuple[int | str, ...]) -> str:
    """Format a field's path, without the alternatives that pydantic tried."""
    return ".".join(str(part)[:80] for part in location[1:]) or "body"


def _wants_events(request: Request) -> bool:
    for part in request.headers.get("accept", "").split(","):
        if part.partition(";")[0].strip().lower() == EVENT_STREAM:
            return True
    return False
