"""The docs site in a browser: its pages fit a phone and a screen, axe finds nothing wrong, and
nothing comes from elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kit.namespaces import docs_hooks
from kit.pages import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PHONE, SCREEN = {"width": 400, "height": 800}, {"width": 1400, "height": 900}
EACH_KIND = [
    "",
    "guides/discovery/",
    "lessons/04_explorer/",
    "reference/errors/",
    "decisions/",
    "rooms/",
]
"""A page of each kind."""
OF_THE_TEXT = (
    *(
        "aria-valid-attr",
        "button-name",
        "duplicate-id-aria",
        "empty-heading",
        "heading-order",
        "image-alt",
        "label",
        "link-name",
    ),
    *(
        "list",
        "listitem",
        "nested-interactive",
        "scrollable-region-focusable",
        "summary-name",
        "svg-img-alt",
        "td-headers-attr",
    ),
    *("th-has-data-cells",),
)
"""The rules of axe that depend on what a page says."""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    """The address at which the site is served."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def visitor(browser: Any, site: str) -> Iterator[Any]:
    """A page whose addresses begin at the site, and the addresses elsewhere that were asked for."""
    context = browser.new_context(base_url=site, viewport=SCREEN, color_scheme="light")
    elsewhere: list[str] = []
    context.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((site, "data:", "blob:"))
            else elsewhere.append(request.url)
        ),
    )
    yield context.new_page()
    context.close()
    assert elsewhere == []


def guides_and_lessons(folder: Path) -> list[str]:
    """The addresses of all guides and lessons, from the root of the site."""
    pages = [
        f"{path.parent.relative_to(folder)}/"
        for part in ("guides", "lessons")
        for path in (folder / part).rglob("index.html")
    ]
    assert len(pages) > 30
    return sorted(pages)


def problems(page: Any, axe: Path, part: str = "html", rules: tuple[str, ...] = ()) -> list[str]:
    """What axe finds in a part of the page, by all rules or by these, and whether the page is wider
    than the window.
    """
    page.add_script_tag(path=str(axe))
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    results = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])
    found = [
        f"{page.url} {each['id']}: {node['html'][:160]}"
        for each in results["violations"]
        for node in each["nodes"][:3]
    ]
    wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return [*found, f"{page.url} is {wider} px wider than the window"] if wider > 0 else found


def test_guides_and_lessons_fit_a_phone_and_pass_axe_in_the_dark(
    visitor: Any, folder: Path, axe: Path
) -> None:
    visitor.set_viewport_size(PHONE)
    visitor.emulate_media(color_scheme="dark")
    # The frame and the colors are the same on all pages, and take most of the time: a page of each
    # kind is looked at whole.
    visitor.route("**/search/**", lambda route: route.abort())
    found = []
    for address in guides_and_lessons(folder):
        visitor.goto(address)
        found += problems(visitor, axe, "article", OF_THE_TEXT)
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_each_kind_fits_a_screen_and_passes_axe(
    visitor: Any, axe: Path, scheme: str
) -> None:
    visitor.emulate_media(color_scheme=scheme)
    found = []
    for address in EACH_KIND:
        visitor.goto(address)
        found += problems(visitor, axe)
        pictured(visitor, f"site-{address.strip('/').replace('/', '-') or 'home'}-{scheme}")
    assert found == []


def test_a_guide_ranks_above_the_attributes_of_the_reference(visitor: Any) -> None:
    for query in ("toolset", "cassette", "delivery"):
        visitor.goto(f"?q={query}")
        first = visitor.locator(".md-search-result__link").first
        first.wait_for()
        assert "/guides/" in first.evaluate("link => link.href")


def test_a_lesson_shows_its_committed_outputs(visitor: Any) -> None:
    for path in docs_hooks().lessons():
        drawn = [text for _, text in docs_hooks().outputs(path) if text]
        visitor.goto(f"lessons/{path.stem}/")
        shown = visitor.locator(".output").evaluate_all(
            "outputs => outputs.map(({shadowRoot: root}) => root.textContent.trim() ||"
            " root.querySelector('img')?.alt)"
        )
        assert len(shown) == len(drawn) > 0
        assert all(shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_home_page_has_a_picture_of_each_face_in_both_schemes(
    visitor: Any, scheme: str
) -> None:
    visitor.emulate_media(color_scheme=scheme)
    visitor.goto("")
    faces = ("turn", "explorer", "panel", "player", "comparison")
    ending = ".png#gh-light-mode-only" if scheme == "light" else "-dark.png#gh-dark-mode-only"
    visitor.wait_for_function("[...document.images].every(image => image.complete)")
    shown = (
        "[...document.images].filter(i => i.naturalWidth && i.offsetWidth).map(i =>"
        " i.getAttribute('src'))"
    )
    assert visitor.evaluate(shown) == [
        "images/turn.svg",
        *(f"images/{face}{ending}" for face in faces),
    ]


def test_llms_txt_lists_the_guides_and_lessons_as_markdown(folder: Path) -> None:
    text = (folder / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# casual_mcp_nb\n\n> ")
    for address in guides_and_lessons(folder):
        assert f"]({address}index.md): " in text
        assert (folder / address / "index.md").read_text(encoding="utf-8").startswith("# ")
