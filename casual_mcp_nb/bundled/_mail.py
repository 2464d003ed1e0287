"""Read mail, and build mail to send.

A mail to send is built from its parts, read back from its bytes, and refused unless both agree.
Python's `email` package decodes encoded words (RFC 2047) in header values, and before 3.11.10,
3.12.5 and 3.13 it wrote their line breaks unchanged: a subject could add a recipient. So encoded
words are refused, and only the finished mail counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import Header, decode_header, make_header
from email.headerregistry import Address
from email.message import Message
from email.mime.text import MIMEText
from email.parser import BytesHeaderParser
from email.policy import compat32
from email.utils import formataddr, getaddresses, parsedate_to_datetime
from itertools import starmap
from typing import Any

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
        text, attachments = "", []
    else:
        texts = [part.strip() for part in _texts(message, plain)]
        text = "\n\n".join(part for part in texts if part)
        attachments = [_attachment(part) for part in _attached(message)]
    message_or_headers = message or BytesHeaderParser().parsebytes(data[: 20 * MAX_HEADER])
    ids = _MESSAGE_ID.findall(_header(message_or_headers, "Message-ID"))
    return Mail(
        subject=_header(message_or_headers, "Subject"),
        sender=_header(message_or_headers, "From"),
        to=_addresses(message_or_headers, "To"),
        cc=_addresses(message_or_headers, "Cc"),
        reply_to=_addresses(message_or_headers, "Reply-To"),
        date=_date(_header(message_or_headers, "Date")),
        message_id="".join(ids[:1]),
        references=tuple(_MESSAGE_ID.findall(_header(message_or_headers, "References"))),
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
    text = "".join(
        piece if isinstance(piece, str) else _decoded(piece, charset) for piece, charset in pieces
    )
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
    """Yield a part's texts and those nested in it, in order, and only the plain or HTML one from
    alternatives.
    """
    if not part.is_multipart():
        if _is_text(part):
            yield _text(part)
    elif part.get_content_type() == "multipart/alternative":
        best_first = sorted(
            _parts(part), key=lambda child: (child.get_content_type() == "text/plain") is not plain
        )
        yield next(
            filter(str.strip, ("\n\n".join(_texts(child, plain)) for child in best_first)), ""
        )
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
    return [child for child in part.get_payload() if isinstance(child, Message)]


def _is_text(part: Message) -> bool:
    if part.is_multipart() or part.get_content_disposition() == "attachment":
        return False
    return part.get_content_type() in ("text/plain", "text/html")


def _text(part: Message) -> str:
    text = _decoded(_bytes(part), _charset(part)).replace("\r\n", "\n").replace("\r", "\n")
    if part.get_content_type() == "text/html":
        return html_to_text(text, linked_styles=False)
    return text


def _bytes(part: Message) -> bytes:
    try:
        data = part.get_payload(decode=True)
    except (ValueError, LookupError):
        data = None
    return data if isinstance(data, bytes) else b""


def _charset(part: Message) -> str | None:
    return _parameter(part, "charset", "content-type") or None


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
    return _decoded(
        text[:MAX_HEADER].encode("raw-unicode-escape", "replace"), charset or "us-ascii"
    )


def _attachment(part: Message) -> Attachment:
    name = _parameter(part, "filename", "content-disposition") or _parameter(
        part, "name", "content-type"
    )
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        return _attached_mail(decoded_header(name), _parts(part))
    if part.is_multipart():
        size = sum(len(_bytes(child)) for child in part.walk())
    else:
        size = len(_bytes(part))
    return Attachment(
        re.split(r"[/\\]", decoded_header(name))[-1], decoded_header(part.get_content_type()), size
    )


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
    try:
        pairs = [
            (decoded_header(person), decoded_header(address))
            for person, address in getaddresses(values)
            if address
        ]
    except RecursionError:
        pairs = []
    if not pairs and (text := decoded_header(" ".join(values))):
        return (text,)
    return tuple(starmap(_person_and_address, pairs))


def _person_and_address(person: str, address: str) -> str:
    if not person:
        return address
    return f"{person} <{address}>"


def _date(text: str) -> str:
    try:
        return parsedate_to_datetime(text).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return text


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_ADDRESS = rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_MAILBOX = re.compile(
    rf"""(?P<name>[^<>"]*|"[^"<>\\]*")<(?P<named>{_ADDRESS})>|(?P<plain>{_ADDRESS})"""
)
_OUTGOING_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,900}>")
_ENCODED = "=?"
_FIELDS = {"to": "To", "cc": "Cc", "bcc": "Bcc"}


@dataclass(frozen=True)
class OutgoingMail:
    """A finished mail, read back from its bytes, with the addresses in each header."""

    raw: bytes
    recipients: Mapping[str, tuple[str, ...]]
    subject: str
    text: str


def compose(
    recipients: Mapping[str, Sequence[str]],
    subject: str,
    text: str,
    in_reply_to: str = "",
    references: Sequence[str] = (),
) -> OutgoingMail:
    """Make a plain-text mail.

    Addresses are `ada@example.com` or `Ada <ada@example.com>`, by `to`, `cc` and `bcc`.

    Ids come from the mail that it answers, so malformed ones are left out. A ValueError names a
    part that cannot be sent, or would turn the mail into something else.
    """
    addresses = {
        field: [_checked(address) for address in recipients.get(field, ())] for field in _FIELDS
    }
    if not any(addresses.values()):
        raise ValueError("A mail needs a recipient.")
    if (problem := unprintable(subject)) is not None:
        raise ValueError(f"The subject {problem}.")
    try:
        # Not `EmailMessage`: before Python 3.13 it changes some long headers where it folds them,
        # so they would be refused.
        mail = MIMEText(re.sub(r"\r\n?|\n", "\r\n", text), "plain", "utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            "The text has half of a surrogate pair in it, which no mail can have."
        ) from None
    for header, name in _FIELDS.items():
        if addresses[header]:
            mail[name] = ", ".join(map(_written, addresses[header]))
    mail["Subject"] = Header(
        subject, None if subject.isascii() else "utf-8", header_name="Subject"
    ).encode()
    ids = [each for each in (*references[-20:], in_reply_to) if _is_message_id(each)]
    if _is_message_id(in_reply_to):
        mail["In-Reply-To"] = in_reply_to
        mail["References"] = " ".join(ids)
    raw = mail.as_bytes(policy=compat32.clone(linesep="\r\n"))
    finished = _read_back(raw, [name.casefold() for name in mail])
    wanted = {
        field: tuple(map(_letters, map(str, each))) for field, each in addresses.items() if each
    }
    same = {
        field: tuple(map(_letters, each)) for field, each in finished.recipients.items()
    } == wanted
    if not (
        same
        and _letters(finished.subject) == _letters(subject)
        and _lines(finished.text) == _lines(text)
    ):
        raise ValueError(
            "The finished mail would not be the one described. Use plain characters in names and"
            " the subject."
        )
    return finished


def finished_call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the arguments to `gmail_send` with the finished mail's actual values."""
    given = {field: arguments.get(field) or () for field in _FIELDS}
    subject, text = arguments.get("subject"), arguments.get("text")
    listed = all(
        isinstance(each, list | tuple) and all(isinstance(one, str) for one in each)
        for each in given.values()
    )
    if not (listed and isinstance(subject, str) and isinstance(text, str)):
        raise ValueError("to, cc and bcc are lists of addresses, and subject and text are text.")
    mail = compose(given, subject, text)
    return {
        **arguments,
        **{field: list(mail.recipients.get(field, ())) for field in _FIELDS if field in arguments},
        "subject": mail.subject,
        "text": mail.text if text.endswith("\n") else mail.text.removesuffix("\n"),
    }


def unprintable(text: str) -> str | None:
    """Explain why a text cannot be part of a header line, even when decoded, or return None if it
    can.
    """
    if not all(map(str.isprintable, text)):
        return "must be one line of visible characters"
    if _ENCODED in text:
        return "must not contain '=?', which begins an encoded word (RFC 2047)"
    return None


def _checked(address: str) -> Address:
    """Validate an address; refuse one that could be read as several, or as another header."""
    match = _MAILBOX.fullmatch(address.strip())
    if match is None or unprintable(address.strip()) is not None:
        raise ValueError(
            f"Not one mail address: {address[:100]!a}. Write ada@example.com or Ada"
            " <ada@example.com>."
        )
    return Address(
        (match["name"] or "").strip().strip('"'), addr_spec=match["named"] or match["plain"]
    )


def _written(address: Address) -> str:
    name = address.display_name
    if name.isascii():
        return formataddr((name, address.addr_spec))
    return f"{Header(name, 'utf-8').encode()} <{address.addr_spec}>"


def _is_message_id(text: str) -> bool:
    return _OUTGOING_MESSAGE_ID.fullmatch(text) is not None and _ENCODED not in text


def _read_back(raw: bytes, names: Sequence[str]) -> OutgoingMail:
    """Read a mail as whoever gets it would, with the parser that decodes nothing by itself."""
    mail = message_from_bytes(raw)
    if (
        sorted(name.casefold() for name in mail) != sorted(names)
        or mail.defects
        or mail.is_multipart()
    ):
        raise ValueError("The finished mail would have other headers than those described.")
    body = mail.get_payload(decode=True)
    return OutgoingMail(
        raw,
        {field: _outgoing_addresses(mail, name) for field, name in _FIELDS.items() if name in mail},
        _decoded_header(mail["Subject"]),
        body.decode("utf-8").replace("\r\n", "\n") if isinstance(body, bytes) else "",
    )


def _outgoing_addresses(mail: Message, name: str) -> tuple[str, ...]:
    pairs = [
        (_decoded_header(person), address)
        for person, address in getaddresses([_unfolded(mail[name])])
    ]
    return tuple(starmap(_person_and_address, pairs))


def _decoded_header(header: str) -> str:
    return str(make_header(decode_header(_unfolded(header))))


def _unfolded(header: str) -> str:
    return re.sub(r"\r?\n(?=[ \t])", "", header)


def _letters(text: str) -> str:
    """Remove blanks and quotes from a text: folding a long header adds or drops blanks."""
    return "".join(text.replace('"', "").replace("\\", "").split())


def _lines(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n")
