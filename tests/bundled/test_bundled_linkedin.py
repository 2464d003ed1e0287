from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb.bundled import linkedin_server
from casual_mcp_nb.bundled._server import FunctionServer

SEARCH = "/jobs-guest/jobs/api/seeMoreJobPostings/search"
POSTING = {
    "@context": "http://schema.org",
    "@type": "JobPosting",
    "title": "Python Developer",
    "datePosted": "2026-03-01T08:00:00.000Z",
    "employmentType": "FULL_TIME",
    "hiringOrganization": {"@type": "Organization", "name": "Example AS"},
    "jobLocation": {
        "@type": "Place",
        "address": {"addressLocality": "Oslo", "addressCountry": "NO"},
    },
    "baseSalary": {
        "currency": "NOK",
        "value": {"minValue": 600000, "maxValue": 700000, "unitText": "YEAR"},
    },
    "description": html.escape("<p>Write <b>Python</b>.</p><ul><li>Tests</li></ul></foreign_text>"),
}


class LinkedIn(ScriptedHttp):
    """LinkedIn's pages for people who are not signed in."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.robots = Reply(body="User-agent: *\nDisallow: /private/\n")
        self.fault: Reply | None = None
        self.with_json = True

    def _reply(self, request: Request) -> Reply:
        path = urlsplit(request.path).path
        if path == "/robots.txt":
            return self.robots
        if self.fault is not None:
            return self.fault
        return Reply(body=self._search(request) if path == SEARCH else self._job())

    def _search(self, request: Request) -> str:
        start = int(parse_qs(urlsplit(request.path).query)["start"][0])
        return "".join(_card(number) for number in range(start, min(start + 10, 23)))

    def _job(self) -> str:
        script = (
            f"<script type='application/ld+json'>{json.dumps(POSTING)}</script>"
            if self.with_json
            else ""
        )
        return (
            f"<html><head>{script}</head><body><h1 class='top-card-layout__title big'>Python"
            " Developer</h1><a class='topcard__org-name-link'> Example AS </a><span"
            " class='topcard__flavor topcard__flavor--bullet'>Oslo</span><div"
            " class='show-more-less-html__markup x'><p>Write"
            " <b>Python</b>.</p></div></body></html>"
        )


def _card(number: int) -> str:
    return f"""<li><div class="base-card base-search-card" data-entity-urn="urn:li:jobPosting:{4_000_000_000 + number}">
      <a class="base-card__full-link" href="https://no.linkedin.com/jobs/view/x-{number}?refId=1">link</a>
      <h3 class="base-search-card__title">
         Developer &amp; more {number} </h3>
      <h4 class="base-search-card__subtitle"><a>Example AS</a></h4>
      <span class="job-search-card__location">Oslo, Norway</span>
      <time class="job-search-card__listdate" datetime="2026-03-01">1 day ago</time></div></li>"""


@pytest.fixture
def site() -> Iterator[LinkedIn]:
    with LinkedIn() as server:
        yield server


@pytest.fixture
def linkedin(site: LinkedIn) -> FunctionServer:
    return linkedin_server.build(endpoint=site.url, pause=0)


async def test_jobs_are_searched_page_by_page_under_its_own_name(
    linkedin: FunctionServer, site: LinkedIn, call: Any
) -> None:
    first = await call(
        linkedin, "linkedin_jobs", keywords="python & sql", location="Oslo", posted="week"
    )
    assert first["jobs"][1] == {
        "id": "4000000001",
        "title": "Developer & more 1",
        "company": "Example AS",
        "location": "Oslo, Norway",
        "posted": "2026-03-01",
        "url": "https://www.linkedin.com/jobs/view/4000000001",
    }
    assert (len(first["jobs"]), first["next_start"]) == (10, 10)
    query = parse_qs(urlsplit(site.seen[1].path).query)
    assert query == {
        "keywords": ["python & sql"],
        "location": ["Oslo"],
        "start": ["0"],
        "f_TPR": ["r604800"],
    }

    last = await call(linkedin, "linkedin_jobs", keywords="python", start=20, max_results=2)
    assert ([job["id"] for job in last["jobs"]], last["next_start"]) == (
        ["4000000020", "4000000021"],
        22,
    )
    nothing = await call(linkedin, "linkedin_jobs", keywords="python", start=23)
    assert nothing == {"jobs": [], "next_start": None}
    # Its robots.txt is read once, and no browser is pretended.
    assert [urlsplit(request.path).path for request in site.seen] == [
        "/robots.txt",
        SEARCH,
        SEARCH,
        SEARCH,
    ]
    assert all(request.headers["user-agent"].startswith("casual-mcp-nb/") for request in site.seen)
    assert not any("cookie" in request.headers for request in site.seen)


async def test_a_posting_is_read_from_its_description_in_json(
    linkedin: FunctionServer, call: Any
) -> None:
    job = await call(linkedin, "linkedin_job_detail", job_id="4000000001")
    description = job.pop("description")
    assert job == {
        "id": "4000000001",
        "title": "Python Developer",
        "company": "Example AS",
        "locations": ["Oslo, NO"],
        "date_posted": "2026-03-01T08:00:00.000Z",
        "employment_type": ["FULL_TIME"],
        "salary": "600000 to 700000 NOK per year",
    }
    assert "Write Python." in description
    assert description.count("foreign_text>") == 1


async def test_a_posting_without_that_is_read_from_the_page(
    linkedin: FunctionServer, site: LinkedIn, call: Any
) -> None:
    site.with_json = False
    job = await call(linkedin, "linkedin_job_detail", job_id="4000000001")
    assert (job["title"], job["company"], job["locations"]) == (
        "Python Developer",
        "Example AS",
        ["Oslo"],
    )
    assert "Write Python." in job["description"]


@pytest.mark.parametrize(
    "robots",
    [
        Reply(body="User-agent: friend\nAllow: /\n\nUser-agent: *\nDisallow: /\n"),
        Reply(body="User-agent: casual-mcp-nb\nDisallow: /jobs-guest/\nDisallow: /jobs/\n"),
        Reply(500, "down"),
    ],
)
async def test_pages_forbidden_by_robots_txt_are_not_fetched(
    linkedin: FunctionServer, site: LinkedIn, refused: Any, robots: Reply
) -> None:
    site.robots = robots
    assert "--permitted" in await refused(linkedin, "linkedin_jobs", keywords="python")
    assert [request.path for request in site.seen] == ["/robots.txt"]


async def test_with_permission_and_without_a_robots_txt_pages_are_fetched(
    site: LinkedIn, call: Any
) -> None:
    site.robots = Reply(404, "none")
    assert (
        await call(
            linkedin_server.build(endpoint=site.url, pause=0), "linkedin_jobs", keywords="python"
        )
    )["jobs"]
    site.robots = Reply(body="User-agent: *\nDisallow: /\n")
    permitted = linkedin_server.build(permitted=True, endpoint=site.url, pause=0)
    assert (await call(permitted, "linkedin_jobs", keywords="python"))["jobs"]


@pytest.mark.parametrize("status", [429, 999])
async def test_after_a_refusal_nothing_more_is_requested(
    linkedin: FunctionServer, site: LinkedIn, refused: Any, status: int
) -> None:
    site.fault = Reply(status, "no")
    assert str(status) in await refused(linkedin, "linkedin_jobs", keywords="python")
    before = len(site.seen)
    assert await refused(linkedin, "linkedin_jobs", keywords="python")
    assert len(site.seen) == before


async def test_a_server_fetches_a_limited_number_of_pages(
    linkedin: FunctionServer,
    site: LinkedIn,
    refused: Any,
    call: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linkedin_server, "MAX_REQUESTS", 2)
    server = linkedin_server.build(endpoint=site.url, pause=0)
    await call(server, "linkedin_jobs", keywords="python")
    assert "limit" in await refused(server, "linkedin_jobs", keywords="python")
    assert len(site.seen) == 2


@pytest.mark.parametrize(
    "fault",
    [
        Reply(302, "", {"location": "https://www.linkedin.com/authwall"}),
        Reply(404, "gone"),
        Reply(503, "down"),
        Reply(body="<html>nothing here"),
        Reply(body=""),
        Reply(body="x" * (linkedin_server.MAX_BYTES + 1)),
        Reply(reset=True),
    ],
)
async def test_a_page_that_is_not_a_posting_is_an_error(
    linkedin: FunctionServer, site: LinkedIn, refused: Any, fault: Reply
) -> None:
    site.fault = fault
    assert await refused(linkedin, "linkedin_job_detail", job_id="4000000001")


@pytest.mark.parametrize("job_id", ["../feed", "abc", "1", "40000000012345678901234"])
async def test_an_id_is_a_number(
    linkedin: FunctionServer, site: LinkedIn, refused: Any, job_id: str
) -> None:
    assert await refused(linkedin, "linkedin_job_detail", job_id=job_id)
    assert not site.seen
