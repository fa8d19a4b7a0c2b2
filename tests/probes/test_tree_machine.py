"""A tree of headers that keeps changing, and lookups that must always be what a fresh compile makes.

    HYPOTHESIS_PROFILE=long python -m pytest tests/probes/test_tree_machine.py

runs for minutes. `PROBE_COMPILER=nvcc` takes nvcc instead of NVRTC, which is far slower.

The files hold no declarations but statements: they are included within the body of a kernel and each
stores a number of its own. So it shows in the result which files were read, in which order and how often.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cubinet.config import Settings
from cubinet.errors import CompileError
from cubinet.model import Root, Variant
from cubinet.store import Store

from .bench import AHEAD_NS, clean_environ, make_tools, missing

COMPILER = os.environ.get("PROBE_COMPILER", "nvrtc")
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
STEPS = int(os.environ.get("PROBE_STEPS", "60" if LONG else "20"))
EXAMPLES = int(os.environ.get("PROBE_EXAMPLES", "100" if LONG else "3"))

ROOTS = ("one", "two")
FOLDERS = ("", "lib")
NAMES = ("x.h", "y.h", "z.h")
TOPS = (*ROOTS, "src", "spare")
PLACES = tuple(f"{top}/{folder}/{name}".replace("//", "/") for top in TOPS for folder in FOLDERS for name in NAMES)
INNER = tuple(f"{top}/{folder}" for top in TOPS for folder in FOLDERS if folder)

spellings = st.builds(
    lambda folder, name, quoted, up: f'"{up}{folder}{name}"' if quoted else f"<{folder}{name}>",
    st.sampled_from(["", "lib/"]),
    st.sampled_from(NAMES),
    st.booleans(),
    st.sampled_from(["", "", "", "../"]),
)


def _question(spelled: str, number: int) -> str:
    return f"#if __has_include({spelled})\nSTORE({number})\n#else\nSTORE({number + 1})\n#endif\n"


def _careful(spelled: str) -> str:
    return f"#if __has_include({spelled})\n#include {spelled}\n#endif\n"


pieces = st.one_of(
    st.integers(10, 99).map(lambda n: f"STORE({n})\n"),
    st.builds(_question, spellings, st.integers(100, 120)),
    spellings.map(_careful),
    spellings.map(lambda spelled: f"#include {spelled}\n"),
    st.sampled_from(NAMES).map(lambda name: f"#if __has_include_next(<{name}>)\n#include_next <{name}>\n#endif\n")
    if COMPILER == "nvcc"
    else st.sampled_from(NAMES).map(lambda name: f"#include_next <{name}>\n"),
    spellings.map(lambda spelled: f"#undef CHOSEN\n#define CHOSEN {spelled}\n"),
    st.just("#ifdef CHOSEN\n#if __has_include(CHOSEN)\n#include CHOSEN\n#endif\n#endif\n"),
    st.just("STORE(__LINE__)\n"),
)
# No text is taken twice in one compile, or headers that include each other would never end. Those that
# include nothing may come as often as they like.
leaves = st.integers(10, 99).map(lambda n: f"STORE({n})\n")
once = st.integers(10, 99).map(lambda n: f"#pragma once\nSTORE({n})\n")


def _guarded(parts: list[str], number: int) -> str:
    return f"#ifndef TAKEN_{number}\n#define TAKEN_{number}\n{''.join(parts)}#endif\n"


texts = st.one_of(leaves, once, st.builds(_guarded, st.lists(pieces, min_size=1, max_size=3), st.integers(0, 10**6)))
places = st.sampled_from(PLACES)

Kernel = tuple[list[str], tuple[str, ...], bool]
"""What it includes, its roots in order, and whether the folder of its source is known."""

kernels = st.tuples(
    st.lists(spellings, min_size=1, max_size=3),
    st.sampled_from([ROOTS, ROOTS[::-1], ROOTS[:1]]),
    st.booleans(),
)


class Tree(RuleBasedStateMachine):
    """Two roots that are links, a folder of the source, and a spare one to link to."""

    tools: Path
    steps = 0
    hits = 0
    lookups = 0
    errors = 0

    def __init__(self) -> None:
        super().__init__()
        # the same for all, so that NVRTC's workers, which belong to a store's folder, stay warm
        self.base = Path(tempfile.gettempdir(), f"cubinet-tree-{os.getpid()}")
        shutil.rmtree(self.base, ignore_errors=True)
        for top in TOPS:
            (self.base / "real" / top).mkdir(parents=True)
            (self.base / top).symlink_to(f"real/{top}")
        self.store_folder = self.base / "store"
        self.kernels: list[Variant] = []

    @initialize(
        files=st.dictionaries(places, texts, min_size=8, max_size=16), asked=st.lists(kernels, min_size=2, max_size=3)
    )
    def plant(self, files: dict[str, str], asked: list[Kernel]) -> None:
        for place, text in files.items():
            self.write(place, text)
        self.kernels = [self.variant(kernel) for kernel in asked]

    def path(self, place: str) -> Path | None:
        """Where a place is, its folders made; nothing if there is a file or a lost link on the way."""
        path = self.base / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return None
        return path

    def clear(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()

    # --- changes

    @rule(place=places, text=texts)
    def write(self, place: str, text: str) -> None:
        path = self.path(place)
        if path is None or path.is_dir():
            return
        if path.is_symlink():
            path.unlink()
        path.write_text(text)

    @rule(place=places)
    def remove(self, place: str) -> None:
        path = self.base / place
        if os.path.lexists(path):
            self.clear(path)

    @rule(place=places, digit=st.integers(0, 9))
    def edit_without_a_trace_in_size_and_time(self, place: str, digit: int) -> None:
        path = self.base / place
        if path.is_file() and not path.is_symlink():
            info, text = path.stat(), path.read_text()
            at = text.rfind("STORE(") + len("STORE(")
            path.write_text(text[:at] + str(digit) + text[at + 1 :] if text[at : at + 1].isdigit() else text)
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    @rule(place=places, to=places)
    def link_a_header(self, place: str, to: str) -> None:
        path = self.path(place)
        if path is not None and place != to:
            self.clear(path)
            path.symlink_to(self.base / to)

    @rule(place=places, to=places)
    def link_a_header_hard(self, place: str, to: str) -> None:
        path, other = self.path(place), self.base / to
        if path is not None and other.is_file() and not other.is_symlink() and place != to:
            self.clear(path)
            if other.exists():
                os.link(other, path)

    @rule(place=places, to=places)
    def copy_a_header(self, place: str, to: str) -> None:
        other = self.base / to
        if other.is_file():
            self.write(place, other.read_text())

    @rule(place=places)
    def turn_a_link_into_a_copy_or_a_copy_into_a_link(self, place: str) -> None:
        path = self.base / place
        if not path.is_file():
            return
        text, linked = path.read_text(), path.is_symlink()
        if linked:
            path.unlink()
            path.write_text(text)
            return
        for other in map(self.base.joinpath, PLACES):
            if other.is_file() and not other.is_symlink() and not other.samefile(path) and other.read_text() == text:
                path.unlink()
                path.symlink_to(other)
                return

    @rule(place=st.sampled_from(INNER), to=st.sampled_from((*INNER, *TOPS, "nowhere")))
    def link_a_folder(self, place: str, to: str) -> None:
        path = self.path(place)
        if path is not None and not f"{place}/".startswith(f"{to}/"):
            self.clear(path)
            path.symlink_to(self.base / to)

    @rule(place=places)
    def put_a_folder_in_the_place_of_a_header(self, place: str) -> None:
        path = self.path(place)
        if path is not None:
            self.clear(path)
            path.mkdir()

    @rule(place=st.sampled_from(INNER))
    def put_a_file_in_the_place_of_a_folder(self, place: str) -> None:
        path = self.path(place)
        if path is not None:
            self.clear(path)
            path.write_text("")

    @rule(top=st.sampled_from(TOPS), to=st.sampled_from((*TOPS, "nowhere", "one/lib", "spare/lib")))
    def re_point_a_root(self, top: str, to: str) -> None:
        (self.base / top).unlink()
        (self.base / top).symlink_to(f"real/{to}")

    @rule(one=st.sampled_from(PLACES), other=st.sampled_from(PLACES))
    def swap_two(self, one: str, other: str) -> None:
        a, b = self.base / one, self.base / other
        if a.is_file() and b.is_file() and one != other and not a.samefile(b):
            spare = self.base / "swap"
            a.rename(spare)
            b.rename(a)
            spare.rename(b)

    # --- lookups

    @rule(kernel=kernels)
    def ask_for_another_kernel(self, kernel: Kernel) -> None:
        self.kernels = [*self.kernels[-2:], self.variant(kernel)]

    @invariant()
    def every_kernel_is_what_a_fresh_compile_makes(self) -> None:
        time.sleep(0.012)  # more than one tick of a slow clock since the change
        for asked in self.kernels:
            self.compare(asked)
        Tree.steps += 1
        if LONG and Tree.steps % 100 == 0:
            print(Tree.said(), flush=True)  # noqa: T201 - it reports

    @classmethod
    def said(cls) -> str:
        """What the run has done so far."""
        return f"{cls.steps} steps, {cls.lookups} lookups, {cls.hits} hits, {cls.errors} errors, none wrong"

    def variant(self, kernel: Kernel) -> Variant:
        includes, roots, beside = kernel
        body = "".join(map(_careful, includes))
        return Variant(
            f"#define STORE(n) *p++ = n;\n__global__ void k(int* p) {{\n{body}}}\n",
            "sm_90",
            kind="ptx",
            roots=[Root(root, str(self.base / root)) for root in roots],
            source_folder=str(self.base / "src") if beside else None,
            compiler=COMPILER,
        )

    def store(self, folder: Path) -> Store:
        """A store as a new process has it, for which everything is at rest: see `bench.AHEAD_NS`."""
        if not folder.exists():
            folder.mkdir()
            shutil.copytree(self.tools, folder / "tools")
        store = Store(folder, settings=Settings(durable=False, refresh=0.0), environ=clean_environ())
        store._contents.clock = lambda: time.time_ns() + AHEAD_NS
        return store

    def compare(self, asked: Variant) -> None:
        found = _result(self.store(self.store_folder), asked)
        Tree.lookups += 1
        if found[0] == "compiled":
            return  # that was a fresh compile
        Tree.hits += found[0] == "hit"
        Tree.errors += found[0] == "error"
        empty = self.base / "empty"
        fresh = _result(self.store(empty), asked)
        shutil.rmtree(empty)
        assert found[1:] == fresh[1:], (found[0], asked)

    def teardown(self) -> None:
        shutil.rmtree(self.base)


def _result(store: Store, asked: Variant) -> tuple[str, bytes]:
    """How a lookup ended, and the bytes; all errors are alike."""
    with store:
        try:
            found = store.get_or_compile(asked)
        except CompileError:
            return "error", b""
    return str(found.status), found.data


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := missing(COMPILER):
        pytest.skip(why)
    return make_tools(tmp_path_factory.mktemp("tools"), [COMPILER])


@pytest.mark.timeout(0 if LONG else 300)
def test_no_lookup_differs_from_a_fresh_compile_however_the_tree_changes(tools: Path) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    Tree.tools = tools
    Tree.steps = Tree.lookups = Tree.hits = Tree.errors = 0
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(Tree, settings=chosen)
    print(Tree.said())  # noqa: T201 - it reports
