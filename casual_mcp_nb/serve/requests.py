"""What clients send: casual-llm's messages, checked strictly."""

from __future__ import annotations

from typing import Annotated, Literal

from casual_llm.messages import AssistantMessage, ImageContent, SystemMessage, TextContent, ToolResultMessage, UserMessage
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from typing_extensions import TypedDict


class Base64Source(TypedDict):
    """The data of an image."""

    type: Literal["base64"]
    data: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class InlineImage(ImageContent):
    """An image in the request itself: an address would be fetched from where the service runs."""

    type: Literal["image"]
    source: Annotated[str, Field(pattern=r"^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+={0,2}$")] | Base64Source  # type: ignore[assignment]
    media_type: Annotated[str, Field(pattern=r"^image/[a-z0-9.+-]+$")] = "image/jpeg"


class Text(TextContent):
    """A text."""

    type: Literal["text"]


class User(UserMessage):
    """A message of the person."""

    role: Literal["user"]
    content: str | list[Annotated[Text | InlineImage, Field(discriminator="type")]]  # type: ignore[assignment]


class Assistant(AssistantMessage):
    """An answer of the model, with its calls."""

    role: Literal["assistant"]


class System(SystemMessage):
    """A system prompt; the first message only."""

    role: Literal["system"]


class ToolResult(ToolResultMessage):
    """The result of a call."""

    role: Literal["tool"]


class ChatRequest(BaseModel):
    """A conversation, whose last message is to be answered."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="Name of a model of the config.")
    messages: list[Annotated[User | Assistant | System | ToolResult, Field(discriminator="role")]] = Field(
        min_length=1, description="The conversation. To go on, send it with the messages of the answer and the next one."
    )
    system_prompt: str | None = Field(default=None, description="Replaces the service's own and a system message.")
    tool_set: str | None = Field(default=None, description="Name of a toolset; null for what the service has chosen.")
    include_stats: StrictBool = Field(default=False, description="Whether the answer has `stats`.")
