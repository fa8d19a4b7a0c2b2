"""What an import costs, and who may import whom."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Modules that the interpreter's own start brought in (`.pth` files, coverage) do not count.
LOADED = """
import sys
before = set(sys.modules)
import cubinet
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"cubinet"}))
"""


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_importing_cubinet_loads_only_the_standard_library() -> None:
    assert run(sys.executable, "-c", LOADED).split() == []


def test_modules_import_only_what_the_contracts_allow() -> None:
    command = shutil.which("lint-imports", path=sysconfig.get_path("scripts"))
    if command is None:
        pytest.skip("import-linter is not installed")
    assert "0 broken" in run(command, "--no-cache")
