"""The wheel, built and looked at from outside: by a type checker that sees it as an installed
package.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = """[mypy]
strict = true
follow_imports = skip
[mypy-casual_mcp_nb.*,pydantic.*]
follow_imports = normal
"""

CALLER = """
from pathlib import Path
from casual_mcp_nb import McpToolChat, Session, Turn, load_config

reveal_type(Session.demo().chat("hello"))
reveal_type(load_config(Path("c.json")).servers["a"].command)

def text(turn: Turn) -> str:
    return turn.answer

async def ask(chat: McpToolChat) -> None:
    reveal_type(await chat.chat("hello"))
"""

MISTAKE = """
from casual_mcp_nb import load_config, load_configs

load_config(17)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the dependency group dev brings it")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def outside(wheel: Path) -> Path:
    """A clean environment that holds nothing but the wheel, and sees the libraries that it
    needs.
    """
    return installed(wheel, "everything", site.getsitepackages())


@pytest.fixture(scope="module")
def bare(wheel: Path) -> Path:
    """A clean environment with the wheel and its required dependencies, without any extra."""
    base = ROOT / ".third-party" / "base"
    python = (
        "Lib" if os.name == "nt" else f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    )
    libraries = base / python / "site-packages"
    if not ((base / "installed").is_file() and libraries.is_dir()):
        pytest.skip(
            ".third-party/base is missing for this Python: `python3 .ci/third_party.py` installs it"
        )
    return installed(wheel, "bare", [str(libraries)])


def installed(wheel: Path, name: str, libraries: list[str]) -> Path:
    """Unpack the wheel into a virtual environment that also sees these folders of packages."""
    folder = wheel.parent / name
    venv.create(folder / "venv", with_pip=False, symlinks=os.name == "posix")
    (packages,) = [path for path in (folder / "venv").rglob("site-packages") if path.is_dir()]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Only the folders themselves: what their own .pth files add, such as this checkout, stays out.
    (packages / "libraries.pth").write_text("\n".join(libraries))
    return folder


@pytest.mark.slow
@pytest.mark.defect("C18")
def test_whoever_installs_the_wheel_gets_its_types(outside: Path) -> None:
    done = checked(outside, caller=CALLER, mistake=MISTAKE)
    revealed = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == 3, done.stdout + done.stderr
    assert revealed[0] == "casual_mcp_nb.conversation.turn.Turn"
    assert revealed[1] in ("str | None", "builtins.str | None")
    assert "Any" not in revealed[2].split("[")[0]
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [(line.split(":")[0], line.rpartition(" ")[2]) for line in errors] == [
        ("mistake.py", "[attr-defined]"),
        ("mistake.py", "[arg-type]"),
    ]
    assert done.returncode == 1


@pytest.mark.defect("C18")
def test_the_wheel_runs_without_the_checkout(outside: Path) -> None:
    code = (
        "import casual_mcp_nb, pathlib; print(casual_mcp_nb.__file__);"
        " print(casual_mcp_nb.Session.demo().models.templates())"
    )
    done = subprocess.run(
        [python(outside), "-c", code],
        cwd=outside,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(outside) in done.stdout
    assert "default" in done.stdout


@pytest.mark.slow
@pytest.mark.defect("F25")
def test_what_pip_installs_by_itself_runs_the_demo(bare: Path) -> None:
    command = [
        python(bare),
        "-m",
        "casual_mcp_nb",
        "demo",
        "What time is it in Tokyo when it is 14:30 in Oslo?",
        "--json",
    ]
    done = subprocess.run(
        command, cwd=bare, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "22:30" in done.stdout
    # The one server that needs more says which line installs it; the others are ready.
    failed = [line for line in done.stderr.splitlines() if ": failed " in line]
    assert [line.partition(":")[0] for line in failed] == ["units"], done.stderr
    assert 'pip install "casual-mcp-nb[bundled]"' in failed[0]


@pytest.mark.defect("F25")
def test_what_pip_installs_by_itself_is_imported_and_loaded_into_ipython(bare: Path) -> None:
    code = """
import sys
import casual_mcp_nb
from IPython.core.interactiveshell import InteractiveShell
from casual_mcp_nb.bundled import BUNDLED, available

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "casual_mcp_nb")
needing_none = {name for name, server in BUNDLED.items() if server.default and not server.extra}
assert needing_none <= available().servers.keys(), available()
print("loaded:", *sorted({name for server in BUNDLED.values() for name in server.libraries} & sys.modules.keys()))
assert "mcp" in shell.magics_manager.magics["line"]
"""
    environ = {**os.environ, "IPYTHONDIR": str(bare / "ipython")}
    command = [python(bare), "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=bare, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["loaded:"]


def python(folder: Path) -> str:
    return str(folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def checked(folder: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    # What the libraries' own types say is not what is asked here, and to read them all takes a
    # minute.
    (folder / "mypy.ini").write_text(OPTIONS)
    command = [sys.executable, "-m", "mypy", "--python-executable", python(folder)]
    command += ["--cache-dir", str(folder / "cache"), *(f"{name}.py" for name in modules)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
