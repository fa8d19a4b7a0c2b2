"""All hardware tests, then all benchmarks of the loader, on a machine with an NVIDIA device.

    python3 benchmarks/gpu/run.py [--out FOLDER] [--quick]

Uses what `prepare.py` left in `build/gpu`, and needs neither a compiler nor a network. Writes `gpu.json`, `gpu.md` and
`tests.log`. Ends with 1 if a test failed; a ratio that misses its goal is shown and is no failure.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "gpu" / "site"
PACKAGES = ("cuda-core", "cuda-bindings", "cupy-cuda13x", "torch", "jax", "numpy", "pytest")


def environment() -> dict[str, str]:
    """This repository and the carried packages first: pytest is one of them."""
    path = [str(ROOT / "src"), *([str(SITE)] if SITE.is_dir() else []), os.environ.get("PYTHONPATH", "")]
    made = {k: v for k, v in os.environ.items() if not k.startswith("CUBINET_")}
    return made | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def tests(out: Path) -> str:
    command = [sys.executable, "-m", "pytest", "tests/hardware", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-p", "pytest_timeout"]  # no other plugin that happens to be there
    with (out / "tests.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines = []
        for line in process.stdout:
            log.write(line)
            lines.append(line.rstrip())
            print(line, end="", flush=True)
        process.wait()
    totals = [line for line in lines if re.search(r"\d+ (passed|failed|error|skipped)", line)]
    return totals[-1].strip("= ") if totals else f"pytest ended with {process.returncode}"


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "not available"
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else "not available"


def machine() -> dict[str, str]:
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": first_line(*query),
        "python": platform.python_version(),
        "nvcc": first_line("nvcc", "--version"),
        "cpu": f"{os.cpu_count()} cores, {platform.machine()}",
        **{name: version(name) for name in PACKAGES},
    }


def table(result: dict) -> str:
    about = [f"| {name} | {text} |" for name, text in result["machine"].items()]
    lines = ["# The loader on a device", "", "| | |", "|---|---|", *about, "", f"Hardware tests: {result['tests']}", ""]
    lines += ["Microseconds: 10th percentile and median, all rows of a group interleaved.", ""]
    for group, rows in result["groups"].items():
        lines += [f"## {group}", "", "| | p10 us | median us |", "|---|---:|---:|"]
        lines += [f"| {name} | {row['p10']:,.2f} | {row['p50']:,.2f} |" for name, row in rows.items()]
        lines.append("")
    lines += ["## Ratios of 10th percentiles", "", "| | ratio | goal |", "|---|---:|---|"]
    for row in result["ratios"]:
        value = "not available" if row["value"] is None else f"{row['value']:.3f}"
        lines.append(f"| {row['name']} | {value} | {row['goal']} |")
    return "\n".join([*lines, "", *(f"Not available: {text}" for text in result["missing"]), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default=os.environ.get("OUT") or str(ROOT / "benchmarks" / "results"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--no-tests", action="store_true")
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    told = "not run" if given.no_tests else tests(out)
    command = [sys.executable, str(Path(__file__).with_name("measure.py")), *(["--quick"] if given.quick else [])]
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    measured = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    measured = measured or {"groups": {}, "ratios": [], "missing": [f"measure.py ended with {done.returncode}"]}
    result = {"machine": machine(), "tests": told, **measured}
    (out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "gpu.md").write_text(table(result))
    print(table(result))
    return int(bool(re.search(r"failed|error|ended", told)) or done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
