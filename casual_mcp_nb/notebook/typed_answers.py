"""Ask questions with `input()`, and read the typed answers."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable

from casual_mcp_nb.display.words import first
from casual_mcp_nb.engine.consent import ONE_BY_ONE
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.forms import FORMATS, FormField, checked
from casual_mcp_nb.notebook.questions import (
    AddressQuestion,
    ApprovalQuestion,
    Elicitation,
    FormQuestion,
    Question,
    SignInQuestion,
    UrlElicitation,
)
from casual_mcp_nb.notebook.step_mode import StepQuestion
from casual_mcp_nb.notebook.typed_lines import can_prompt, prompted

logger = logging.getLogger(__name__)

_YES = ("y", "yes")

_KEYS = {
    "approve_for_server": "s",
    "approve": "y",
    "approve_for_conversation": "a",
    "deny": "Enter",
}

Ask = Callable[[str], Awaitable[str]]


async def ask_with_input(question: Question, context: contextvars.Context) -> None:
    """Ask with `input()`, and answer the question with what is typed.

    It expires if nobody can be asked.

    Args:
        question: The question.
        context: The variables by which a kernel finds the cell to ask in.
    """

    async def ask(text: str) -> str:
        return (await prompted(text, context)).strip()

    try:
        match question:
            case ApprovalQuestion():
                await _approval(question, ask)
            case SignInQuestion():
                await _sign_in(question, ask)
            case AddressQuestion():
                reply = (await ask(f"{question.text}\n[y] yes  [Enter] no: ")).lower()
                if reply in _YES:
                    question.answer({})
                else:
                    question.decline()
            case FormQuestion():
                await _form(question, ask)
            case UrlElicitation():
                if await _agreed(question, "Have you done so?", ask):
                    question.accept()
            case StepQuestion():
                await _step(question, ask)
    except UsageError:
        raise
    except NotImplementedError:
        question.no_one_to_ask()
    except Exception as error:
        if not isinstance(error, EOFError | OSError | RuntimeError | ValueError):
            logger.error("Asking with input() failed.", exc_info=error)
        if can_prompt():
            # Ctrl-D approves nothing.
            question.expire("No one is available to answer.")
        else:
            question.no_one_to_ask()


async def _approval(question: ApprovalQuestion, ask: Ask) -> None:
    choices = "  ".join(f"[{_KEYS[answer]}] {words}" for answer, words in question.choices)
    reply = await ask(f"{question.text}\n{choices}, or type why: ")
    match reply.lower():
        case "y" | "yes":
            question.approve()
        case "a" | "always" if question.reason not in ONE_BY_ONE:
            question.approve(for_conversation=True)
        case "s" | "server" if question.reason == "unannotated":
            question.approve_for_server()
        case "n" | "no" | "d" | "deny":
            question.deny()
        case "a" | "always" | "s" | "server":
            # Other questions offer it. As a reason, the model could make nothing of it.
            await _approval(question, ask)
        case _:
            question.deny(reply)


async def _sign_in(question: SignInQuestion, ask: Ask) -> None:
    text = question.text
    while not question.future.done():
        reply = await ask(
            f"{text}\nAddress of the last page, or the code (Enter: do not sign in): "
        )
        if not reply:
            return question.decline()
        try:
            return question.answer({"address": reply})
        except UsageError as error:
            text = str(error)


async def _agreed(question: Elicitation, what: str, ask: Ask) -> bool:
    """Ask whether the person does what a server asks for. If not, decline or cancel the question."""
    reply = await ask(f"{question.text}\n{what} (y: yes, d: decline, Enter: no answer) [y/d] ")
    if reply.lower() in _YES:
        return True
    if reply.lower() in ("d", "decline"):
        question.decline()
    else:
        question.cancel()
    return False


async def _form(question: FormQuestion, ask: Ask) -> None:
    if not await _agreed(question, "Fill in the form?", ask):
        return
    typed: dict[str, str] = {}
    for field in question.fields:
        typed |= await _filled_in(field, ask)
    question.answer(typed)


async def _filled_in(field: FormField, ask: Ask) -> dict[str, str]:
    """Ask for a field until its value is valid. Return the text by name, or nothing if none is typed."""
    mistake = ""
    while True:
        typed: dict[str, str] = {}
        text = await ask(f"{mistake}{_prompt(field)}")
        if text:
            typed[field.name] = text
        try:
            checked((field,), typed)
        except UsageError as error:
            mistake = f"{error}\n"
        else:
            return typed


_KINDS = {
    "boolean": "yes or no",
    "number": "a number",
    "integer": "a whole number",
    "choices": "one or more, with commas between them",
}


def _prompt(field: FormField) -> str:
    """Write the prompt for a field: `Size - in pixels (a whole number; optional): `."""
    hints: list[str] = []
    if field.format:
        hints.append(FORMATS[field.format][0])
    elif field.kind in _KINDS:
        hints.append(_KINDS[field.kind])
    if field.choices:
        hints.append(", ".join(label for _, label in field.choices))
    if isinstance(field.default, list):
        hints.append(f"Enter: {first(', '.join(field.default), 100)}")
    elif field.default is not None:
        hints.append(f"Enter: {first(str(field.default), 100)}")
    if not field.required:
        hints.append("optional")
    title = field.title
    if field.description:
        title = f"{title} - {field.description}"
    return f"{title} ({'; '.join(hints) or 'text'}): "


async def _step(question: StepQuestion, ask: Ask) -> None:
    edit = ""
    if question.texts:
        edit = "e: edit, "
    reply = await ask(f"{question.text}\n(Enter: next, r: run to the end, {edit}s: stop) ")
    reply = reply.lower()
    if reply in ("s", "stop"):
        question.stop()
    elif reply in ("r", "run"):
        question.run()
    elif reply in ("e", "edit") and question.texts:
        changes: dict[str, str] = {}
        for key, text in question.texts.items():
            label = question.labels[key]
            typed = await ask(f"{text}\nNew text for {label} (Enter: keep it): ")
            changes[key] = typed or text
        question.edit(changes)
    else:
        question.next()
