"""The stdio transport, with limited line lengths on stdout.

See https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from casual_mcp_nb.connections._messages import MAX_MESSAGE_BYTES, LineLimit

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ENCODING = "casual_mcp_nb_lines"
"""A codec for UTF-8 in lines of limited length: an encoding is the only setting of the SDK's stdout reader."""

STDOUT_LINES: ContextVar[LineLimit | None] = ContextVar("STDOUT_LINES", default=None)
"""The filter for decoders created in this context: the SDK creates them, and passes no arguments."""


class _Decoder(codecs.IncrementalDecoder):
    """Decodes whole lines only, which also spares the SDK's reader its growing buffer."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._lines = STDOUT_LINES.get() or LineLimit(MAX_MESSAGE_BYTES)

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        return self._lines.feed(bytes(input)).decode("utf-8", self.errors)


def _search(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=_Decoder, name=ENCODING)


codecs.register(_search)


class StdioTransport(ClientTransport):
    """A server process. fastmcp's own transport stops reading forever at a byte that is not UTF-8; here it becomes U+FFFD.

    Args:
        command: The command line.
        env: Variables in addition to the SDK's few.
        cwd: Folder to start it in.
        stderr: A file for its stderr.
        lines: The filter for its stdout.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: TextIO, lines: LineLimit
    ) -> None:
        program, *args = command
        self._parameters = StdioServerParameters(
            command=program, args=args, env=dict(env), cwd=cwd, encoding=ENCODING, encoding_error_handler="replace"
        )
        self._stderr = stderr
        self._lines = lines

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Start the process; it ends with the session."""
        options = transport_options or TransportOptions()
        STDOUT_LINES.set(self._lines)
        async with (
            stdio_client(self._parameters, errlog=self._stderr) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session
