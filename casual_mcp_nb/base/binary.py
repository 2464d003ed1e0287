"""Read binary data that is written as text: base64 as the specifications have it, and as many
programs write it.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

_DATA_URL = re.compile(
    r"\s*data:(?P<type>[^,;]{0,200})(?P<parameters>(?:;[^,;]{0,200}){0,10}),", re.IGNORECASE
)
_LINE_BREAK = re.compile(r"[ \t]*[\r\n]+[ \t]*")
_ORDINARY = str.maketrans("-_", "+/")


def bytes_of(text: str) -> tuple[bytes, str]:
    """Decode base64, also as a data URL, with the letters of URLs, in several lines, or without its
    padding.

    Returns:
        The bytes, and the media type that a data URL names, or an empty text.

    Raises:
        ValueError: It is none of these.
    """
    media_type, encoded = "", text
    url = _DATA_URL.match(text)
    if url is not None:
        media_type, encoded = url["type"].strip().lower(), text[url.end() :]
        if "base64" not in url["parameters"].lower():
            return unquote_to_bytes(encoded), media_type
        encoded = encoded.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")
    encoded = _LINE_BREAK.sub("", encoded.strip()).translate(_ORDINARY).rstrip("=")
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True), media_type
    except binascii.Error as error:
        raise ValueError(str(error)) from None
