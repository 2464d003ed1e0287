"""Install the third-party MCP servers that the integration tests talk to into `.third-party`: from PyPI and from npm."""

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".third-party"
PYPI = ["mcp-server-time", "mcp-server-git", "mcp-server-fetch"]
NPM = ["everything", "filesystem", "memory", "sequential-thinking"]


def main() -> None:
    python = FOLDER / "python" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        venv.create(FOLDER / "python", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PYPI], check=True)
    if not (FOLDER / "node_modules").exists():
        packages = [f"@modelcontextprotocol/server-{name}" for name in NPM]
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(FOLDER)]
        subprocess.run([*npm, *packages], check=True)
    print(f"Third-party servers are in {FOLDER.name}.")


if __name__ == "__main__":
    main()
