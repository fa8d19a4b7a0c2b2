"""One test a probe and compiler. `run.py` runs them all and prints a table.

The front ends of nvcc and NVRTC look at headers under the same recorder, and nvcc takes ten times as long. So
of the probes that both can do and that no other cache was tried with, nvcc gets every eighth one here, and the
others with `PROBES=all`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .bench import Effect, Probe, Verdict, make_tools, missing, run
from .probes import PROBES

ALL = os.environ.get("PROBES") == "all"


def _chosen(number: int, probe: Probe, compiler: str) -> bool:
    return compiler != "nvcc" or len(probe.compilers) == 1 or probe.ccache != "not tried" or number % 8 == 0


PAIRS = [(p, c) for i, p in enumerate(PROBES) for c in p.compilers if ALL or _chosen(i, p, c)]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `tools` folder of a store that has compiled with every compiler there is."""
    return make_tools(tmp_path_factory.mktemp("tools"), [c for c in ("nvcc", "nvrtc") if not missing(c)])


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where probes work, one after the other."""
    return tmp_path_factory.mktemp("probes") / "home"


@pytest.mark.parametrize(("probe", "compiler"), PAIRS, ids=[f"{compiler}: {probe.name}" for probe, compiler in PAIRS])
def test_a_lookup_after_a_change_is_what_a_fresh_compile_makes(
    probe: Probe, compiler: str, tools: Path, home: Path
) -> None:
    if why := missing(compiler) or (probe.needs and probe.needs(compiler)):
        pytest.skip(why)
    result = run(probe, compiler, home, tools)
    assert result.verdict is Verdict.RIGHT, str(result)


def test_there_are_enough_probes_and_no_two_have_one_name() -> None:
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    for compiler, wrong, hit in (("nvcc", 60, 20), ("nvrtc", 60, 20)):
        effects = [probe.effect for probe in PROBES if compiler in probe.compilers]
        assert sum(effect is not Effect.NOTHING for effect in effects) >= wrong
        assert sum(effect is Effect.NOTHING for effect in effects) >= hit
