"""Build mail to send.

A mail is built from its parts, read back from its bytes, and refused unless both agree. Python's
`email` package decodes encoded words (RFC 2047) in header values, and before 3.11.10, 3.12.5 and
3.13 it wrote their line breaks unchanged: a subject could add a recipient. So encoded words are
refused, and only the finished mail counts.
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

from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.bundled._mail import person_and_address

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

    `recipients` has lists of addresses by `to`, `cc` and `bcc`, each as `ada@example.com` or
    `Ada <ada@example.com>`. `in_reply_to` and `references` are ids from the mail that this one
    answers, so malformed ones are left out.

    Raises:
        ValueError: A part cannot be sent, or would turn the mail into something else.
    """
    addresses = {}
    for field in _FIELDS:
        addresses[field] = [_checked(address) for address in recipients.get(field, ())]
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
    for field, name in _FIELDS.items():
        if addresses[field]:
            mail[name] = ", ".join(map(_written, addresses[field]))
    charset = None if subject.isascii() else "utf-8"
    mail["Subject"] = Header(subject, charset, header_name="Subject").encode()
    if _is_message_id(in_reply_to):
        mail["In-Reply-To"] = in_reply_to
        earlier = [each for each in references[-20:] if _is_message_id(each)]
        mail["References"] = " ".join([*earlier, in_reply_to])
    raw = mail.as_bytes(policy=compat32.clone(linesep="\r\n"))
    finished = _read_back(raw, [name.casefold() for name in mail])
    unchanged = (
        _letters(finished.subject) == _letters(subject)
        and _lines(finished.text) == _lines(text)
        and all(
            _has_only(finished.recipients.get(field, ()), wanted)
            for field, wanted in addresses.items()
        )
    )
    if not unchanged:
        raise ValueError(
            "The finished mail would not be the one described. Use plain characters in names and"
            " the subject."
        )
    return finished


def finished_call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the arguments to `gmail_send` with the finished mail's actual values."""
    recipients = {field: arguments.get(field) or () for field in _FIELDS}
    subject, text = arguments.get("subject"), arguments.get("text")
    are_lists = all(map(_is_list_of_text, recipients.values()))
    if not (are_lists and isinstance(subject, str) and isinstance(text, str)):
        raise ValueError("to, cc and bcc are lists of addresses, and subject and text are text.")
    mail = compose(recipients, subject, text)
    finished = {**arguments, "subject": mail.subject, "text": mail.text}
    if not text.endswith("\n"):
        finished["text"] = mail.text.removesuffix("\n")
    for field in _FIELDS:
        if field in arguments:
            finished[field] = list(mail.recipients.get(field, ()))
    return finished


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all_are(value, str)


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
    text = ""
    if isinstance(body, bytes):
        text = body.decode("utf-8").replace("\r\n", "\n")
    recipients = {field: _addresses(mail, name) for field, name in _FIELDS.items() if name in mail}
    return OutgoingMail(raw, recipients, _decoded_header(mail["Subject"]), text)


def _addresses(mail: Message, name: str) -> tuple[str, ...]:
    return tuple(
        person_and_address(_decoded_header(person), address)
        for person, address in getaddresses([_unfolded(mail[name])])
    )


def _has_only(addresses: Sequence[str], wanted: Sequence[Address]) -> bool:
    return list(map(_letters, addresses)) == [_letters(str(each)) for each in wanted]


def _decoded_header(header: str) -> str:
    return str(make_header(decode_header(_unfolded(header))))


def _unfolded(header: str) -> str:
    return re.sub(r"\r?\n(?=[ \t])", "", header)


def _letters(text: str) -> str:
    """Remove blanks and quotes from a text: folding a long header adds or drops blanks."""
    return "".join(text.replace('"', "").replace("\\", "").split())


def _lines(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n")
