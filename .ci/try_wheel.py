"""Install the wheel of a folder in an empty environment, and use it: `python3 .ci/try_wheel.py dist`.

It needs nothing but Python 3.11 or later and a package index. The environment is of the Python that
runs it, and is deleted at the end.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

QUESTION = "What time is it in Tokyo when it is 14:30 in Oslo?"
ANSWER = "22:30"


def main() -> None:
    (wheel,) = Path(sys.argv[1]).resolve().glob("*.whl")
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        programs = Path(place) / ("Scripts" if os.name == "nt" else "bin")
        run(programs / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel)
        said = run(programs / "casual-mcp-nb", "--help", folder=place)
        assert "demo" in said, said
        said = run(programs / "casual-mcp-nb", "demo", QUESTION, folder=place)
        assert ANSWER in said, said
        run(programs / "python", "-m", "casual_mcp_nb.bundled", "math", "--help", folder=place)
    version = sys.version.split()[0]
    print(f"{wheel.name} on Python {version}: installed, asked for help, and answered {ANSWER}.")


def run(*command: str | Path, folder: str | None = None) -> str:
    """Run a command without keys and without this checkout; return what it printed.

    Raises:
        SystemExit: It failed. The error has the end of what it printed.
    """
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environ.pop("PYTHONPATH", None)
    environ["PYTHONUTF8"] = "1"
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
