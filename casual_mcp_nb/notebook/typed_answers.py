"""Questions that are asked with `input()`, and what the typed lines mean."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable

from casual_mcp_nb.display.words import first
from casual_mcp_nb.engine.consent import ONE_BY_ONE
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.forms import FORMATS, FormField
from casual_mcp_nb.notebook.questions import (
    AddressQuestion,
    ApprovalQuestion,
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
    """Ask with `input()` and settle the question. It expires if nobody can be asked."""

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
                reply = (
                    await ask(
                        f"{question.text}\nHave you done so? (y: yes, d: decline, Enter: no answer)"
                        " [y/d] "
                    )
                ).lower()
                if reply in _YES:
                    question.accept()
                elif reply in ("d", "decline"):
                    question.decline()
                else:
                    question.cancel()
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


async def _form(question: FormQuestion, ask: Ask) -> None:
    reply = (
        await ask(
            f"{question.text}\nFill in the form? (y: yes, d: decline, Enter: no answer) [y/d] "
        )
    ).lower()
    if reply not in _YES:
        return question.decline() if reply in ("d", "decline") else question.cancel()
    mistake = ""
    while True:
        typed = {field.name: await ask(f"{mistake}{_prompt(field)}") for field in question.fields}
        try:
            return question.answer({name: text for name, text in typed.items() if text})
        except UsageError as error:
            mistake = f"{error}\n"
            if question.future.done():
                return None


def _prompt(field: FormField) -> str:
    kinds = {"boolean": "yes or no", "number": "a number", "integer": "a whole number"}
    hints = [
        FORMATS[field.format][0] if field.format else kinds.get(field.kind, ""),
        ", ".join(label for _, label in field.choices),
    ]
    if field.default is not None:
        values = field.default if isinstance(field.default, list) else [str(field.default)]
        hints.append(f"Enter: {first(', '.join(values), 100)}")
    if not field.required:
        hints.append("optional")
    about = f" - {field.description}" if field.description else ""
    return f"{field.title}{about} ({'; '.join(filter(None, hints)) or 'text'}): "


async def _step(question: StepQuestion, ask: Ask) -> None:
    edit = "e: edit, " if question.texts else ""
    reply = (
        await ask(f"{question.text}\n(Enter: next, r: run to the end, {edit}s: stop) ")
    ).lower()
    if reply in ("s", "stop"):
        question.stop()
    elif reply in ("r", "run"):
        question.run()
    elif reply in ("e", "edit") and question.texts:
        changes = {}
        for key, text in question.texts.items():
            changes[key] = (
                await ask(f"{text}\nNew text for {question.labels[key]} (Enter: keep it): ") or text
            )
        question.edit(changes)
    else:
        question.next()
