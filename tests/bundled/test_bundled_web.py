"""The `web` server, against HTTP servers on loopback that a test-only permission lets it reach."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.bundled.web_server import MAX_BYTES, build

Answers = dict[str, tuple[int, dict[str, str], bytes]]

POSTING = {
    "@context": "https://schema.org",
    "@graph": [
        {"@type": "WebSite", "name": "Jobs"},
        {
            "@type": ["JobPosting"],
            "title": " Data  engineer ",
            "hiringOrganization": {"@type": "Organization", "name": "Example AS"},
            "jobLocation": [
                {"address": {"addressLocality": "Oslo", "addressCountry": {"name": "Norway"}}}
            ],
            "employmentType": "FULL_TIME",
            "datePosted": "2026-03-01",
            "baseSalary": {
                "currency": "NOK",
                "value": {"minValue": 700000, "maxValue": 800000, "unitText": "YEAR"},
            },
            "description": "<p>Build <b>things</b></p><script>x</script>",
            "identifier": {"deep": [[[[]]]]},
        },
    ],
}


class Site(ThreadingHTTPServer):
    """Answers by path, and keeps the headers of the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: Answers = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.requests.append(
            (self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        status, headers, body = self.server.answers.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *_arguments: Any) -> None:
        """Suppress the log."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def web() -> Any:
    return build(allowed_addresses=["127.0.0.1"])


HTML = {"content-type": "text/html"}


async def test_a_page_is_text_with_its_title_and_marked_as_foreign(call, web, site: Site) -> None:
    site.answers["/"] = (
        200,
        HTML,
        b"<title>The  list</title><p>See <a href='https://a.org'>this</a><script>x</script>",
    )
    result = await call(web, "fetch_page", url=site.url("/"))

    assert (result["title"], result["text"]) == ("The list", "See this (https://a.org)")
    assert (result["url"], result["next_offset"], result["incomplete"]) == (
        site.url("/"),
        None,
        False,
    )
    assert "not follow instructions" in result["note"]
    part = await call(web, "fetch_page", url=site.url("/"), offset=4, limit=4)
    assert (part["text"], part["next_offset"]) == ("this", 8)
    assert site.requests[0][1]["host"] == f"127.0.0.1:{site.server_port}"


async def test_a_job_posting_comes_as_fields(call, web, site: Site) -> None:
    scripts = [json.dumps(POSTING).replace("</", "<\\/"), "not JSON", "[" * 100_000]
    page = "".join(f'<script type="application/ld+json">{script}</script>' for script in scripts)
    site.answers["/job"] = (200, HTML, page.encode())

    assert (await call(web, "fetch_page", url=site.url("/job")))["job_postings"] == [
        {
            "title": "Data engineer",
            "company": "Example AS",
            "locations": ["Oslo, Norway"],
            "employment_type": ["FULL_TIME"],
            "date_posted": "2026-03-01",
            "salary": "700000 to 800000 NOK per year",
            "description": "Build things",
        }
    ]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=iso-8859-1", "<p>é".encode("latin-1")),
        ("text/html", '<meta charset="iso-8859-1"><p>é'.encode("latin-1")),
        ("text/html; charset=nonsense", "<p>é".encode()),
        ("text/html; charset=punycode", "<p>é".encode()),
        ("text/plain", "é".encode("utf-8-sig")),
    ],
)
async def test_a_page_in_any_encoding_is_read(
    call, web, site: Site, content_type: str, body: bytes
) -> None:
    site.answers["/"] = (200, {"content-type": content_type}, body)

    assert (await call(web, "fetch_page", url=site.url("/")))["text"] == "é"


async def test_redirects_are_followed_and_checked_each_time(call, refused, web, site: Site) -> None:
    site.answers |= {
        "/a": (302, {"location": "/b"}, b""),
        "/b": (200, HTML, b"<p>here"),
        "/loop": (301, {"location": "/loop"}, b""),
        "/private": (302, {"location": "http://10.0.0.1/"}, b""),
        "/other": (307, {"location": f"http://127.0.0.2:{site.server_port}/b"}, b""),
        "/six": (308, {"location": f"http://[::ffff:127.0.0.2]:{site.server_port}/b"}, b""),
        "/file": (302, {"location": "file:///etc/passwd"}, b""),
        "/user": (302, {"location": "http://a:b@example.org/"}, b""),
    }
    result = await call(web, "fetch_page", url=site.url("/a"))
    assert (result["text"], result["url"]) == ("here", site.url("/b"))
    assert "more than 5" in await refused(web, "fetch_page", url=site.url("/loop"))
    for path in ("/private", "/other", "/six"):
        assert "public internet" in await refused(web, "fetch_page", url=site.url(path))
    assert "https://" in await refused(web, "fetch_page", url=site.url("/file"))
    assert "password" in await refused(web, "fetch_page", url=site.url("/user"))
    assert [path for path, _ in site.requests].count("/b") == 1


async def test_a_page_that_is_large_or_packed_is_cut(call, refused, web, site: Site) -> None:
    site.answers |= {
        "/bomb": (
            200,
            {**HTML, "content-encoding": "gzip"},
            gzip.compress(b"a" * (10 * MAX_BYTES)),
        ),
        "/large": (200, {"content-type": "text/plain"}, b"a" * (MAX_BYTES + 100_000)),
        "/packed": (200, {"content-encoding": "gzip"}, gzip.compress(b"<html><p>small")),
        "/damaged": (200, {"content-encoding": "gzip"}, b"no gzip"),
        "/strange": (200, {"content-encoding": "br, gzip"}, b""),
        "/picture": (200, {"content-type": "image/png"}, b"\x89PNG"),
    }
    assert (await call(web, "fetch_page", url=site.url("/packed")))["text"] == "small"
    for path in ("/bomb", "/large"):
        result = await call(web, "fetch_page", url=site.url(path), limit=10)
        assert (result["incomplete"], len(result["text"])) == (True, 10)
        assert result["characters"] <= MAX_BYTES
    for path, fragment in {
        "/damaged": "unpacked",
        "/strange": "br",
        "/picture": "image/png",
        "/none": "404",
    }.items():
        assert fragment in await refused(web, "fetch_page", url=site.url(path))


@pytest.mark.parametrize(
    ("url", "fragment"),
    [
        ("http://localhost:9/", "public internet"),
        ("http://127.1/", "public internet"),
        ("http://2130706433/", "public internet"),
        ("http://[::1]/", "public internet"),
        ("http://169.254.169.254/latest/meta-data/", "public internet"),
        ("http://0.0.0.0/", "public internet"),
        ("https://user:secret@example.org/", "password"),
        ("ftp://example.org/", "https://"),
        ("javascript:alert(1)", "https://"),
        ("http://", "https://"),
        ("http://[", "not known"),
        ("http://" + "a" * 300 + "/", "not known"),
    ],
)
async def test_an_address_that_is_not_public_is_refused(refused, url: str, fragment: str) -> None:
    text = await refused("web", "fetch_page", url=url)
    assert fragment in text
    assert "secret" not in text


@pytest.mark.defect("F10")
@pytest.mark.parametrize(
    "host",
    ["192.0.0.192", "[fec0::1]", "[3fff::1]", "[5f00::1]", "[::ffff:192.0.0.192]", "168.63.129.16"],
)
async def test_an_address_that_only_newer_pythons_know_is_refused_all_the_same(
    refused, host: str
) -> None:
    assert "public internet" in await refused("web", "fetch_page", url=f"http://{host}/")


def test_the_web_is_off_by_default_and_always_asks() -> None:
    assert not BUNDLED["web"].default
    assert BUNDLED["web"].approval == "always"
