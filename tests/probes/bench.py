"""The bench a probe runs on: build, change one thing, look up, compare with a fresh compile.

What comes out is computed: the bytes that a new store over the same folder gives after the change, against
those that the same compiler makes in an empty store at the same place. A probe whose change was meant to
matter and does not change a fresh compile is *idle*: it would find nothing, so that is an error too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cubinet.config import Settings
from cubinet.errors import CompileError, ConfigError
from cubinet.model import Artifact, Root, Variant
from cubinet.store import Store

FOREIGN = ("CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH", "SOURCE_DATE_EPOCH", "LD_PRELOAD", "NVCC")
AHEAD_NS = 3_000_000_000
"""Stores of an aged probe have a clock that is three seconds ahead, so that what the probe planted counts as
at rest, as headers in real life do, and the memo between processes is what answers. A change comes more than
one tick of any kernel's clock later: there is a compile between."""


def clean_environ() -> dict[str, str]:
    """The environment without anything that would reach a compile."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("NVCC_", "CUBINET_")) and k not in FOREIGN}


class Effect(StrEnum):
    """What a change does to a fresh compile."""

    CHANGES = "changes the result"
    NOTHING = "must hit"
    OPEN = "may miss"
    """The result is the same, but the key may know that only after a compile."""


class Verdict(StrEnum):
    """What a probe showed."""

    RIGHT = "right"
    WRONG = "WRONG"
    NEEDLESS = "needless miss"
    IDLE = "idle probe"


@dataclass
class Asked:
    """What is asked of the store, in the words of the bench: paths below its folder, `{folder}` for the
    folder and `{above}` for a file name of its own in the folder for temporary files.

    `file` names the source in the folder; without one the source is text in memory. Roots are
    `label=path`, with `system:` or `quote:` in front if they are searched so.
    """

    source: str = ""
    file: str = ""
    roots: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    arch: str = "sm_90a"
    kind: str = "cubin"
    more: dict[str, Any] = field(default_factory=dict)


Change = Callable[["Bench"], None]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One thing that is changed between a build and a lookup.

    Args:
        name: the change, as a sentence.
        effect: what it does to a fresh compile; checked.
        change: makes it.
        files: what the folder holds before, by path.
        prepare: makes what is no plain file.
        source, file, roots, options, arch, kind, more: what is asked, as in `Asked`.
        environ, settings: those of the store; `{folder}` in a variable is the bench's folder.
        first: does the first lookup instead of a plain `get_or_compile`.
        compilers: which ones it applies to.
        aged: whether files count as at rest.
        own_tools: whether it changes compilers: then stores learn about them anew.
        random: why two fresh compiles differ; then a hit after a change that matters is wrong by itself.
        needs: says why the probe cannot run here; empty if it can.
        ccache, sccache: what was found for them, if their row was tried.
    """

    name: str
    effect: Effect
    change: Change
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: Change | None = None
    source: str = ""
    file: str = ""
    roots: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    arch: str = "sm_90a"
    kind: str = "cubin"
    more: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    first: Callable[[Bench], Outcome] | None = None
    compilers: tuple[str, ...] = ("nvcc", "nvrtc")
    aged: bool = True
    own_tools: bool = False
    random: str = ""
    needs: Callable[[str], str] | None = None
    ccache: str = "not tried"
    sccache: str = "not tried"


@dataclass(frozen=True)
class Outcome:
    """How one lookup ended. `words` is the error, if there was one; then there is no data."""

    status: str
    data: bytes = b""
    words: str = ""
    reason: str = ""
    facts: tuple[object, ...] = ()

    def same(self, other: Outcome) -> bool:
        """Whether the caller got the same: bytes, kernels and names, or an error."""
        mine, theirs = self.status in _ERRORS, other.status in _ERRORS
        return (self.data, self.facts) == (other.data, other.facts) if not mine and not theirs else mine == theirs


_ERRORS = ("error", "refused")


@dataclass(frozen=True)
class Result:
    """What a probe showed with one compiler, and all lookups it rests on."""

    name: str
    effect: Effect
    compiler: str
    verdict: Verdict
    before: Outcome
    after: Outcome
    fresh: Outcome
    note: str = ""

    def __str__(self) -> str:
        said = f"{self.compiler}: {self.name}: {self.verdict}{self.note and f' ({self.note})'}\n"
        for name in ("before", "after", "fresh"):
            one: Outcome = getattr(self, name)
            said += f"  {name}: {one.status}, {len(one.data)} bytes, {one.reason}{one.words}\n"
        return said


class Bench:
    """One probe under way.

    Args:
        home: a folder; the probe's tree and the store lie in it side by side. What was there is deleted. If it
            is the same for many probes, so are the paths of their stores, and NVRTC's workers stay warm.
        probe: what to do.
        compiler: with which.
        tools: the `tools` folder of a store that has compiled with all of them.
    """

    def __init__(self, home: Path, probe: Probe, compiler: str, tools: Path) -> None:
        self.probe, self.compiler, self.tools = probe, compiler, tools
        for path in home.glob("*/tools/recorder-*"):  # as this process knows it is there
            if not (tools / path.name).exists():
                shutil.copy2(path, tools / path.name)
        shutil.rmtree(home, ignore_errors=True)
        self.folder, self.store_folder = home / "tree", home / "store"
        self.folder.mkdir(parents=True)
        self.above = Path(tempfile.gettempdir(), f"cubinet-probe-{os.urandom(6).hex()}.h")
        self.environ = {key: self.filled(value) for key, value in probe.environ.items()}
        self.asked = Asked(
            probe.source, probe.file, probe.roots, probe.options, probe.arch, probe.kind, dict(probe.more)
        )
        self.restore = contextlib.ExitStack()
        self._discarded = 0

    def filled(self, text: str) -> str:
        return text.replace("{folder}", str(self.folder)).replace("{above}", self.above.name)

    # --- for changes

    def path(self, name: str) -> Path:
        """A path below the folder, its parent made."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str) -> None:
        """Write a file over what was there, in place; a link is replaced and not followed."""
        path = self.path(name)
        if path.is_symlink():
            path.unlink()
        path.write_text(self.filled(text))

    def remove(self, name: str) -> None:
        """Remove whatever is there."""
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def link(self, name: str, target: str) -> None:
        """Make a link, in the place of what was there."""
        path = self.path(name)
        if os.path.lexists(path):
            self.remove(name)
        path.symlink_to(self.filled(target))

    # --- lookups

    def variant(self) -> Variant:
        """What is asked at the moment."""
        asked = self.asked
        roots = []
        for text in asked.roots:
            label, _, path = text.partition("=")
            kind, colon, name = label.rpartition(":")
            roots.append(
                Root(
                    name,
                    self.filled(path) if path[0] in "/{" else f"{self.folder}/{path}",
                    kind if colon else "include",
                )
            )
        rest: dict[str, Any] = {
            "kind": asked.kind,
            "roots": roots,
            "options": [self.filled(option) for option in asked.options],
            "folder": str(self.folder),
            "compiler": self.compiler,
            **asked.more,
        }
        for name in ("source_folder", "folder"):
            if name in rest:
                rest[name] = self.filled(rest[name])
        if asked.file:
            return Variant.from_file(self.folder / asked.file, asked.arch, **rest)
        return Variant(self.filled(asked.source), asked.arch, **rest)

    def store(self, **settings: Any) -> Store:
        """A store as a new process has it: over the folder, with nothing in memory."""
        self.store_folder.mkdir(exist_ok=True)
        tools = self.store_folder / "tools"
        if not tools.exists():
            shutil.copytree(self.tools, tools)
            if self.probe.own_tools:
                for path in tools.glob("toolchain-*"):
                    path.unlink()
        chosen = Settings(**{"durable": False, "refresh": 0.0, **self.probe.settings, **settings})
        store = Store(self.store_folder, settings=chosen, environ=clean_environ() | self.environ)
        if self.probe.aged:
            store._contents.clock = lambda: time.time_ns() + AHEAD_NS
        return store

    def look(self, store: Store | None = None) -> Outcome:
        """Look up or compile what is asked at the moment."""
        try:
            return outcome((store or self.store()).get_or_compile(self.variant()))
        except CompileError as exc:
            return Outcome("error", words=f"{exc}\n{exc.log}")
        except ConfigError as exc:
            return Outcome("refused", words=str(exc))

    def compile_other(self, store: Store | None = None) -> None:
        """Compile something that has nothing to do with what is asked."""
        asked, self.asked = self.asked, Asked(source="__global__ void other() {}\n")
        assert self.look(store).status == "compiled"
        self.asked = asked

    def fresh(self) -> Outcome:
        """The same in an empty store at the same place, as results may name the store's folder."""
        self._discarded += 1
        old = self.store_folder.with_name(f"discarded{self._discarded}")
        self.store_folder.rename(old)
        self.store_folder.mkdir()
        shutil.copytree(self.tools, self.store_folder / "tools")
        for path in (old / "tools").glob("recorder-*"):  # as this process knows it is there
            shutil.copy2(path, self.store_folder / "tools" / path.name)
        if self.probe.own_tools:
            for path in (self.store_folder / "tools").glob("toolchain-*"):
                path.unlink()
        return self.look()


def outcome(artifact: Artifact) -> Outcome:
    """An artifact as the caller sees it."""
    record = artifact.record
    return Outcome(
        str(artifact.status), artifact.data, reason=artifact.reason, facts=(record.kind, record.kernels, record.names)
    )


def run(probe: Probe, compiler: str, home: Path, tools: Path, *, thorough: bool = False) -> Result:
    """Run a probe.

    A lookup after the change that compiles has made the very thing it would be compared with, so the compile
    in an empty store is left out then, unless the run is to be `thorough`.
    """
    bench = Bench(home, probe, compiler, tools)
    for name, text in probe.files.items():
        bench.write(name, text)
    with bench.restore:
        if probe.prepare:
            probe.prepare(bench)
        before = probe.first(bench) if probe.first else bench.look()
        if probe.first is None and before.status == "compiled" and not before.reason:
            again = bench.look()
            if again.status != "hit" or not again.same(before):
                return Result(
                    probe.name, probe.effect, compiler, Verdict.NEEDLESS, before, again, before, "without any change"
                )
        time.sleep(0.02)
        probe.change(bench)
        after = bench.look()
        return _judged(probe, compiler, before, after, bench if after.status == "hit" or thorough else None)


def _judged(probe: Probe, compiler: str, before: Outcome, after: Outcome, bench: Bench | None) -> Result:
    fresh = bench.fresh() if bench else after
    note = "not kept" if before.reason else after.status if after.status in _ERRORS else ""
    verdict = Verdict.RIGHT
    if probe.random:
        if after.status == "hit" and probe.effect is Effect.CHANGES:
            verdict = Verdict.WRONG
    elif not after.same(fresh):
        verdict = Verdict.WRONG
        if bench and not bench.fresh().same(fresh):
            note = "two fresh compiles differ, too"
    elif probe.effect is Effect.CHANGES and fresh.same(before) and probe.first is None:
        verdict = Verdict.IDLE
    elif probe.effect is not Effect.CHANGES and not fresh.same(before):
        verdict, note = Verdict.IDLE, "it changes the result"
    if verdict is Verdict.RIGHT and probe.effect is Effect.NOTHING and after.status != "hit":
        verdict = Verdict.NEEDLESS
    return Result(probe.name, probe.effect, compiler, verdict, before, after, fresh, note)


def make_tools(folder: Path, compilers: Sequence[str]) -> Path:
    """The `tools` folder of a store that has compiled once with each compiler."""
    store = Store(folder, settings=Settings(durable=False), environ=clean_environ())
    for compiler in compilers:
        store.get_or_compile(Variant('extern "C" __global__ void k() {}', "sm_90a", compiler=compiler))
    return folder / "tools"


def missing(compiler: str) -> str:
    """Why there are no probes with a compiler here; empty if there are."""
    if compiler == "nvrtc":
        try:
            from cuda.bindings import nvrtc

            nvrtc.nvrtcVersion()
        except (ImportError, RuntimeError, OSError) as exc:
            return f"no NVRTC: {exc}"
    return ""


@contextlib.contextmanager
def in_another_thread(action: Callable[[], None]) -> Iterator[None]:
    """Do something meanwhile, and wait for its end."""
    thread = threading.Thread(target=action)
    thread.start()
    try:
        yield
    finally:
        thread.join()
