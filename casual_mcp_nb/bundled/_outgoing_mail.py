"""A mail to send: made from its parts, read back from its bytes, and refused unless both say the same.

Python's `email` package decodes encoded words (RFC 2047) in what it is given for a header, and before 3.11.10, 3.12.5 and 3.13
it wrote the line breaks in them as they are: a subject could add a recipient. So encoded words are refused, and what counts is
the finished mail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.header import Header, decode_header, make_header
from email.headerregistry import Address
from email.message import Message
from email.mime.text import MIMEText
from email.policy import compat32
from email.utils import formataddr, getaddresses
from typing import Any

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_ADDRESS = rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_MAILBOX = re.compile(rf"""(?P<name>[^<>"]*|"[^"<>\\]*")<(?P<named>{_ADDRESS})>|(?P<plain>{_ADDRESS})""")
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,900}>")
_ENCODED = "=?"
_FIELDS = {"to": "To", "cc": "Cc", "bcc": "Bcc"}


@dataclass(frozen=True)
class OutgoingMail:
    """A finished mail, as it is read back from its bytes.

    Args:
        raw: The mail in the format of RFC 5322.
        recipients: The addresses of each header that names some, by `to`, `cc` and `bcc`, as `Name <address>` or the address.
        subject: Its subject.
        text: Its text.
    """

    raw: bytes
    recipients: Mapping[str, tuple[str, ...]]
    subject: str
    text: str


def compose(
    recipients: Mapping[str, Sequence[str]], subject: str, text: str, in_reply_to: str = "", references: Sequence[str] = ()
) -> OutgoingMail:
    """Make a mail in plain text.

    Args:
        recipients: Addresses by `to`, `cc` and `bcc`, each as `ada@example.com` or `Ada <ada@example.com>`.
        subject: The subject.
        text: The text.
        in_reply_to: The `Message-ID` of the mail that this one answers; empty for none. Ids come from others' mail, so one that
            is malformed is left out.
        references: The ids of the mails before it.

    Raises:
        ValueError: A part cannot be sent, or would make something else of the mail; the message says which one.
    """
    addresses = {field: [_checked(address) for address in recipients.get(field, ())] for field in _FIELDS}
    if not any(addresses.values()):
        raise ValueError("A mail needs a recipient.")
    if (problem := unprintable(subject)) is not None:
        raise ValueError(f"The subject {problem}.")
    try:
        # Not `EmailMessage`: before Python 3.13 it changes some long headers where it folds them, so they would be refused.
        mail = MIMEText(re.sub(r"\r\n?|\n", "\r\n", text), "plain", "utf-8")
    except UnicodeEncodeError:
        raise ValueError("The text has half of a surrogate pair in it, which no mail can have.") from None
    for field, name in _FIELDS.items():
        if addresses[field]:
            mail[name] = ", ".join(map(_written, addresses[field]))
    mail["Subject"] = Header(subject, None if subject.isascii() else "utf-8", header_name="Subject").encode()
    ids = [each for each in (*references[-20:], in_reply_to) if _is_message_id(each)]
    if _is_message_id(in_reply_to):
        mail["In-Reply-To"] = in_reply_to
        mail["References"] = " ".join(ids)
    raw = mail.as_bytes(policy=compat32.clone(linesep="\r\n"))
    finished = _read_back(raw, [name.casefold() for name in mail])
    wanted = {field: tuple(map(_letters, map(str, each))) for field, each in addresses.items() if each}
    same = {field: tuple(map(_letters, each)) for field, each in finished.recipients.items()} == wanted
    if not (same and _letters(finished.subject) == _letters(subject) and _lines(finished.text) == _lines(text)):
        raise ValueError("The finished mail would not be the one described. Use plain characters in names and the subject.")
    return finished


def finished_call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the arguments of `gmail_send` with the values that the finished mail really has.

    Raises:
        ValueError: There is no such mail, see `compose`.
    """
    given = {field: arguments.get(field) or () for field in _FIELDS}
    subject, text = arguments.get("subject"), arguments.get("text")
    listed = all(isinstance(each, list | tuple) and all(isinstance(one, str) for one in each) for each in given.values())
    if not (listed and isinstance(subject, str) and isinstance(text, str)):
        raise ValueError("to, cc and bcc are lists of addresses; subject and text are text.")
    mail = compose(given, subject, text)
    return {
        **arguments,
        **{field: list(mail.recipients.get(field, ())) for field in _FIELDS if field in arguments},
        "subject": mail.subject,
        "text": mail.text if text.endswith("\n") else mail.text.removesuffix("\n"),
    }


def unprintable(text: str) -> str | None:
    """Explain why a text cannot be part of one line of a mail's header, even when decoded; None if it can."""
    if not all(map(str.isprintable, text)):
        return "must be one line of visible characters"
    if _ENCODED in text:
        return "must not contain '=?', which begins an encoded word (RFC 2047)"
    return None


def _checked(address: str) -> Address:
    """Validate an address; refuse one that could be read as several, or as another header."""
    match = _MAILBOX.fullmatch(address.strip())
    if match is None or unprintable(address.strip()) is not None:
        raise ValueError(f"Not one mail address: {address[:100]!a}. Write ada@example.com or Ada <ada@example.com>.")
    return Address((match["name"] or "").strip().strip('"'), addr_spec=match["named"] or match["plain"])


def _written(address: Address) -> str:
    name = address.display_name
    if name.isascii():
        return formataddr((name, address.addr_spec))
    return f"{Header(name, 'utf-8').encode()} <{address.addr_spec}>"


def _is_message_id(text: str) -> bool:
    return _MESSAGE_ID.fullmatch(text) is not None and _ENCODED not in text


def _read_back(raw: bytes, names: Sequence[str]) -> OutgoingMail:
    """Read a mail as whoever gets it would, with the parser that decodes nothing by itself."""
    mail = message_from_bytes(raw)
    if sorted(name.casefold() for name in mail) != sorted(names) or mail.defects or mail.is_multipart():
        raise ValueError("The finished mail would have other headers than those described.")
    body = mail.get_payload(decode=True)
    return OutgoingMail(
        raw,
        {field: _addresses(mail, name) for field, name in _FIELDS.items() if name in mail},
        _decoded(mail["Subject"]),
        body.decode("utf-8").replace("\r\n", "\n") if isinstance(body, bytes) else "",
    )


def _addresses(mail: Message, name: str) -> tuple[str, ...]:
    pairs = [(_decoded(person), address) for person, address in getaddresses([_unfolded(mail[name])])]
    return tuple(f"{person} <{address}>" if person else address for person, address in pairs)


def _decoded(header: str) -> str:
    return str(make_header(decode_header(_unfolded(header))))


def _unfolded(header: str) -> str:
    return re.sub(r"\r?\n(?=[ \t])", "", header)


def _letters(text: str) -> str:
    """Remove blanks and quotes from a text: folding a long header adds or drops blanks."""
    return "".join(text.replace('"', "").replace("\\", "").split())


def _lines(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n")
