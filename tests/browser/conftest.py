"""Chromium, and a JupyterLab for it to look at.

Without chromium the tests are skipped and say so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.lab import Lab, started_lab

OPTIONS = ["--no-sandbox", "--disable-gpu"]
AXE = (
    Path(__file__).resolve().parents[2]
    / ".third-party"
    / "axe"
    / "node_modules"
    / "axe-core"
    / "axe.min.js"
)


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with started_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


class LabBrowser:
    """Opens pages in one profile, which keeps what it has loaded and compiled: to compile
    JupyterLab takes half of the time in which a page opens.
    """

    def __init__(self, profile: Any) -> None:
        self._profile = profile

    def new_page(self, width: int = 1200, height: int = 1600) -> Any:
        """Open an empty page of this size."""
        page = self._profile.new_page()
        page.set_viewport_size({"width": width, "height": height})
        return page


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """How to start Chromium.

    While it is open, Playwright has a loop in the main thread, and no other test can start its own.
    """
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    sync_api.expect.set_options(timeout=30_000)
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="package")
def browser(chromium: Any) -> Iterator[Any]:
    """One for this folder, whose pages know nothing of each other."""
    browser = chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def lab_browser(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabBrowser]:
    """One for the pages of JupyterLab."""
    profile = chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=shutil.which("chromium"),
        args=OPTIONS,
    )
    yield LabBrowser(profile)
    profile.close()


@pytest.fixture
def page(lab_browser: LabBrowser) -> Iterator[Any]:
    page = lab_browser.new_page()
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture(scope="session")
def axe() -> Path:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: python3 .ci/third_party.py")
    return AXE
