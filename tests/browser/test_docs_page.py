"""The page of documentation asks for the token of the service, and sends it with what is tried."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from casual_mcp_nb import Session

TOKEN = "a-token-of-many-letters"


@pytest.mark.defect("L4")
def test_the_page_asks_for_the_token_and_sends_it(browser: Browser) -> None:
    page, elsewhere = browser.new_page(), []
    with Session({}) as session, session.serve.http(port=0, token=TOKEN) as service:
        page.on(
            "request",
            lambda request: (
                elsewhere.append(request.url) if service.url not in request.url else None
            ),
        )
        page.goto(f"{service.url}/docs")
        field = page.get_by_label("The token of this service")
        for token in ("another token of many letters", TOKEN):
            field.fill(token)
            field.press("Enter")
            if token != TOKEN:
                expect(page.get_by_role("alert")).to_contain_text("Bearer")
        page.get_by_text("/toolsets").first.click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        expect(
            page.locator(".live-responses-table tbody td.response-col_status").first
        ).to_contain_text("200")
        assert field.is_hidden()
    page.close()
    assert [url for url in elsewhere if not url.startswith("data:")] == []
