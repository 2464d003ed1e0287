"""Questions as JSON for the panel, and the answers that can be given there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from casual_mcp_nb.display.text import one_line
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.notebook.interaction.elicitation import Elicitation, FormQuestion, UrlElicitation
from casual_mcp_nb.notebook.interaction.questions import ApprovalQuestion, Question, StepQuestion


def row_of(question: Question, order: int) -> dict[str, Any]:
    """Convert a question to JSON: everything that a person needs to answer, with nothing cut."""
    row: dict[str, Any] = {"order": order, "kind": question.kind, "channel": question.channel}
    if question.server is not None:
        row["server"] = one_line(question.server)
    match question:
        case ApprovalQuestion():
            row |= {"tool": one_line(question.tool.name), "arguments": question.written}
            row |= {"claims": list(question.claims), "policy": question.policy, "why": question.why}
            row |= {"choices": list(map(list, question.choices)), "difference": question.difference}
        case FormQuestion():
            row |= {"message": question.message, "fields": [asdict(field) for field in question.fields]}
        case UrlElicitation():
            row |= {"message": question.message, "address": question.address}
        case StepQuestion():
            labels = question.labels
            row |= {"step": question.step + 1, "message": f"About to send {question.summary}."}
            row["texts"] = [{"key": key, "label": labels[key], "text": text} for key, text in question.texts.items()]
    return row


def give(question: Question, answer: str, values: Mapping[str, Any]) -> None:
    """Answer a question.

    Args:
        question: The question.
        answer: `approve`, `approve_for_conversation`, `approve_for_server` or `deny`; `send`, `accept`, `decline` or `cancel`;
            `next`, `edit`, `run` or `stop`.
        values: What was filled in, or the edited texts.

    Raises:
        UsageError: It is not an answer to this question, something filled in is wrong, or the question is no longer open.
    """
    answers = _answers(question, values)
    if answer not in answers:
        raise UsageError(f"{shown(answer)} is not an answer to this question.", hint=f"Possible answers: {', '.join(answers)}.")
    answers[answer]()


def _answers(question: Question, values: Mapping[str, Any]) -> dict[str, Callable[[], None]]:
    match question:
        case ApprovalQuestion():
            approvals: dict[str, Callable[[], None]] = {
                "approve": question.approve,
                "approve_for_conversation": lambda: question.approve(for_conversation=True),
                "approve_for_server": question.approve_for_server,
                "deny": lambda: question.deny(str(values.get("reason", ""))),
            }
            return {answer: approvals[answer] for answer, _ in question.choices}
        case StepQuestion():
            texts = {key: str(text) for key, text in values.items()}
            return {
                "next": question.next,
                "edit": lambda: question.edit(texts),
                "run": lambda: question.run(texts),
                "stop": question.stop,
            }
    answers: dict[str, Callable[[], None]] = {}
    if isinstance(question, Elicitation):
        answers = {"decline": question.decline, "cancel": question.cancel}
    if isinstance(question, FormQuestion):
        answers["send"] = lambda: question.answer(values)
    if isinstance(question, UrlElicitation):
        answers["accept"] = question.accept
    return answers
