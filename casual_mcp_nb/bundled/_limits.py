"""Output that may be endless, kept within a limit."""

from __future__ import annotations


class BothEnds:
    """Keeps the first and the last bytes of a stream, and how many there were.

    Args:
        limit: The most bytes to keep, half of them of each end.
    """

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    @property
    def cut(self) -> bool:
        """Whether something in the middle is missing."""
        return self.total > 2 * self._half

    def add(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        """Return what was kept, decoded as UTF-8, with the number of bytes left out named in between."""
        if not self.cut:
            return (self._head + self._tail).decode(errors="replace")
        missing = self.total - len(self._head) - len(self._tail)
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {missing} of {self.total} bytes left out ...]\n{tail}"
