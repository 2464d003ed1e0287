"""Read mail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses, parsedate_to_datetime

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.bundled._documents import decoded_as, html_to_text

MAX_TEXT = 50_000
"""How many characters of a mail's text are kept by default."""
MAX_ATTACHMENTS = 100
MAX_HEADER = 10_000

_MAX_PARTS = 150
_NESTED = re.compile(rb"boundary\s{0,9}=|message/", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,900}>")


@dataclass(frozen=True)
class Attachment:
    """A part of a mail besides its text."""

    name: str
    type: str
    size: int


@dataclass(frozen=True)
class Mail:
    """A mail as a person would read it. Whoever sent it wrote everything in it.

    Args:
        date: The time in ISO 8601, or the unchanged header if it is not a valid date.
        message_id: The `Message-ID`, with its angle brackets, or empty if it is not valid.
        cut: Whether there is more text than the limit allows, or the mail has too many parts to be
            read.
        attachments: The first `MAX_ATTACHMENTS` attachments.
    """

    subject: str
    sender: str
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    reply_to: tuple[str, ...] = ()
    date: str = ""
    message_id: str = ""
    references: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    cut: bool = False
    attachments: tuple[Attachment, ...] = ()


def parse_mail(data: bytes, max_characters: int = MAX_TEXT, *, plain: bool = False) -> Mail:
    """Read a mail in RFC 5322 format, as in `.eml` files.

    A malformed one is read as far as possible. From alternatives (`multipart/alternative`), HTML is
    preferred unless `plain` is set: mail programs show it, and it has the link addresses. Its
    hidden text is left out. An attached mail is an attachment.
    """
    message = _parsed(data)
    if message is None:
        headers = BytesHeaderParser().parsebytes(data[: 20 * MAX_HEADER])
        text, attachments = "", []
    else:
        headers = message
        texts = [part.strip() for part in _texts(message, plain)]
        text = "\n\n".join(filter(None, texts))
        attachments = list(map(_attachment, _attached(message)))
    ids = _MESSAGE_ID.findall(_header(headers, "Message-ID"))
    return Mail(
        subject=_header(headers, "Subject"),
        sender=_header(headers, "From"),
        to=_addresses(headers, "To"),
        cc=_addresses(headers, "Cc"),
        reply_to=_addresses(headers, "Reply-To"),
        date=_date(_header(headers, "Date")),
        message_id="".join(ids[:1]),
        references=tuple(_MESSAGE_ID.findall(_header(headers, "References"))),
        text=text[:max_characters],
        cut=message is None or len(text) > max_characters,
        attachments=tuple(attachments[:MAX_ATTACHMENTS]),
    )


def decoded_header(value: str) -> str:
    """Decode a header's first part to one line: encoded words (RFC 2047) decoded, nothing
    invisible.
    """
    value = value[:MAX_HEADER]
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        pieces = [(value, None)]
    text = ""
    for piece, charset in pieces:
        text += piece if isinstance(piece, str) else _decoded(piece, charset)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _parsed(data: bytes) -> Message | None:
    """Parse the mail into a tree, or return None if that would take too long: each nesting level
    reads every line again.
    """
    if sum(1 for _ in _NESTED.finditer(data)) > _MAX_PARTS:
        return None
    try:
        return message_from_bytes(data)
    except (RecursionError, ValueError):
        return None


def _texts(part: Message, plain: bool) -> Iterator[str]:
    """Yield a part's texts and those nested in it, in order, and only one of alternatives."""
    if not part.is_multipart():
        if _is_text(part):
            yield _text(part)
    elif part.get_content_type() == "multipart/alternative":
        preferred: list[Message] = []
        others: list[Message] = []
        for child in _parts(part):
            is_plain = child.get_content_type() == "text/plain"
            if is_plain is plain:
                preferred.append(child)
            else:
                others.append(child)
        for child in preferred + others:
            text = "\n\n".join(_texts(child, plain))
            if text.strip():
                yield text
                return
    elif part.get_content_maintype() == "multipart":
        for child in _parts(part):
            yield from _texts(child, plain)


def _attached(part: Message) -> Iterator[Message]:
    if part.is_multipart() and part.get_content_maintype() == "multipart":
        for child in _parts(part):
            yield from _attached(child)
    elif not _is_text(part):
        yield part


def _parts(part: Message) -> list[Message]:
    return of_type(part.get_payload(), Message)


def _is_text(part: Message) -> bool:
    if part.is_multipart() or part.get_content_disposition() == "attachment":
        return False
    return part.get_content_type() in ("text/plain", "text/html")


def _text(part: Message) -> str:
    charset = _parameter(part, "charset", "content-type")
    text = _decoded(_bytes(part), charset).replace("\r\n", "\n").replace("\r", "\n")
    if part.get_content_type() == "text/html":
        return html_to_text(text, linked_styles=False)
    return text


def _bytes(part: Message) -> bytes:
    try:
        data = part.get_payload(decode=True)
    except (ValueError, LookupError):
        data = None
    return data if isinstance(data, bytes) else b""


def _parameter(part: Message, name: str, header: str) -> str:
    """Read a parameter of a header, or return an empty text.

    Python's own `get_content_charset` and `get_filename` decode it in whatever charset it names,
    however long it is.
    """
    try:
        value = part.get_param(name, "", header)
    except (ValueError, LookupError):
        return ""
    if not isinstance(value, tuple):
        return str(value)[:MAX_HEADER]
    charset, _, text = value
    data = text[:MAX_HEADER].encode("raw-unicode-escape", "replace")
    return _decoded(data, charset or "us-ascii")


def _attachment(part: Message) -> Attachment:
    filename = _parameter(part, "filename", "content-disposition")
    name = decoded_header(filename or _parameter(part, "name", "content-type"))
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        return _attached_mail(name, _parts(part))
    # Of a part that is not multipart, `walk` yields itself.
    size = sum(len(_bytes(each)) for each in part.walk())
    return Attachment(re.split(r"[/\\]", name)[-1], decoded_header(part.get_content_type()), size)


def _attached_mail(name: str, inner: list[Message]) -> Attachment:
    if not inner:
        return Attachment(name, "message/rfc822", 0)
    subject = _header(inner[0], "Subject")
    return Attachment(name or subject, "message/rfc822", len(bytes(inner[0])))


def _decoded(data: bytes, charset: str | None) -> str:
    for name in (charset or "utf-8", "utf-8"):
        if (text := decoded_as(data, name)) is not None:
            return text
    return data.decode("cp1252", "replace")


def _header(message: Message, name: str) -> str:
    return decoded_header(str(message.get(name, "")))


def _addresses(message: Message, name: str) -> tuple[str, ...]:
    """Parse a header's addresses.

    They are split before they are decoded, since a decoded name can contain a comma.
    """
    values = [str(value)[:MAX_HEADER] for value in message.get_all(name, [])[:10]]
    addresses = []
    with suppress(RecursionError):
        for person, address in getaddresses(values):
            if address:
                addresses.append(
                    person_and_address(decoded_header(person), decoded_header(address))
                )
    if not addresses and (text := decoded_header(" ".join(values))):
        return (text,)
    return tuple(addresses)


def person_and_address(person: str, address: str) -> str:
    """Write an address as in a header: `Ada <ada@example.com>`, or the address alone."""
    if not person:
        return address
    return f"{person} <{address}>"


def _date(text: str) -> str:
    try:
        return parsedate_to_datetime(text).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return text
