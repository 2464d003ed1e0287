"""The page of documentation asks for the token, and shows what the token opens."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from casual_mcp_nb import Service, Session

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Session({}) as session, session.serve.http(port=0, token=TOKEN) as service:
        yield service


@pytest.mark.defect("L4")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/docs", 200),
        ("/docs/swagger-ui.css", 200),
        ("/docs/%2e%2e/toolsets", 404),
        ("/docsx", 401),
        ("/openapi.json", 401),
        ("/toolsets", 401),
        ("/health/", 401),
    ],
)
def test_only_the_page_and_its_files_need_no_token(
    service: Service, path: str, status: int
) -> None:
    url = httpx.URL(service.url, raw_path=path.encode())
    assert httpx.get(url).status_code == status
