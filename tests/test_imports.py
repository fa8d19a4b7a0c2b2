"""What an import costs, and who may import whom."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cubinet import Store, Variant

ROOT = Path(__file__).parents[1]
KERNEL = 'extern "C" __global__ void k(int* p) { *p = 1; }'

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


HIT = """
import sys
started = []
wanted = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "os.spawn")
sys.addaudithook(lambda event, args: started.append(event) if event in wanted else None)
from cubinet import Store, Variant
found = Store(sys.argv[1]).find(Variant(sys.argv[3], "sm_90a", compiler=sys.argv[2]))
assert found is not None and found.status == "hit"
assert started == [], started
heavy = {"subprocess", "cuda", "numpy", "fsspec", "s3fs", "sqlite3", "rich", "click", "logging", "asyncio"}
print(sorted(heavy & set(sys.modules)), sorted(m for m in sys.modules if m.startswith("cubinet.objects")))
"""


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_hit_starts_no_process_and_loads_no_compiler(tmp_path: Path, compiler: str) -> None:
    variant = Variant(KERNEL, "sm_90a", compiler=compiler)
    assert Store(tmp_path / "s").get_or_compile(variant).reason == ""
    command = [sys.executable, "-c", HIT, str(tmp_path / "s"), compiler, KERNEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] []"
