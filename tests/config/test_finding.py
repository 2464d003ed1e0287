"""Servers that a domain's catalog or a registry lists: what is made of them, and what hostile ones
cannot do.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kit.scripted_http import Reply
from kit.sites import CATALOG, Site, package

from casual_mcp_nb.config import finding, registry_entry
from casual_mcp_nb.config.finding import FoundServers, FoundTrust, is_findable, look_up
from casual_mcp_nb.config.registry_entry import FoundServer
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def found(site: Site, target: str | None = None) -> FoundServers:
    return asyncio.run(look_up(target or site.host, site.url))


def listed(site: Site, **remote: Any) -> FoundServer:
    site.list_card(remotes=[{"type": "streamable-http", "url": f"{site.url}/mcp", **remote}])
    return found(site)[0]


def registered(site: Site, **fields: Any) -> FoundServer:
    site.register(**fields)
    return found(site, "io.github.user/weather")[0]


@pytest.mark.parametrize(
    ("text", "findable"),
    [
        ("resend.com", True),
        ("resend.com emails", True),
        ("https://resend.com", True),
        ("https://resend.com/", True),
        ("localhost:8000", True),
        ("io.github.user/weather", True),
        ("io.github.user/weather@1.0.0", True),
        ("https://resend.com/mcp", False),
        ("http://resend.com", False),
        ("npx -y server", False),
        ("npx", False),
        ("time", False),
        ("server.py", False),
        ("config.json", False),
        ("./server.py", False),
        ("docs/server", False),
        ("@scope/server", False),
        ("file:///etc/passwd", False),
        ("resend.com a b", False),
    ],
)
def test_a_domain_or_a_name_of_the_registry_is_looked_up_and_nothing_else(
    text: str, findable: bool
) -> None:
    assert is_findable(text) is findable


def test_a_file_is_never_looked_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resend.com").write_text("")
    assert not is_findable("resend.com")


def test_a_catalog_is_followed_to_its_cards_and_no_further(site: Site) -> None:
    site.list_card()
    site.documents[CATALOG]["entries"].append(
        {"identifier": "urn:air:x:y", "type": "application/a2a-agent-card+json", "url": "/a"}
    )
    servers = found(site)
    assert [(each.name, each.way, each.entry) for each in servers] == [
        ("com.example/weather", "http", {"url": f"{site.url}/mcp", "auth": "oauth"})
    ]
    assert site.asked == [CATALOG, "/weather/server-card"]
    assert "application/mcp-server-card+json" in site.seen[1].headers["accept"]
    assert len(servers.notes) == 1


def test_the_catalog_of_the_drafts_is_read_where_there_is_no_other(site: Site) -> None:
    site.list_card()
    site.documents["/.well-known/mcp/catalog.json"] = site.documents.pop(CATALOG)
    assert found(site).choose().name == "com.example/weather"


def test_a_server_is_chosen_by_name_and_a_way_by_its_kind(site: Site) -> None:
    site.list_card()
    site.list_card("com.example/mail")
    with pytest.raises(UsageError, match="mail"):
        found(site).choose()
    assert found(site).choose("mail").name == "com.example/mail"
    with pytest.raises(UnknownNameError):
        found(site).choose("maill")
    site.register(
        remotes=[{"type": "streamable-http", "url": f"{site.url}/mcp"}],
        packages=[package("npm", "@user/weather")],
    )
    both = found(site, "io.github.user/weather")
    assert [both.choose().way, both.choose("npm").way] == ["http", "npm"]


@pytest.mark.parametrize(
    ("described", "command"),
    [
        (package("npm", "@user/weather"), ["npx", "-y", "@user/weather@1.2.0"]),
        (package("pypi", "weather-server"), ["uvx", "weather-server==1.2.0"]),
        (
            package("oci", "ghcr.io/user/weather"),
            ["docker", "run", "-i", "--rm", "ghcr.io/user/weather:1.2.0"],
        ),
        (
            package("oci", "docker.io/user/weather:2.0", version=None),
            ["docker", "run", "-i", "--rm", "docker.io/user/weather:2.0"],
        ),
    ],
)
def test_a_package_becomes_the_command_of_its_kind(
    site: Site, described: dict[str, Any], command: list[str]
) -> None:
    arguments = [
        {"type": "positional", "value": "serve"},
        {"type": "named", "name": "--units", "default": "metric"},
        {"type": "positional", "valueHint": "folder"},
    ]
    server = registered(site, packages=[{**described, "packageArguments": arguments}])
    assert [server.entry["command"], *server.entry["args"]] == [
        *command,
        "serve",
        "--units",
        "metric",
    ]
    assert server.problem == ""


def test_required_values_are_named_and_taken_from_the_environment(site: Site) -> None:
    variables = [
        {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True},
        {"name": "LEVEL", "default": "${HOME}"},
    ]
    server = registered(
        site, packages=[package("oci", "user/weather", environmentVariables=variables)]
    )
    assert server.needs == ("WEATHER_KEY",)
    assert server.entry["args"][3:7] == ["-e", "WEATHER_KEY", "-e", "LEVEL"]
    trust = FoundTrust(server, "weather")
    with pytest.raises(ConfigError, match="WEATHER_KEY"):
        trust.config({})
    env = trust.config({"WEATHER_KEY": "k-0123456789", "HOME": "/root"}).servers["weather"].env
    # What a registry writes refers to nothing in the environment.
    assert {name: value.get_secret_value() for name, value in env.items()} == {
        "WEATHER_KEY": "k-0123456789",
        "LEVEL": "${HOME}",
    }


def test_headers_and_variables_of_an_address_are_filled_in(site: Site) -> None:
    server = listed(
        site,
        url=f"{site.url}/{{tenant}}/mcp?a=${{HOME}}",
        variables={"tenant": {"isRequired": True}},
        headers=[
            {
                "name": "Authorization",
                "value": "Bearer {key}",
                "variables": {"key": {"isSecret": True}},
                "isRequired": True,
            },
            {"name": "X-Region", "default": "eu"},
            {"name": "X-Optional"},
        ],
    )
    assert server.needs == ("WEATHER_TENANT", "WEATHER_KEY")
    config = (
        FoundTrust(server, "w")
        .config({"WEATHER_TENANT": "acme", "WEATHER_KEY": "k-0123456789", "HOME": "/root"})
        .servers["w"]
    )
    assert config.url == f"{site.url}/acme/mcp?a=${{HOME}}"
    headers = {name: value.get_secret_value() for name, value in config.headers.items()}
    assert headers == {"Authorization": "Bearer k-0123456789", "X-Region": "eu"}


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://example.com/mcp",
        "https://10.0.0.1/mcp",
        "https://169.254.169.254/latest",
        "https://user:password@example.com/mcp",
        "https://{host}/mcp",
        "https://example.com{path}",
        "https://service.internal/mcp",
        "https://2130706433/mcp",
        "https://example.com/a b",
        "https://[::1",
        "javascript:alert(1)",
    ],
)
def test_an_address_that_a_card_may_not_name_cannot_be_added(site: Site, url: str) -> None:
    server = listed(site, url=url)
    assert server.problem
    assert not server.entry
    with pytest.raises(UsageError):
        found(site).choose()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_what_is_public_cannot_name_this_computer(host: str) -> None:
    card = {
        "name": "com.example/weather",
        "remotes": [{"type": "streamable-http", "url": f"https://{host}:9/mcp"}],
    }
    (server,) = registry_entry.servers_of(
        card, "https://example.com/card", "https://example.com/catalog", False
    )
    assert server.problem


@pytest.mark.parametrize(
    ("source", "public"), [("https://example.com/card", True), ("http://localhost:9/card", False)]
)
def test_a_server_found_elsewhere_has_to_be_public_and_one_found_here_need_not(
    source: str, public: bool
) -> None:
    server = FoundServer("com.example/w", source, "http", entry={"url": "https://w.example/mcp"})
    assert FoundTrust(server, "w").entry({}).is_found is public


def test_an_address_on_another_host_is_shown_as_such(site: Site) -> None:
    here, elsewhere = listed(site), listed(site, url="https://mcp.elsewhere.example/mcp")
    assert here.notes == ()
    elsewhere = found(site)[1] if not elsewhere.notes else elsewhere
    assert "mcp.elsewhere.example" in elsewhere.notes[0]
    assert elsewhere.notes[0] in FoundTrust(elsewhere, "weather").question


@pytest.mark.parametrize(
    "described",
    [
        package("npm", "--call=rm -rf ~"),
        package("npm", "weather; rm -rf ~"),
        package("npm", "file:/tmp/evil"),
        package("npm", "https://evil.example/x.tgz"),
        package("npm", "weather", version="1.0.0 --registry=https://evil.example"),
        package("npm", "weather", registryBaseUrl="https://evil.example"),
        package("pypi", "-r /etc/passwd"),
        package("pypi", "weather @ git+https://evil.example"),
        package("oci", "-v /:/host evil"),
        package("oci", "--privileged"),
        package(
            "oci",
            "user/weather",
            runtimeArguments=[{"type": "named", "name": "-v", "value": "/:/host"}],
        ),
        package(
            "npm",
            "weather",
            environmentVariables=[{"name": "NPM_CONFIG_REGISTRY", "value": "https://evil.example"}],
        ),
        package(
            "npm",
            "weather",
            environmentVariables=[{"name": "NODE_OPTIONS", "value": "--require /tmp/x.js"}],
        ),
        package("npm", "weather", environmentVariables=[{"name": "PATH", "value": "/tmp"}]),
        package("npm", "weather", environmentVariables=[{"name": "A=B", "value": "1"}]),
        package("npm", "weather", packageArguments=[{"type": "positional", "value": "a\nb"}]),
        package("mcpb", "https://example.com/x.mcpb"),
        package(
            "npm", "weather", transport={"type": "streamable-http", "url": "http://localhost:1/mcp"}
        ),
        {"registryType": ["npm"], "identifier": {"a": 1}},
    ],
)
def test_a_package_that_would_run_something_else_cannot_be_added(
    site: Site, described: dict[str, Any]
) -> None:
    server = registered(site, packages=[described])
    assert server.problem
    assert not server.entry


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b"{" + b" " * finding.MAX_CATALOG_BYTES + b"}"),
        Reply(body=b"[" * 100_000),
        Reply(body=b"not json"),
        Reply(body=b"[]"),
        Reply(body={"entries": {}}),
        Reply(500),
        Reply(302, headers={"location": "file:///etc/passwd"}),
        Reply(302, headers={"location": "http://10.0.0.1/"}),
        Reply(302, headers={"location": CATALOG}),
    ],
)
def test_a_catalog_that_cannot_be_read_is_an_error(site: Site, reply: Reply) -> None:
    site.documents[CATALOG] = reply
    with pytest.raises(UsageError):
        found(site)
    assert len(site.seen) <= 8


def test_a_catalog_is_bounded_and_its_texts_are_cleaned(site: Site) -> None:
    for number in range(finding.MAX_CARDS + 5):
        site.list_card(f"com.example/s{number}", description="a\u202eb\x1b[31m\n" + "x" * 10_000)
    entries = site.documents[CATALOG]["entries"]
    entries[0]["url"], entries[1]["url"], entries[2]["url"] = (
        5,
        "http://10.0.0.1/card",
        "file:///etc/passwd",
    )
    entries[3]["displayName"] = "evil\u202e\nname"
    servers = found(site)
    assert len(servers) == finding.MAX_CARDS
    assert [bool(each.problem) for each in servers[:4]] == [True, True, True, False]
    assert len(site.seen) <= finding.MAX_CARDS + 1
    for server in servers:
        assert server.description.isprintable()
        assert len(server.description) <= 300


@pytest.mark.parametrize(
    "name",
    ["no-slash", "a/b/c", "com.example/a b", "com.example/\u202e", "x" * 300, None, 5, ["a/b"]],
)
def test_a_card_without_a_valid_name_cannot_be_added(site: Site, name: Any) -> None:
    site.list_card(**{"title": "t"})
    site.documents["/weather/server-card"]["name"] = name
    assert found(site)[0].problem


def test_a_name_that_the_registry_does_not_have_is_an_error(site: Site) -> None:
    with pytest.raises(UsageError):
        found(site, "io.github.user/weather")
    site.register()
    site.documents["/v0/servers/io.github.other%2Fweather/versions/latest"] = next(
        iter(site.documents.values())
    )
    with pytest.raises(UsageError, match="another server"):
        found(site, "io.github.other/weather")


def test_a_version_and_words_are_asked_of_the_registry(site: Site) -> None:
    site.register(version="1.0.0", packages=[package("npm", "weather", version="1.0.0")])
    assert found(site, "io.github.user/weather@1.0.0").choose().entry["args"] == [
        "-y",
        "weather@1.0.0",
    ]
    row = {"server": {"name": "io.github.user/w", "packages": [package("pypi", "w")]}}
    site.documents["/v0/servers?search=rain%20%26%20x&version=latest&limit=20"] = {
        "servers": [row, 5]
    }
    assert [each.name for each in found(site, "rain & x")] == ["io.github.user/w"]


def test_a_deleted_server_cannot_be_added_and_a_deprecated_one_says_so(site: Site) -> None:
    key = "io.modelcontextprotocol.registry/official"
    site.register(packages=[package("npm", "weather")])
    document = next(iter(site.documents.values()))
    document["_meta"] = {key: {"status": "deprecated"}}
    assert "deprecated" in found(site, "io.github.user/weather")[0].notes[0]
    document["_meta"] = {key: {"status": "deleted"}}
    assert found(site, "io.github.user/weather")[0].problem


@pytest.mark.usefixtures("asks_first")
def test_what_was_accepted_is_remembered_until_it_changes(site: Site) -> None:
    first = listed(site)
    assert FoundTrust(first, "weather").report().required
    FoundTrust(first, "weather").report().accept()
    assert not FoundTrust(found(site)[0], "weather").report().required
    site.documents["/weather/server-card"]["remotes"] = [
        {"type": "streamable-http", "url": f"{site.url}/other"}
    ]
    changed = FoundTrust(found(site)[0], "weather").report()
    assert (changed.required, changed.entries[0].changed) == (True, ("address",))


def test_the_stored_answer_has_no_secret(site: Site, asks_first: Any) -> None:
    server = registered(
        site,
        packages=[
            package("npm", "w", environmentVariables=[{"name": "W_KEY", "isRequired": True}])
        ],
    )
    FoundTrust(server, "w").report().accept()
    (file,) = asks_first.iterdir()
    assert json.loads(file.read_text())["found"].startswith("io.github.user/weather of ")
    assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600
