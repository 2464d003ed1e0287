"""Set everything up and open the quickstart in JupyterLab: `python3 notebooks/quickstart.py`.

With `--headless` the quickstart is executed instead, and its answer, its table of tokens and the place of its HTML are printed.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"

if __name__ == "__main__":
    python = environment.ensure()
    if "--headless" in sys.argv[1:]:
        command = [python, ROOT / "notebooks" / "execute.py", NOTEBOOK, "--html", ROOT / "build", "--show", "answer,tokens"]
    else:
        offline = ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        command = [python, "-m", "jupyterlab", NOTEBOOK, *offline, *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)
