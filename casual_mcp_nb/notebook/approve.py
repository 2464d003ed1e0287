"""Asking the person with `input()`: it works while a cell runs, in a terminal and in a script."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.form import Field
from casual_mcp_nb.notebook.questions import ApprovalQuestion, FormQuestion, LinkQuestion, Question, StepQuestion

_YES = ("y", "yes")
Ask = Callable[[str], Awaitable[str]]


async def ask_with_input(question: Question, context: contextvars.Context) -> None:
    """Ask with `input()` and settle the question; where nobody can be asked it is given up.

    Args:
        question: The question.
        context: The variables by which a kernel finds the cell that the question belongs to.
    """

    async def ask(text: str) -> str:
        return (await _asked(text, context)).strip()

    try:
        match question:
            case ApprovalQuestion():
                await _approval(question, ask)
            case FormQuestion():
                await _form(question, ask)
            case LinkQuestion():
                await _link(question, ask)
            case StepQuestion():
                await _step(question, ask)
    except (EOFError, OSError, RuntimeError, NotImplementedError):
        question.give_up("There is nobody to ask.")


async def _approval(question: ApprovalQuestion, ask: Ask) -> None:
    more = "a: yes, and for this tool in the rest of the conversation"
    said = (await ask(f"{question.text}\nRun it? ({more}) [y/N] ")).lower()
    if said in (*_YES, "a", "always"):
        question.approve(for_conversation=said not in _YES)
    else:
        question.deny()


async def _link(question: LinkQuestion, ask: Ask) -> None:
    said = (await ask(f"{question.text}\nHave you done so? (d: decline; Enter: say nothing) [y/d] ")).lower()
    if said in _YES:
        question.accept()
    elif said in ("d", "decline"):
        question.decline()
    else:
        question.cancel()


async def _form(question: FormQuestion, ask: Ask) -> None:
    said = (await ask(f"{question.text}\nFill in the form? (d: decline; Enter: say nothing) [y/d] ")).lower()
    if said not in _YES:
        return question.decline() if said in ("d", "decline") else question.cancel()
    mistake = ""
    while True:
        values = {field.name: await ask(f"{mistake}{_prompt(field)}") or field.default for field in question.fields}
        try:
            return question.answer(values)
        except UsageError as error:
            mistake = f"{error}\n"
            if question.future.done():
                return None


def _prompt(field: Field) -> str:
    kinds = {"boolean": "yes or no", "number": "a number", "integer": "a whole number"}
    hints = [kinds.get(field.kind, ""), ", ".join(label for _, label in field.choices)]
    hints += [f"Enter: {field.default}" if field.default is not None else "", "" if field.required else "may stay empty"]
    about = f" - {field.description}" if field.description else ""
    return f"{field.title}{about} ({'; '.join(filter(None, hints)) or 'text'}): "


async def _step(question: StepQuestion, ask: Ask) -> None:
    edit = "e: edit, " if question.texts else ""
    said = (await ask(f"{question.text}\n(Enter: next, r: run to the end, {edit}s: stop) ")).lower()
    if said in ("s", "stop"):
        question.stop()
    elif said in ("r", "run"):
        question.run()
    elif said in ("e", "edit") and question.texts:
        changes = {}
        for key, text in question.texts.items():
            changes[key] = await ask(f"{text}\nAnother text for {question.labels[key]} (Enter: keep it): ") or text
        question.edit(changes)
    else:
        question.next()


async def _asked(text: str, context: contextvars.Context) -> str:
    """The answer, waited for on a thread that the interpreter does not wait for: nobody may ever answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def settle(said: str, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(said)

    def ask() -> None:
        try:
            said, error = input(text), None
        except Exception as failure:
            said, error = "", failure
        loop.call_soon_threadsafe(settle, said, error)

    threading.Thread(target=context.copy().run, args=(ask,), name="casual-mcp-input", daemon=True).start()
    return await answer
