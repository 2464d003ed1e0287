"""Servers that are found by a domain or in a registry, and accepted before anything of them is
contacted or started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import Kernel, started_kernel
from kit.lean import lean
from kit.sites import CATALOG, Site, package

from casual_mcp_nb import Session, TrustRequiredError
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.errors import ConfigError, UsageError


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        site.list_card()
        yield site


@pytest.fixture
def session(site: Site) -> Iterator[Session]:
    with Session({"registry": site.url}) as session:
        yield session


@pytest.mark.slow
@pytest.mark.kernel
def test_a_catalog_is_connected_by_its_domain_and_asked_about_once(
    site: Site, tmp_path: Path
) -> None:
    with started_kernel(**lean(), XDG_CONFIG_HOME=str(tmp_path)) as kernel:
        kernel.printed("%load_ext casual_mcp_nb")
        connect = f"%mcp connect {site.host}"
        assert f"{site.url}/mcp" in kernel.printed(f"%mcp find {site.host}")
        assert kernel.run("%mcp accounts").status == "ok"
        refused, (question,) = kernel.typed(connect, "")
        assert (refused.status, site.received("initialize"), site.received("server/discover")) == (
            "error",
            [],
            [],
        )
        assert f"{site.url}/mcp" in question
        assert f"{site.url}/weather/server-card" in question
        accepted, prompts = kernel.typed(connect, "y")
        assert (accepted.status, len(prompts)) == ("ok", 1)
        assert (
            kernel.printed(
                "print(session.servers['weather'].state, *(tool.name for tool in session.tools))"
            )
            == "ready a"
        )
        again, prompts = kernel.typed(connect)
        assert (again.status, prompts) == ("ok", [])
        # Where nobody can be asked, what was accepted starts, and what was not does not.
        assert kernel.run(connect).status == "ok"
        site.documents["/weather/server-card"]["remotes"][0]["url"] = f"{site.url}/other"
        assert kernel.run(connect).status == "error"
        _added_from_the_registry(kernel, site)


def _added_from_the_registry(kernel: Kernel, site: Site) -> None:
    variables = [{"name": "WEATHER_KEY", "isRequired": True, "isSecret": True}]
    site.register(packages=[package("npm", "weather", environmentVariables=variables)])
    kernel.printed(
        "from casual_mcp_nb import Session\nsession.close()\nsession = Session({'registry':"
        f" {site.url!r}}})"
    )
    ran, prompts = kernel.typed("%mcp add io.github.user/weather", "y", "a-key-0123456789")
    assert len(prompts) == 2, ran.text()
    assert "npx" in prompts[0]
    assert "weather@1.2.0" in prompts[0]
    assert "WEATHER_KEY" in prompts[0]
    assert "a-key-0123456789" not in ran.text() + json.dumps(ran.messages, default=str)


@pytest.mark.usefixtures("asks_first")
def test_nothing_is_contacted_where_nobody_can_be_asked(site: Site, session: Session) -> None:
    with pytest.raises(TrustRequiredError) as raised:
        session.servers.add(None, site.host)
    assert f"{site.url}/mcp" in str(raised.value)
    assert site.asked == [CATALOG, "/weather/server-card"]
    assert "weather" not in session.servers


@pytest.mark.usefixtures("asks_first")
def test_found_servers_are_listed_and_added_in_python(site: Site, session: Session) -> None:
    found = session.servers.find(site.host)
    assert "com.example/weather" in repr(found[0])
    assert f"{site.url}/mcp" in str(found)
    status = session.servers.add("mine", found[0], trust=True)
    assert status.state == "ready", status.error
    assert session.servers.add(None, site.host, trust=True).name == "weather"
    # That was for once.
    with pytest.raises(TrustRequiredError):
        session.servers.add(None, found[0])
    with pytest.raises(TrustRequiredError):
        Session.quick(None, [site.host])


@pytest.mark.usefixtures("asks_first")
def test_an_address_without_a_catalog_is_connected_as_before(session: Session) -> None:
    with Site() as plain:
        plain.documents["/"] = plain.documents["/x"] = {}
        status = session.servers.add("plain", plain.url)
        assert plain.asked[0] == CATALOG
        assert status.state in ("ready", "failed")
        with pytest.raises(UsageError):
            session.servers.add("plain-2", plain.host)


@pytest.mark.usefixtures("asks_first")
def test_a_missing_value_is_named(site: Site, session: Session) -> None:
    variables = [{"name": "WEATHER_KEY", "isRequired": True}]
    site.register(packages=[package("npm", "weather", environmentVariables=variables)])
    with pytest.raises(ConfigError, match="WEATHER_KEY"):
        session.servers.add(None, "io.github.user/weather", trust=True)


def test_a_shell_lists_what_a_domain_has(
    site: Site, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["find", site.host, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["entry"]["url"]) for row in rows] == [
        ("com.example/weather", f"{site.url}/mcp")
    ]
    Path("casual_mcp_config.json").write_text(json.dumps({"registry": site.url}))
    site.register(packages=[package("npm", "weather")])
    assert main(["find", "io.github.user/weather"]) == 0
    assert "npx -y weather@1.2.0" in capsys.readouterr().out
    assert main(["find", "io.github.user/other"]) != 0
