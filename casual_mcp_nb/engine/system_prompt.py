"""A turn's system prompt: which text or template counts, and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from casual_mcp_nb.config.templates import TemplateLibrary
    from casual_mcp_nb.providers.chat_model import ChatModel

DEFAULT_TEMPLATE = "default"


async def system_prompt(
    options: TurnOptions,
    model: ChatModel,
    view: ToolView,
    templates: TemplateLibrary,
    default: str | None,
) -> str:
    """Render the system prompt, without the server instructions.

    Args:
        options: The turn's options, which may have a prompt or name a template.
        model: The model, which may have a template.
        view: The tools, which a template may list.
        templates: The templates.
        default: The chat's prompt for turns and models that have none, if it has one.
    """
    given = options.given
    system, template = prompt_source(
        given.get("system"), given.get("template"), model.template, default
    )
    if system is None:
        system = await templates.render_async(
            template, tools=view.offered, variables=given.get("variables")
        )
    return system


def prompt_source(
    system: str | None, template: str | None, model_template: str | None, default: str | None
) -> tuple[str | None, str]:
    """Choose a system prompt's text, or None and the name of the template that generates it."""
    if template is None:
        if system is None and not model_template:
            system = default
        template = model_template or DEFAULT_TEMPLATE
    return system, template


def unused_system_notices(
    options: TurnOptions, model: ChatModel, default: str | None
) -> tuple[str, ...]:
    """Build a notice if the model's template replaces the chat's system prompt."""
    if not default or not model.template:
        return ()
    if options.given.get("system") is not None or options.given.get("template") is not None:
        return ()
    notice = (
        f"Model {shown(model.name)} has the template {shown(model.template)}, which comes"
        " before the chat's system prompt. For another one, name it in the call: system=… or"
        " template=…."
    )
    return (notice,)
