"""Measure Cubinet's store against its floors, its goals and other caches, and say where the time goes.

    python benchmarks/bench_store.py --quick
    python benchmarks/bench_store.py --save first     # about ten minutes; keeps results/<date>-first.md
    make bench ARGS=--quick

Other caches are measured if they are installed: `pip install -r benchmarks/requirements.txt`.
"""

from __future__ import annotations

import os
import sys
import time

import files
import lookups
from common import Report, Scratch, arguments, environment, pressure
from fixtures import HERE, set_up
from profiles import profiles
from writers import writers


def main() -> None:
    sys.dont_write_bytecode = True
    given = arguments(__doc__.partition("\n")[0])
    report, scratch, before = Report(), Scratch(given.work), pressure()

    # Measured processes find their byte code compiled, as an installed package's is.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(scratch.path / "bytecode")

    def wanted(name: str) -> bool:
        return not given.only or any(name.startswith(start) for start in given.only.split(","))

    try:
        bench = set_up(report, scratch, quick=given.quick)
        lookups.run(bench, wanted)
        files.run(bench, wanted)
        for name, part in (("writers", writers), ("profile", profiles)):
            if wanted(name):
                part(bench)
        facts = environment(scratch.path, before)
        toolchain = bench.small.record.toolchain
        facts["compiler"] = f"{toolchain.name} {toolchain.version}"
        facts["size of the run"] = "quick" if given.quick else "full"
        name = f"{time.strftime('%Y-%m-%d')}-{given.save}"
        report.finish("Cubinet's store, measured", facts, HERE / "results" if given.save else None, name)
    finally:
        scratch.close()


if __name__ == "__main__":
    main()
