"""The real kernels under two compilers, and what `cubinet report toolchains` says of them.

    python -m tests.real.toolchains STORE NVCC NVCC... [--quick]

Compiles every variant with each nvcc into one store, and prints the report as a table in Markdown.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from cubinet.config import Settings
from cubinet.errors import CompileError
from cubinet.store import Store

from .conftest import _fetch, clean_environ
from .kernels import KERNELS


def main() -> None:
    folder, *compilers = (word for word in sys.argv[1:] if not word.startswith("--"))
    chosen = [kernel for kernel in KERNELS if kernel.quick or "--quick" not in sys.argv]
    for nvcc in compilers:
        environ = clean_environ(os.environ) | {"CUBINET_NVCC": nvcc}
        store = Store(folder, settings=Settings(durable=False, nvcc=nvcc), environ=environ)
        for number, kernel in enumerate(chosen):
            places = {label: _fetch(label) for label in kernel.labels}
            start = time.perf_counter()
            try:
                made = store.get_or_compile(kernel.variant(places))
                what = f"{made.status}, {len(made.data)} bytes"
            except CompileError as exc:
                what = exc.finding.splitlines()[0]
            took = time.perf_counter() - start
            print(f"{number + 1}/{len(chosen)} {kernel.name}: {what}, {took:.1f} s", file=sys.stderr, flush=True)
        store.close()
    rows = [dict(row) for row in Store(Path(folder)).index.report("toolchains")]
    if rows:
        heads = list(rows[0])
        print("| " + " | ".join(heads) + " |")
        print("|" + "---|" * len(heads))
        for row in rows:
            print("| " + " | ".join("" if row[h] is None else str(row[h]) for h in heads) + " |")


if __name__ == "__main__":
    main()
