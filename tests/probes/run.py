"""Run all probes and print what they show as a Markdown table: `python tests/probes/run.py`.

What is not right is explained on standard error. The exit status is 1 if there is such a thing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if TYPE_CHECKING:
    from tests.probes.bench import Probe, Result

COMPILERS = ("nvcc", "nvrtc")


def one(work: tuple[int, str, str, bool]) -> Result | str:
    """Run one probe with one compiler; the result, or why it cannot be run here."""
    from tests.probes.bench import missing, run
    from tests.probes.probes import PROBES

    number, compiler, folder, thorough = work
    probe = PROBES[number]
    if why := missing(compiler) or (probe.needs(compiler) if probe.needs else ""):
        return why
    return run(probe, compiler, Path(folder, f"home-{os.getpid()}"), Path(folder, "tools"), thorough=thorough)


def word(found: Result | str | None) -> str:
    """What one cell of the table says."""
    from tests.probes.bench import Effect, Verdict

    if found is None:
        return ""
    if isinstance(found, str):
        return f"({found})"
    if found.verdict is not Verdict.RIGHT:
        return f"**{found.verdict}**"
    if found.note:
        return f"right ({found.note})"
    return "hit" if found.effect is Effect.NOTHING else "right"


def table(probes: list[Probe], found: dict[tuple[str, str], Result | str]) -> list[str]:
    """The rows of some probes."""
    lines = ["| probe | Cubinet, nvcc | Cubinet, NVRTC | ccache 4.14.2 | sccache 0.16.0 |", "|---|---|---|---|---|"]
    for probe in probes:
        cells = [word(found.get((probe.name, compiler))) for compiler in COMPILERS]
        theirs = [f"**{text}**" if text.isupper() else text for text in (probe.ccache, probe.sccache)]
        name = probe.name.replace("|", "\\|").replace("__", "\\_\\_").replace("*", "\\*")
        lines.append(f"| {' | '.join((name, *cells, *theirs))} |")
    return lines


def totals(found: dict[tuple[str, str], Result | str], probes: list[Probe]) -> list[str]:
    """One line a compiler."""
    from tests.probes.bench import Effect, Verdict

    lines = []
    for compiler in COMPILERS:
        results = [r for (_, c), r in found.items() if c == compiler and not isinstance(r, str)]
        must_hit = [r for r in results if r.effect is Effect.NOTHING]
        lines.append(
            f"- {compiler}: {len(results) - len(must_hit)} that must not be wrong, {len(must_hit)} that must hit: "
            f"{sum(r.verdict is Verdict.WRONG for r in results)} wrong results, "
            f"{sum(r.verdict is Verdict.NEEDLESS for r in results)} needless misses"
        )
    for tool in ("ccache", "sccache"):
        tried = [getattr(probe, tool) for probe in probes if getattr(probe, tool) != "not tried"]
        lines.append(
            f"- {tool}: {len(tried)} of these were tried, {sum('WRONG' in text for text in tried)} gave a wrong result"
        )
    return lines


def main() -> int:
    """Run and print."""
    from tests.probes.bench import Effect, Verdict, make_tools, missing
    from tests.probes.probes import PROBES

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="run only probes whose name holds this")
    parser.add_argument("--compiler", choices=COMPILERS, help="run only those of this compiler")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    parser.add_argument("--quick", action="store_true", help="compile afresh only what a lookup did not just compile")
    asked = parser.parse_args()
    chosen = [probe for probe in PROBES if asked.only in probe.name]
    pairs = [(p, c) for p in chosen for c in p.compilers if asked.compiler in (None, c)]
    with tempfile.TemporaryDirectory(prefix="cubinet-probes-") as folder:
        make_tools(Path(folder), [c for c in COMPILERS if not missing(c)])
        work = [(PROBES.index(p), c, folder, not asked.quick) for p, c in pairs]
        with ProcessPoolExecutor(asked.jobs) as pool:
            found = {(p.name, c): result for (p, c), result in zip(pairs, pool.map(one, work), strict=True)}
    bad = [r for r in found.values() if not isinstance(r, str) and r.verdict is not Verdict.RIGHT]
    print("\n".join(map(str, bad)), file=sys.stderr)  # noqa: T201 - it reports
    for title, effects in (
        ("Must never be wrong", (Effect.CHANGES, Effect.OPEN)),
        ("Must hit", (Effect.NOTHING,)),
    ):
        print(f"\n## {title}\n")  # noqa: T201 - it reports
        print("\n".join(table([probe for probe in chosen if probe.effect in effects], found)))  # noqa: T201 - it reports
    print("\n## Totals\n")  # noqa: T201 - it reports
    print("\n".join(totals(found, chosen)))  # noqa: T201 - it reports
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
