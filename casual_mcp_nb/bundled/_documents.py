"""Read the content of a file: text in some encoding, the text of a .docx, or binary data."""

from __future__ import annotations

import codecs
import mimetypes
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from mcp.server.mcpserver.exceptions import ToolError

_SAMPLE_BYTES = 8192
_MAX_DOCX_BYTES = 50_000_000
_MAX_DOCX_PARTS = 2000
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)
# A part of a file in one of these cannot be decoded without what is before it.
_STATEFUL = ["hz", "iso2022_jp", "iso2022_jp_1", "iso2022_jp_2", "iso2022_jp_3", "iso2022_jp_ext", "iso2022_kr", "utf_7"]
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


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
    encoding = detect_encoding(stream.read(_SAMPLE_BYTES))
    if encoding is None:
        note = f"A binary file of {size} bytes; its content is not shown."
        return {"kind": "binary", "size": size, "note": note, "next_offset": None, "text": ""}
    stream.seek(offset)
    # A character has up to four bytes; with fewer, a part could be empty.
    data = stream.read(max(limit, 4))
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    text = decoder.decode(data, final=offset + len(data) >= size).removeprefix("\ufeff")
    # The limit may have cut the last character, which then belongs to the next part.
    end = offset + len(data) - len(decoder.getstate()[0])
    next_offset = end if end < size else None
    details = {"kind": "text", "size": size, "note": _note(size, offset, next_offset), "encoding": encoding}
    return {**details, "next_offset": next_offset, "text": text}


def media_type(name: str) -> str:
    """Guess the media type from a file's name, such as text/csv."""
    return mimetypes.guess_type(name)[0] or "unknown"


def detect_encoding(sample: bytes) -> str | None:
    """Detect the encoding of a file from its first bytes.

    Returns:
        A codec's name, guessed by charset-normalizer for text that is not Unicode; None for binary data.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return None
    if _is_utf8(sample):
        return "utf-8"
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return _guessed(sample) if control * 50 < len(sample) else None


def _guessed(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, preemptive_behaviour=False, cp_exclusion=_STATEFUL)
    best = matches.best()
    if best is None:
        return "latin-1"
    # A short text fits several encodings; the one of most Western files is then the likeliest.
    western = any("cp1252" in match.could_be_from_charset and match.chaos <= best.chaos + 0.06 for match in matches)
    return "cp1252" if western else best.encoding


def _is_utf8(sample: bytes) -> bool:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut at the end of the sample does not make the file invalid.
        return error.reason == "unexpected end of data" and error.start > 0
    return True


def docx_text(file: BinaryIO) -> str:
    """Extract the text of a .docx file: a line for each paragraph and each table row, with tabs between cells.

    Raises:
        ToolError: It is not a .docx file, is too large when unpacked, or its XML declares a document type.
        OSError: It cannot be read.
    """
    from docx import Document
    from lxml.etree import LxmlError

    _check_archive(file)
    try:
        document: Any = Document(file)
        return "".join(f"{line}\n" for line in _lines(document.element.body, document))
    except (LxmlError, KeyError, ValueError, AttributeError, RecursionError) as error:
        raise ToolError("Not a readable .docx file: it is damaged or something else.") from error


def _check_archive(file: BinaryIO) -> None:
    """Refuse archives that would unpack to too much memory, and document types, which alone can declare entities."""
    try:
        with zipfile.ZipFile(file) as archive:
            # What is unpacked is never longer than the size that is declared here.
            size = sum(part.file_size for part in archive.infolist())
            if size > _MAX_DOCX_BYTES or len(archive.infolist()) > _MAX_DOCX_PARTS:
                raise ToolError(f"The .docx is too large: more than {_MAX_DOCX_BYTES:,} bytes when unpacked.")
            for part in archive.infolist():
                if part.filename.endswith((".xml", ".rels")) and _DOCTYPE.search(archive.read(part).replace(b"\0", b"")):
                    raise ToolError("The .docx is refused: its XML declares a document type.")
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise ToolError("Not a readable .docx file: it is damaged, encrypted or something else.") from error
    file.seek(0)


def _lines(parent: Any, document: Any) -> Iterator[str]:
    """Yield the lines of a part of a document. Tables are read by row: python-docx's cells follow merged ones recursively."""
    from docx.oxml.ns import qn
    from docx.text.paragraph import Paragraph

    for element in parent.iterchildren():
        if element.tag == qn("w:p"):
            yield Paragraph(element, document).text
        elif element.tag == qn("w:tbl"):
            for row in element.iterchildren(qn("w:tr")):
                cells = row.iterchildren(qn("w:tc"))
                yield "\t".join(" ".join(Paragraph(each, document).text for each in cell.iter(qn("w:p"))) for cell in cells)
        elif element.tag in (qn("w:sdt"), qn("w:sdtContent")):
            yield from _lines(element, document)


def _note(size: int, offset: int, next_offset: int | None) -> str:
    if size == 0:
        return "The file is empty."
    if next_offset is None and offset == 0:
        return "The whole file."
    return f"A part: from {offset} to {size if next_offset is None else next_offset} of {size}."
