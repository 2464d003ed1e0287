"""Every module, name, parameter and result of casual-mcp 1.0 is here, or in the guide's table of
intended differences.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from casual_mcp_nb import (
    Config,
    RemoteServerConfig,
    StdioServerConfig,
    TokenUsageStats,
    ToolSpec,
    load_config,
)
from casual_mcp_nb.base.config import ServerConfig
from tests.cli.conftest import Run
from tests.cli.conftest import run as run_fixture

from .describe_package import described_module, described_results, write_config

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / ".third-party" / "casual-mcp" / "bin" / "python"
GUIDE = ROOT / "docs" / "guides" / "coming-from-casual-mcp.md"
PACKAGE = "casual_mcp_nb"

run = run_fixture
SNIPPETS = ("test_coming_from_casual_mcp", "describe_package")
READ = ("property", "field")
EMPTY = {"()": "<factory>"}
"""An empty tuple is what an empty list is there."""

pytestmark = [
    pytest.mark.defect("H3"),
    pytest.mark.defect("L3"),
    pytest.mark.skipif(
        not PEER.exists(), reason="python3 .ci/third_party.py casual-mcp installs it"
    ),
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The public names of casual-mcp 1.0.0, as its own Python sees them."""
    script = Path(__file__).with_name("describe_package.py")
    environ = {**os.environ, "LOG_LEVEL": "ERROR", "OPENAI_API_KEY": "sk-local"}
    folder = tmp_path_factory.mktemp("peer")
    done = subprocess.run(
        [PEER, "-B", script, "casual_mcp"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


def on_purpose() -> set[str]:
    """The intended differences in the guide: the code in the first column of that table."""
    text = GUIDE.read_text(encoding="utf-8")
    table = text.partition("## Names that differ on purpose\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert all(len(row.strip("|").split(" | ")) == 2 for row in rows), (
        "each row has a name and a reason"
    )
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def differences(theirs: dict[str, Any]) -> Iterator[str]:
    """Find missing and different modules, names, members, parameters, defaults, fields and
    kinds.
    """
    for module, names in theirs["modules"].items():
        try:
            ours = described_module(PACKAGE, module, names)
        except ModuleNotFoundError:
            yield f"{module}.*"
            continue
        for name, there in names.items():
            key = f"{module}.{name}" if module in ("cli", "main") else name
            yield from differs(key, there, ours.get(name))


def differs(key: str, there: dict[str, Any], here: dict[str, Any] | None) -> Iterator[str]:
    """Yield how one name differs."""
    same_kind = here is not None and (
        here["kind"] == there["kind"] or {here["kind"], there["kind"]} <= {*READ}
    )
    if here is None or not same_kind or here.get("async") != there.get("async"):
        yield key
        return
    if not set(there.get("bases", ())) <= set(here.get("bases", ())):
        yield f"{key} bases"
    yield from parameters_that_differ(key, there.get("parameters", {}), here.get("parameters", {}))
    for field in there.get("fields", ()):
        if field not in here["fields"] and field not in here["members"]:
            yield f"{key}.{field}"
    for member, what in there.get("members", {}).items():
        yield from differs(f"{key}.{member}", what, here["members"].get(member))


def parameters_that_differ(key: str, there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """Yield the parameters that cannot be passed as there, or are something else if they are not
    passed.
    """
    for position, (name, parameter) in enumerate(there.items()):
        ours = here.get(name)
        by_position = parameter["kind"] == "POSITIONAL_OR_KEYWORD"
        same_position = (
            ours is not None
            and ours["kind"] == parameter["kind"]
            and list(here).index(name) == position
        )
        if (
            ours is None
            or (by_position and not same_position)
            or (ours["default"] is None and parameter["default"] is not None)
        ):
            yield f"{key}({name})"
        elif parameter["default"] is not None and parameter["default"] not in (
            ours["default"],
            EMPTY.get(ours["default"]),
        ):
            yield f"{key}({name}={parameter['default']})"


def covers(there: Any, here: Any) -> bool:
    """Check whether a result has at least everything that the other one has."""
    if isinstance(there, dict) and isinstance(here, dict):
        if set(there) & {"object", "raises"}:
            ((names, ours),) = ((there[kind], here.get(kind, ())) for kind in there)
            return set(names) - {"namespace_tools"} <= set(ours)
        return all(key in here and covers(each, here[key]) for key, each in there.items())
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(map(covers, there, here))
    return bool(there == here)


@pytest.mark.slow
def test_every_name_is_here_or_the_guide_says_why_not(theirs: dict[str, Any]) -> None:
    assert len(theirs["modules"]) == 21
    differing = set(differences(theirs))
    documented = on_purpose()
    covered = {
        each
        for each in differing
        if each in documented or f"{each.partition('.')[0]}.*" in documented
    }
    assert differing - covered == set(), "neither here nor in the guide"
    assert "main.app" not in differing
    stale = {
        each
        for each in documented
        if each not in differing and not (each.endswith(".*") and covered)
    }
    assert stale == set(), "in the guide, but not different"


def test_each_way_that_its_guides_name_is_gone_here(theirs: dict[str, Any]) -> None:
    """Each public name is used in a snippet, here or in `describe_package`, unless it differs on
    purpose.
    """
    used = "".join(
        (Path(__file__).with_name(f"{name}.py")).read_text(encoding="utf-8") for name in SNIPPETS
    )
    named = {
        each
        for module, names in theirs["modules"].items()
        for name, what in names.items()
        if module not in ("cli", "main")
        for each in (name, *what.get("members", ()))
    }
    assert len(named) > 60
    assert {name for name in named - on_purpose() if not re.search(rf"\b{name}\b", used)} == set()


def test_the_same_calls_return_the_same_kinds_and_fields(
    theirs: dict[str, Any], tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        ours = json.loads(json.dumps(asyncio.run(described_results(PACKAGE, tmp_path))))
    assert set(ours) == set(theirs["results"])
    assert {
        name: ours[name]
        for name, there in theirs["results"].items()
        if not covers(there, ours[name])
    } == {}


@pytest.mark.defect("L2")
def test_every_dump_of_a_config_loads(theirs: dict[str, Any]) -> None:
    assert {dump["tool_discovery"] is None for dump in theirs["dumps"]} == {True, False}
    for dump in theirs["dumps"]:
        for config in (load_config(dump), Config.model_validate(dump), Config(**dump)):
            assert set(config.servers) == set(dump["servers"])
            assert config.tool_discovery.enabled == bool(
                (dump["tool_discovery"] or {}).get("enabled")
            )


def test_a_command_prints_the_same_as_casual_mcps(
    theirs: dict[str, Any], tmp_path: Path, run: Run
) -> None:
    write_config(tmp_path)
    (tmp_path / "nowhere").mkdir()
    assert len(theirs["commands"]) == 12
    for name, (exit_code, cells) in theirs["commands"].items():
        folder, command = name.split("/")
        trust = ["--trust"] if command in ("servers", "tools") else []
        with contextlib.chdir(tmp_path / folder):
            code, out, err = run(command, *trust)
            plain = run(command, "--json", *trust)[1]
        assert code == exit_code, (name, err)
        printed = f"{out}{plain}"
        # Where a server is, and what it costs, is what `servers` is about here: it starts them.
        stable = [cell.removesuffix(".0") for cell in cells if "server.py" not in cell]
        assert [cell for cell in stable if cell not in printed] == [], name
        assert bool(cells) == (folder == ""), name
    assert "migrate-config" in err or "casual_mcp_config.json" in err


@pytest.mark.defect("L6")
def test_the_guide_lists_the_differences_of_each_command(theirs: dict[str, Any]) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("## The command line\n")[2]
    commands = {name.partition("/")[2] for name in theirs["commands"]}
    assert commands == {"clients", "models", "servers", "tools"}
    documented = {
        name
        for line in text.splitlines()
        for name in re.findall(r"`([\w-]+)", line.split("|")[1] if "|" in line else "")
    }
    assert {*commands, "toolsets", "migrate-config", "serve"} <= documented
    named = {
        name.partition(".")[2].replace("_", "-")
        for name in differences({"modules": {"cli": theirs["modules"]["cli"]}})
    }
    libraries = {"app", "console", "get-tools-and-cleanup", "run-async-with-cleanup"}
    assert named - libraries <= documented, "a command of casual-mcp that the guide does not name"


@pytest.mark.defect("L6")
def test_the_values_in_the_guide_are_correct(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path))
    server = config.servers["sums"]
    assert isinstance(server.args, tuple)
    assert [isinstance(server, kind) for kind in (StdioServerConfig, RemoteServerConfig)] == [
        True,
        False,
    ]
    assert [
        isinstance(ServerConfig(url="http://127.0.0.1:9"), kind)
        for kind in (StdioServerConfig, RemoteServerConfig)
    ] == [
        False,
        True,
    ]
    assert not isinstance(ServerConfig(bundled="math"), StdioServerConfig | RemoteServerConfig)
    with pytest.raises(ValidationError):
        server.defer_loading = False
    assert TokenUsageStats().total_tokens is None
    assert ToolSpec("math", "add").wire_name == "math__add"
    assert not config.tool_discovery.enabled
