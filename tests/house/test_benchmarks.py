"""Every benchmark is run, small, where the tests run."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "benchmarks" / "run.py"
BENCHMARKS = sorted(path for path in RUNNER.parent.glob("*.py") if path != RUNNER)


@pytest.mark.defect("F21")
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_each_benchmark_has_figures_for_the_runner(path: Path) -> None:
    functions = {
        node.name: node.args
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert [argument.arg for argument in functions["figures"].args] == ["quick"]


@pytest.mark.defect("F21")
def test_the_runner_knows_every_benchmark_and_ci_runs_them_small() -> None:
    help_text = subprocess.run(
        [sys.executable, RUNNER, "--help"], capture_output=True, text=True, check=True
    ).stdout
    named = help_text.replace("\n", " ").partition("only these:")[2].split(" options:")[0]
    assert [name.strip() for name in named.split(",")] == [path.stem for path in BENCHMARKS]
    assert "benchmarks/run.py --quick" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
@pytest.mark.defect("F21")
def test_a_benchmark_runs_to_its_end() -> None:
    run = subprocess.run(
        [sys.executable, RUNNER, "--quick", "display"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "a turn of 50 steps" in run.stdout


def test_a_benchmark_that_fails_fails_the_run(tmp_path: Path) -> None:
    for path in (RUNNER, *RUNNER.parent.glob("common/*.py"), ROOT / "tests/kit/lean.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    head = "from common.figures import Figure, Unavailable\ndef figures(quick):\n    "
    bodies = {
        "broken": "raise TypeError('no')",
        "absent": "raise Unavailable('it is not here')",
        "slow": "return [Figure('x', 2, 's', limit=1)]",
    }
    for name, body in bodies.items():
        (tmp_path / "benchmarks" / f"{name}.py").write_text(f"{head}{body}\n")
    runner = tmp_path / "benchmarks" / "run.py"
    run = subprocess.run([sys.executable, runner], capture_output=True, text=True)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (
        1,
        "failed, or beyond a limit: broken, slow",
    )
    quick = subprocess.run(
        [sys.executable, runner, "--quick", "absent", "slow"], capture_output=True, text=True
    )
    assert (quick.returncode, "it is not here" in quick.stdout) == (0, True)
    both = subprocess.run(
        [sys.executable, runner, "--quick", "broken", "slow"], capture_output=True, text=True
    )
    assert (both.returncode, both.stdout.splitlines()[-1]) == (
        1,
        "failed, or beyond a limit: broken",
    )
