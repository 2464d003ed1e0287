"""`casual-mcp-nb models` and `clients`: the models of a config, and whether keys are set."""

from __future__ import annotations

from dataclasses import asdict

from casual_mcp_nb.cli.source import Source
from casual_mcp_nb.cli.terminal import AsJson, show, write_json

_SOURCE = Source()


def models(*, source: Source = _SOURCE, json: AsJson = False) -> None:
    """List the models of the config.

    Args:
        json: Write JSON.
    """
    from casual_mcp_nb.notebook.status import models_of

    config = source.load()
    rows = models_of(config, next(iter(config.models), None))
    if json:
        write_json([asdict(row) for row in rows])
    else:
        show(rows)


def clients(*, source: Source = _SOURCE, json: AsJson = False) -> None:
    """List the clients of the config, and whether the key of each is set.

    Args:
        json: Write JSON.
    """
    from casual_mcp_nb.notebook.status import clients_of

    rows = clients_of(source.load())
    if json:
        write_json([asdict(row) for row in rows])
    else:
        show(rows)
