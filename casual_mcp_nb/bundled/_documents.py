"""Read the content of a file: text in some encoding, the text of a .docx, or binary data."""

from __future__ import annotations

import mimetypes
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO
from xml.parsers import expat

from mcp.server.mcpserver.exceptions import ToolError

_SAMPLE_BYTES = 8192
_MAX_DOCX_XML = 20_000_000
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


@dataclass(frozen=True)
class Part:
    """A part of a text file: the text, its encoding, and the byte at which the next part begins."""

    text: str
    encoding: str
    end: int


def read_document(stream: BinaryIO, name: str, offset: int, limit: int) -> dict[str, Any]:
    """Read a file, or a part of it, for a model.

    Args:
        stream: The file, opened for reading.
        name: Its name, whose extension may indicate its type.
        offset: Where to begin: bytes of a text file, characters of a .docx.
        limit: The most of them to read.

    Returns:
        kind (text, docx, binary), size in bytes, note, encoding of a text file, next_offset or None, text.

    Raises:
        ToolError: A .docx cannot be read.
        OSError: The system refuses.
    """
    size = os.fstat(stream.fileno()).st_size
    if name.lower().endswith(".docx"):
        text = docx_text(stream)
        next_offset = offset + limit if offset + limit < len(text) else None
        details = {"kind": "docx", "size": size, "note": _note(len(text), offset, next_offset)}
        return {**details, "next_offset": next_offset, "text": text[offset : offset + limit]}
    # A character has up to four bytes; with fewer, a part could be empty.
    part = read_part(stream, offset, max(limit, 4))
    if part is None:
        note = f"A binary file of {size} bytes; its content is not shown."
        return {"kind": "binary", "size": size, "note": note, "next_offset": None, "text": ""}
    next_offset = part.end if part.end < size else None
    details = {"kind": "text", "size": size, "note": _note(size, offset, next_offset), "encoding": part.encoding}
    return {**details, "next_offset": next_offset, "text": part.text}


def media_type(name: str) -> str:
    """Return the media type for a file's name, such as text/csv."""
    return mimetypes.guess_type(name)[0] or "unknown"


def read_part(stream: IO[bytes], offset: int, limit: int) -> Part | None:
    """Read a part of a text file.

    Args:
        stream: The file, opened for reading bytes.
        offset: The byte to begin at.
        limit: The most bytes to read.

    Returns:
        The part, or None if the file is not text.
    """
    encoding = detect_encoding(stream.read(_SAMPLE_BYTES))
    if encoding is None:
        return None
    stream.seek(offset)
    data = stream.read(limit)
    text, used = _decode(data, encoding)
    return Part(text.removeprefix("\ufeff"), encoding, offset + used)


def detect_encoding(sample: bytes) -> str | None:
    """Detect the encoding of a file from its first bytes.

    Returns:
        A codec's name, with latin-1 as the fallback for text; None for binary data.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return None
    if _is_utf8(sample):
        return "utf-8"
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return "latin-1" if control * 50 < len(sample) else None


def docx_text(file: Path | BinaryIO) -> str:
    """Return the text of a .docx file, one line per paragraph.

    Raises:
        ToolError: It is not a .docx file, is too large when unpacked, or its XML declares a document type.
        OSError: It cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive, archive.open("word/document.xml") as stream:
            xml = stream.read(_MAX_DOCX_XML + 1)
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise ToolError("Not a readable .docx file: it is damaged, encrypted or something else.") from error
    if len(xml) > _MAX_DOCX_XML:
        raise ToolError(f"The .docx is too large: more than {_MAX_DOCX_XML:,} bytes of text when unpacked.")
    return _Paragraphs().read(xml)


_MARKS = {"tab": "\t", "br": "\n", "cr": "\n"}


class _Paragraphs:
    """Collects the text of a WordprocessingML document."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.in_text = False

    def read(self, xml: bytes) -> str:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        try:
            parser.Parse(xml, True)
        except expat.ExpatError as error:
            raise ToolError("Not a readable .docx file: its XML is damaged.") from error
        return "".join(self.parts)

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        self.in_text = local == "t"
        self.parts.append(_MARKS.get(local, ""))

    def _end(self, name: str) -> None:
        self.in_text = False
        if name.rpartition(" ")[2] == "p":
            self.parts.append("\n")

    def _text(self, data: str) -> None:
        if self.in_text:
            self.parts.append(data)

    def _refuse(self, *_declaration: object) -> None:
        # Entities can only be declared in a document type; Word never writes one.
        raise ToolError("The .docx is refused: its XML declares a document type.")


def _is_utf8(sample: bytes) -> bool:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut at the end of the sample does not make the file invalid.
        return error.reason == "unexpected end of data" and error.start > 0
    return True


def _decode(data: bytes, encoding: str) -> tuple[str, int]:
    # The limit may have cut the last character, which then belongs to the next part.
    for cut in range(min(4, len(data))):
        try:
            return data[: len(data) - cut].decode(encoding), len(data) - cut
        except UnicodeDecodeError:
            continue
    return data.decode(encoding, errors="replace"), len(data)


def _note(size: int, offset: int, next_offset: int | None) -> str:
    if size == 0:
        return "The file is empty."
    if next_offset is None and offset == 0:
        return "The whole file."
    return f"A part: from {offset} to {size if next_offset is None else next_offset} of {size}."
