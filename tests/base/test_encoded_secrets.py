"""A secret is masked however it is written: each encoding, wherever text leaves."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from kit.counting import calls_of
from kit.raw_server import raw_config, text_result
from kit.scripted_http import Reply  # noqa: F401

from casual_mcp_nb import Session, load_config
from casual_mcp_nb.base.secret import MASK, Mask, redacted, url_secrets
from casual_mcp_nb.conversation.event import ToolFinished
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.servers.redaction import Redactor

SECRETS = (
    "planted-tok3n-7f3a9c",
    'planted p&ss "w0rd" <ü/+>\n!',
    "pa55",
    "0" * 15 + "planted/secret+value==",
)
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[1:-1],
    "JSON in JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text)))[1:-1],
    "JSON with Unicode": lambda text: json.dumps(
        json.dumps(text, ensure_ascii=False), ensure_ascii=False
    )[1:-1],
    "JSON for web pages": lambda text: (
        json.dumps(text)[1:-1]
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
    ),
    "JSON with every character escaped": lambda text: "".join(
        f"\\u{ord(each):04x}" for each in text
    ),
    "percent": lambda text: quote(text),
    "percent, also of slashes": lambda text: quote(text, safe=""),
    "percent in lower case": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "percent of each byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "a form with +": lambda text: quote_plus(text),
    "HTML": lambda text: html.escape(text),
    "HTML, quotes left": lambda text: html.escape(text, quote=False),
    "HTML with decimal quotes": lambda text: (
        html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    ),
    "HTML with each character by number": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "JSON in HTML": lambda text: html.escape(json.dumps(text)[1:-1]),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for addresses": lambda text: (
        base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    ),
    "hexadecimal": lambda text: text.encode().hex(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper(),
}
LONG_SECRETS = [secret for secret in SECRETS if len(secret) > 10]


@pytest.mark.defect("F7")
@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_each_encoding_is_masked(encode: Callable[[str], str]) -> None:
    mask = Mask(SECRETS)
    for secret in SECRETS:
        text = f"before, {encode(secret)} and after {encode(secret)}."
        assert mask.is_in(text)
        assert encode(secret) not in mask(text)
        assert mask(text).startswith("before, ")
        assert Redactor(SECRETS).value({"a": [encode(secret)]}) != {"a": [encode(secret)]}
        assert encode(secret) not in redacted(text, [secret])


@pytest.mark.defect("F7")
@pytest.mark.parametrize("before", ["", "u", "me:", "user:", "someone@example.com:"])
@pytest.mark.parametrize("after", ["", "&", ":x", '"}'])
def test_a_secret_within_base64_is_masked_whatever_is_around_it(before: str, after: str) -> None:
    for secret in LONG_SECRETS:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = f"Basic {encode(f'{before}{secret}{after}'.encode()).decode()}"
            masked = Mask([secret])(text)
            assert MASK in masked
            # Of the characters at its ends, a few bits at most are left.
            assert (
                len(masked.replace(MASK, "").removeprefix("Basic "))
                <= (len(before) + len(after)) * 4 / 3 + 8
            )


@pytest.mark.defect("F7")
def test_ordinary_text_costs_one_scan_for_each_secret_and_no_calls() -> None:
    secrets = [f"planted-tok3n-{number}-7f3a9c" for number in range(10)]
    redactor, text = Redactor(secrets), "Three orders of the customer, 391 euros in total. " * 5
    redactor(text)
    # Before, each secret was a call of `replace`, ten here.
    assert calls_of(lambda: redactor(text)) <= 9
    assert len(redactor._mask._possible(text)) == len(secrets)


@pytest.mark.defect("F7")
def test_passwords_and_nameless_values_of_an_address_are_not_shown() -> None:
    for query in ("pw=abc1", "abc1def2", "p=1&tok3n-value", "PW=abc1"):
        config = load_config({"servers": {"a": {"url": f"https://host/mcp?{query}"}}}, environ={})
        assert query.rpartition("&")[2].rpartition("=")[2] not in repr(config)
    assert not url_secrets("https://host/mcp?readonly&page=2&2") - {""}


@pytest.mark.defect("F7")
def test_what_a_server_sends_encoded_and_a_model_repeats_leaves_by_no_way(tmp_path: Path) -> None:
    secret = SECRETS[0]
    forms = {name: encode(secret) for name, encode in ENCODINGS.items()}
    text = "\n".join(forms.values())
    echo = {"method": "notifications/message", "params": {"level": "error", "data": text}}
    server = raw_config(
        calls={
            "go": {
                "stderr": text,
                "notify": echo,
                "result": {**text_result(text), "structuredContent": {"a": text}},
            },
            "fail": {"error": {"code": -32000, "message": text}},
        },
    )
    server["env"] = {**server.get("env", {}), "RAW_TOKEN": secret}
    config = {"servers": {"raw": server}}
    with Session.from_config(config) as session:
        cassette = session.cassettes.use(tmp_path / "cassette.json", "all")
        turn = session.chat("go", model=scripted_model(call("raw__go"), "Done."))
        failed = session.chat("fail", model=scripted_model(call("raw__fail"), f"It says: {text}"))
        cassette.close()
        for name in ("chat.html", "chat.md", "chat.json"):
            session.export(tmp_path / name)
        session.export(tmp_path / "player.html", player=True)
        model_reads = [str(message.content) for message in turn.messages if message.role == "tool"]
        ways = {
            "the model": "".join(model_reads),
            "an event": repr([event for event in turn.trace if isinstance(event, ToolFinished)]),
            "the trace": turn.trace.to_json(),
            "the call": repr(turn.tool_calls[0]) + turn.tool_calls[0]._repr_html_(),
            "an error": "".join(map(repr, failed.tool_calls)),
            "the log": str(session.servers.log("raw")),
            "the messages": str(session.servers.messages("raw")),
            "the config": repr(session.config),
            **{path.name: path.read_text() for path in tmp_path.iterdir()},
        }
    assert len(model_reads) == 1
    for way, found in ways.items():
        for name, form in forms.items():
            assert form not in found, f"{name} in {way}"
