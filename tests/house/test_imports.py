"""Importing the package imports little: the modules of a session are imported when there is one."""

import os
import subprocess
import sys

import pytest

MAX_OWN = {"import casual_mcp_nb": 5, "from casual_mcp_nb import Session": 40}


@pytest.mark.parametrize("statement", MAX_OWN)
def test_an_import_brings_few_modules_and_nothing_heavy(statement: str) -> None:
    program = (
        f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) -"
        " before))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    imported = run.stdout.split()
    own = [name for name in imported if name.partition(".")[0] == "casual_mcp_nb"]
    others = (
        {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"casual_mcp_nb"}
    )
    assert len(own) <= MAX_OWN[statement], own
    assert not {name for name in others if not name.startswith("_")}
