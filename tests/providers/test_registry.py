"""The registry has the facts of a provider: other mentions of them agree with it, and other
packages can add to it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from casual_mcp_nb.providers.registry import GROUP, ProviderSpec, specs

ROOT = Path(__file__).resolve().parents[2]


def row(spec: ProviderSpec) -> tuple[str, ...]:
    return (
        f"`{spec.name}`",
        spec.sdk or "",
        f"`{spec.key_variable}`" if spec.key_variable else "",
        spec.about,
    )


def test_the_readme_lists_the_providers_as_they_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| provider \| extra \| key \| \|\n\|[-|]+\n((?:\|.*\n)+)", text)
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()
    ]
    assert rows == [row(spec) for spec in specs().values()]


def test_each_sdk_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {spec.sdk for spec in specs().values() if spec.sdk} <= project[
        "optional-dependencies"
    ].keys()


def test_each_provider_talks_in_the_format_of_its_name() -> None:
    assert [spec.adapter.name for spec in specs().values() if spec.adapter] == [
        s.name for s in specs().values() if s.adapter
    ]
    assert len({spec.position for spec in specs().values()}) == len(specs())


def python(code: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_the_registry_imports_no_sdk(tmp_path: Path) -> None:
    sdks = {spec.sdk for spec in specs().values() if spec.sdk} | {"casual_llm", "httpx", "fastmcp"}
    code = (
        f"from casual_mcp_nb.providers.registry import specs; specs(); print(sorted({sdks!r} &"
        " sys.modules.keys()))"
    )
    assert python(code, tmp_path) == "[]\n"


@pytest.mark.slow
def test_a_package_adds_a_provider_and_a_broken_one_takes_nothing_with_it(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text("""
from casual_mcp_nb.providers.scripted import ScriptedClient
from casual_mcp_nb.providers.registry import ProviderSpec

SPEC = ProviderSpec(name="acme", about="", build=lambda name, config: ScriptedClient(["from Acme"]), key_variable="ACME_KEY")
OFFLINE = ProviderSpec(name="offline", about="an impostor", build=None)
""")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    added = (
        "acme = acme:SPEC\nagain = acme:OFFLINE\nbroken = acme:NOTHING\nmissing ="
        " not_there:SPEC\nwrong = acme:__name__\n"
    )
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{added}")
    code = """
import asyncio
from casual_llm.messages import UserMessage
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.registry import specs
config = {"clients": {"desk": {"provider": "acme"}}, "models": {"m": {"client": "desk", "model": "m-1"}}}
config = load_config(config, environ={"ACME_KEY": "sk-of-acme"})
answer = asyncio.run(ModelFactory(config).chat_model().complete([UserMessage(content="Hi")]))
print(config.clients["desk"].key_variable, answer.message.content, list(specs())[-2:], bool(specs()["offline"].about))
print(specs()["offline"].about == "an impostor")
"""
    assert python(code, tmp_path).splitlines() == [
        "ACME_KEY from Acme ['offline', 'acme'] True",
        "False",
    ]
