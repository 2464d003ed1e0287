"""Turns of clients: each with its own history, beside the conversation of the session, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.base.config import Policies, ToolSetConfig
from casual_mcp_nb.base.limits import TimeLimit
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.base.service import ServeLimits
from casual_mcp_nb.base.tool import Denial
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.conversation.event import Event, ToolFinished
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.options import TurnOptions, split_messages
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.images import fetched_images
from casual_mcp_nb.serve.problems import ProblemError, problem_of, retry_after

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

STOP_SECONDS = 5.0
"""How long to wait for turns that are being stopped."""


class ServedTurns:
    """The turns of clients on the engine's loop. Clients' messages are never part of the session's conversation.

    `approval` replaces policies of the config by server. `admit` is awaited before each turn, and raises if the servers may not
    be started. `notify` is called with each turn and event.
    """

    def __init__(
        self,
        chat: McpToolChat,
        limits: ServeLimits,
        approval: Mapping[str, Policies],
        secrets: Secrets,
        *,
        admit: Callable[[], Awaitable[None]] | None = None,
        notify: Callable[[Turn, Event], None] = lambda turn, event: None,
    ) -> None:
        self.limits = limits
        self._chat = chat
        self._admit = admit
        self._notify = notify
        self._approval = approval
        self._secrets = secrets
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    @property
    def max_steps(self) -> int:
        """How many calls of a model a turn may make."""
        return self._chat.limits.max_steps

    @property
    def tool_sets(self) -> Mapping[str, ToolSetConfig]:
        """The toolsets by name."""
        return self._chat.tool_sets

    @property
    def running(self) -> int:
        """How many turns are running."""
        return len(self._running)

    async def run(
        self,
        turn: Turn,
        messages: Sequence[ChatMessage],
        options: TurnOptions,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> list[ChatMessage]:
        """Run a turn in a separate task, and return the messages that it adds to the client's.

        A ProblemError if it could not begin, failed, took too long, or was stopped because the service ends.
        """
        if self._closed:
            raise _ended()
        if len(self._running) >= self.limits.max_turns:
            raise ProblemError(
                503, "busy", f"{len(self._running)} turns are running, which is the limit here.", headers=retry_after(1)
            )
        task: asyncio.Task[object] | None = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        limit = TimeLimit(asyncio.get_running_loop().time() + self.limits.turn_seconds)
        try:
            with limit:
                return await self._run(turn, messages, options, on_event)
        except asyncio.CancelledError:
            if self._closed:
                raise _ended() from None
            raise
        except TimeoutError as error:
            if not limit.expired:
                raise problem_of(error) from error
            text = f"The turn took longer than {self.limits.turn_seconds:g} s and was stopped."
            raise ProblemError(504, "turn_timeout", text) from None
        except Exception as error:
            raise problem_of(error, self._secrets) from error
        finally:
            self._running.discard(task)

    async def _run(
        self, turn: Turn, messages: Sequence[ChatMessage], options: TurnOptions, on_event: Callable[[Event], None]
    ) -> list[ChatMessage]:
        def notify(event: Event) -> None:
            self._notify(turn, event)
            on_event(event)

        most, steps = self.max_steps, options.given.get("max_steps")
        if steps is not None and steps > most:
            raise UsageError(f"max_steps cannot be {steps}: the service makes at most {most} calls of a model in a turn.")
        messages = await fetched_images(messages)
        if self._admit is not None:
            await self._admit()
        history, new, options = split_messages(messages, options)
        await self._chat.apart(self._consent(), private=True).run(new, options, history=history, turn=turn, on_event=notify)
        turn.raise_for_status()
        return turn.messages[len(turn.prompt_messages) :]

    def denials(self) -> tuple[Denial, ...]:
        """List the tools that are known now and denied to clients, with the reasons."""
        consent, view = self._consent(), self._chat.current_view()
        return tuple(denial for tool in (*view.loaded, *view.deferred) if (denial := consent.denial(tool)) is not None)

    def denied_in(self, turn: Turn) -> tuple[Denial, ...]:
        """List the tools that were called in a turn and denied, with the reasons, each once."""
        calls = {event.tool: event for event in turn.trace.of(ToolFinished) if event.status == "denied"}
        consent = self._consent() if calls else None
        denied = []
        for name, event in calls.items():
            tool = self._chat.catalog.get(name)
            denial = consent.denial(tool) if consent is not None and tool is not None else None
            # One that could run by now was changed while the turn ran.
            reason = event.permission.reason if event.permission else ""
            denied.append(denial or Denial(name, reason, ""))
        return tuple(denied)

    def _consent(self) -> Consent:
        consent = self._chat.consent.apart()
        consent.overrides.update(self._approval)
        if not isinstance(self._chat.tape, Replayer):
            consent.approver, consent.can_ask = None, lambda: False
        return consent

    async def close(self) -> None:
        """Refuse further turns, and stop those that run."""
        self._closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)


def _ended() -> ProblemError:
    return ProblemError(503, "closed", "This service is ending.", headers=retry_after(1))
