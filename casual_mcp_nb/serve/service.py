"""A session's HTTP API at an address: begun, shown and ended."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from casual_mcp_nb.base.config import Config, Policies
from casual_mcp_nb.base.service import TOKEN_VARIABLE, ServeLimits, ServiceStatus
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import checked_overrides
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import ServerStarter, warm_up, warmed_up
from casual_mcp_nb.notebook.sync_and_async import on_engine
from casual_mcp_nb.serve.endpoint import Endpoint

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from casual_mcp_nb.serve.listener import Listener
    from casual_mcp_nb.serve.turns import ServedTurns


@dataclass(frozen=True)
class Served:
    """The parts of a session that a service needs.

    Args:
        owner: The session, which is kept as long as it is served.
        config: Has the models.
        chat: Has the servers, the models and the toolsets.
        starter: Connects the servers.
        observers: Told of the events.
        engine: The thread on which everything runs.
        check_open: Raises an error if the session can no longer be used.
    """

    owner: object
    config: Config
    chat: McpToolChat
    starter: ServerStarter
    observers: Observers
    engine: EngineThread
    check_open: Callable[[], None]


class Service(Endpoint):
    """A session's HTTP API at an address: a context manager, or call `close`. It ends with the session, too.

    Args:
        served: The session.
        listener: Serves it.
        turns: Runs the turns of clients.
        host: The address to listen at.
        port: The port.
        token_variable: Where clients find the token, if they must send one.
    """

    def __init__(
        self, served: Served, listener: Listener, turns: ServedTurns, host: str, port: int, token_variable: str | None
    ) -> None:
        super().__init__(served.engine, host, port)
        self._served = served
        self._listener = listener
        self._turns = turns
        self._token_variable = token_variable

    @property
    def status(self) -> ServiceStatus:
        """The current state of the service."""
        return ServiceStatus(
            self.url,
            not self.closed,
            self._token_variable,
            tuple(self._served.config.models),
            tuple(self._served.chat.tool_sets),
            self._turns.running,
            () if self.closed else self._turns.denials(),
        )

    async def _begin(self) -> None:
        await self._listener.begin()

    async def _end(self) -> None:
        await self._turns.close()
        await self._listener.end()


async def open_service(
    served: Served,
    host: str,
    port: int,
    *,
    token: str | SecretStr | None,
    approval: Mapping[str, Policies] | None,
    limits: ServeLimits,
    hosts: Collection[str],
    origins: Collection[str],
    begin: Callable[[Service], None],
) -> Service:
    """Serve a session, see `SessionServe.http`; a coroutine of the caller's side, see `on_engine`.

    Args:
        served: The session.
        host: The address to listen at.
        port: The port; 0 for a free one.
        token: The token that clients send.
        approval: Policies by server that replace those of the config for clients.
        limits: How many turns, how long.
        hosts: Further names under which clients may address it.
        origins: The sites whose pages may use it.
        begin: Called with the service before the first request.
    """
    warm_up()
    with _installed():
        from casual_mcp_nb.serve.listener import Listener, bound_socket
    from casual_mcp_nb.serve.listener import checked_token
    from casual_mcp_nb.serve.turns import ServedTurns

    secret = checked_token(token, host)
    del token
    overrides = checked_overrides(approval, served.chat.server_manager.names)
    await on_engine(lambda _: _ready(served))
    turns = ServedTurns(
        served.chat,
        limits,
        overrides,
        served.config.secrets(),
        admit=served.starter.admit,
        notify=served.observers.served.notify,
    )
    checked = served_api(turns, lambda: list(served.config.models), host=host, token=secret, hosts=hosts, origins=origins)
    bound = bound_socket(host, port)
    listener = Listener(checked, bound, served.owner)
    service = Service(served, listener, turns, host, bound.getsockname()[1], TOKEN_VARIABLE if secret else None)
    begin(service)
    await on_engine(lambda _: service.begin())
    return service


def served_api(
    turns: ServedTurns,
    models: Callable[[], list[str]],
    *,
    host: str | None,
    token: str | SecretStr | None,
    hosts: Collection[str],
    origins: Collection[str],
) -> ASGIApp:
    """Build the API with the checks that fit its address.

    Args:
        turns: Runs the turns.
        models: Returns the names of the models.
        host: The address to listen at; None where another server listens.
        token: The token that clients send.
        hosts: Further names under which clients may address it.
        origins: The sites whose pages may use it.

    Raises:
        UsageError: The token cannot be used.
        MissingDependencyError: The extra `serve` is not installed.
    """
    with _installed():
        from casual_mcp_nb.serve.api import api
    from casual_mcp_nb.serve.listener import checked_token, guarded

    secret = checked_token(token, host)
    del token
    largest = {"max_bytes": turns.limits.max_bytes, "max_values": turns.limits.max_values}
    app = api(turns, models, needs_token=secret is not None)
    return guarded(app, host=host, token=secret, hosts=hosts, origins=origins, **largest)


@contextmanager
def settled_heap() -> Iterator[None]:
    """Exclude the present objects from garbage collections during the body, for a process that only serves.

    Modules and servers stay until its end: looking through them would hold every request up for 200 ms now and then.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _ready(served: Served) -> None:
    await served.starter.view()
    await warmed_up()


@contextmanager
def _installed() -> Iterator[None]:
    """Add the missing extra to an error if an import in the body fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("casual_mcp_nb"):
            raise
        raise MissingDependencyError(
            f"Serving needs {error.name}, which is not installed.", hint="Run: pip install 'casual-mcp-nb[serve]'"
        ) from None
