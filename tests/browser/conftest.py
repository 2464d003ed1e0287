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


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One for this folder: while it is open, Playwright has a loop in the main thread, and no other
    test can start its own.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    sync_api.expect.set_options(timeout=30_000)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1200, "height": 1600})
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture(scope="session")
def axe() -> Path:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: python3 .ci/third_party.py")
    return AXE
