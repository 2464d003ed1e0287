"""The requests of clients: casual-llm's messages, checked strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from casual_llm.messages import AssistantMessage, ImageContent, SystemMessage, TextContent, ToolResultMessage, UserMessage
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationInfo, create_model, field_validator
from typing_extensions import TypedDict

from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.types.delivery import DeliverySetting
from casual_mcp_nb.types.discovery_options import Strategy
from casual_mcp_nb.types.model_options import ModelOptions
from casual_mcp_nb.types.options import RequestOptions


class Base64Source(TypedDict):
    """The data of an image."""

    type: Literal["base64"]
    data: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class Image(ImageContent):
    """An image: its data, or its address on the public internet, which the service fetches."""

    type: Literal["image"]
    source: (  # type: ignore[assignment]
        Annotated[str, Field(pattern=r"^(?:data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+={0,2}|https?://[!-~]{1,2000})$")]
        | Base64Source
    )
    media_type: Annotated[str, Field(pattern=r"^image/[a-z0-9.+-]+$")] = "image/jpeg"


class Text(TextContent):
    """A text."""

    type: Literal["text"]


class User(UserMessage):
    """A message of the person."""

    role: Literal["user"]
    content: str | list[Annotated[Text | Image, Field(discriminator="type")]]  # type: ignore[assignment]


class Assistant(AssistantMessage):
    """An answer of the model, with its calls."""

    role: Literal["assistant"]


class System(SystemMessage):
    """A system prompt; the first message only."""

    role: Literal["system"]


class ToolMessage(ToolResultMessage):
    """The result of a call."""

    role: Literal["tool"]


NOT_FOR_CLIENTS: Mapping[str, str] = {
    "extra_body": "it goes to the provider unread, with the service's key",
    "extra_headers": "they go to the provider unread, with the service's key",
    "template": "templates are files of the service",
    "variables": "they are for the service's templates",
    "context": "it has values of the service's process",
    "meta": "what servers are told is the service's",
    "mock": "stubs are functions of the service's process",
    "stream": "the header Accept says it",
    "step": "nobody is there to go on",
    "attach": "a client reads resources by itself",
}
"""The options of a turn that no client can set, each with the reason; all others are fields of a request."""


def _of_the_model() -> dict[str, Any]:
    """Build the options of a model call as fields, with the types and limits of the config."""
    fields = {}
    for name, field in RequestOptions.model_fields.items():
        if name not in NOT_FOR_CLIENTS:
            flag = getattr(ModelOptions.__annotations__[name], "__metadata__", (None,))[0]
            text = f"{flag.help[0].upper()}{flag.help[1:]}." if flag else None
            kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            fields[name] = (kind, Field(default=None, description=text))
    return fields


if TYPE_CHECKING:
    ModelFields = BaseModel
else:
    ModelFields = create_model("ModelFields", **_of_the_model())


class ChatRequest(ModelFields):
    """A conversation, whose last message is to be answered."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="Name of a model of the config.")
    messages: list[Annotated[User | Assistant | System | ToolMessage, Field(discriminator="role")]] = Field(
        min_length=1, description="The conversation. To go on, send it with the messages of the answer and the next one."
    )
    system_prompt: str | None = Field(default=None, description="Replaces the service's own and a system message.")
    tool_set: str | None = Field(default=None, description="Name of a toolset; null for what the service has chosen.")
    discovery: StrictBool | Literal["auto"] | None = Field(
        default=None,
        description="Whether deferred tools are hidden behind the search tool; null for the service's choice.",
    )
    strategy: Strategy | None = Field(default=None, description="How the model finds deferred tools.")
    delivery: DeliverySetting | None = Field(default=None, description="How the model gets what it found.")
    max_steps: int | None = Field(default=None, ge=1, description="Maximum number of model calls; at most the service's own.")
    repair_calls: StrictBool | None = Field(default=None, description="Whether calls that the model writes as text are run.")
    include_stats: StrictBool = Field(default=False, description="Whether the answer has `stats`.")

    @field_validator("*", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # The description says so; pydantic would take true for 1.
        if isinstance(value, bool) and {int, float} & set(get_args(cls.model_fields[str(info.field_name)].annotation)):
            raise ValueError("a number is needed, not true or false")
        return value

    def options(self) -> TurnOptions:
        """Build the options of the turn.

        Raises:
            UsageError: A value is not valid.
        """
        given = self.model_dump(exclude={"messages", "include_stats", "system_prompt"}, exclude_none=True)
        return TurnOptions(system=self.system_prompt, **given)
