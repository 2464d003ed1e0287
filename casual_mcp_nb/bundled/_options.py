"""Build a server from its command line, both in process and in a separate process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from casual_mcp_nb.bundled.registry import BundledServer, module_of

if TYPE_CHECKING:
    from casual_mcp_nb.bundled._server import FunctionServer


class _CommandParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}; valid: {self.format_usage().strip()}")

    def format_usage(self) -> str:
        return " ".join(super().format_usage().split())


def build_server(server: BundledServer, args: Sequence[str], *, add_help: bool = False) -> FunctionServer:
    """Import the server's module, parse its options and build it.

    Args:
        server: The entry of the registry.
        args: The options as strings.
        add_help: Answer `--help` on stdout and exit, as a command line does.

    Raises:
        ValueError: A library or a credential is missing, or an option is unknown or cannot be used.
    """
    missing = server.missing()
    if missing is not None:
        raise ValueError(f"the bundled server {server.name} cannot start: {missing}")
    module = module_of(server)
    parser = _CommandParser(prog=server.name, description=server.summary, add_help=add_help, allow_abbrev=False)
    if hasattr(module, "add_options"):
        module.add_options(parser)
    built: FunctionServer = module.build(**vars(parser.parse_args(list(args))))
    return built
