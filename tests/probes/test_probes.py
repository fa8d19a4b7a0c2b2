"""One test a probe and compiler. `run.py` prints the same as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from .bench import Effect, Probe, Verdict, make_tools, missing, run
from .probes import PROBES

PAIRS = [(probe, compiler) for probe in PROBES for compiler in probe.compilers]


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
    assert sum(probe.effect is not Effect.NOTHING for probe in PROBES) >= 60
    assert sum(probe.effect is Effect.NOTHING for probe in PROBES) >= 20
