"""What is measured: two compiled kernels, and made-up builds of any size and number."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from blake3 import blake3
from common import Report, Scratch

from cubinet import Digest, Fingerprint, Record, Root, Settings, Store, Variant
from cubinet.fingerprint import action_of, action_parts, digest_of, fingerprint_of, part_digests
from cubinet.model import Action, BlobRef
from cubinet.observations import path_of, read_observations
from cubinet.store.local import LocalLayer

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
ARCH = "sm_90a"


@dataclass(frozen=True)
class Kernel:
    """A source, how to ask for it, and the build of it that the set-up made."""

    name: str
    source: Path
    options: tuple[str, ...]
    roots: tuple[tuple[str, str], ...]
    record: Record
    seconds: float

    def variant(self, **rest: object) -> Variant:
        roots = [Root(label, path) for label, path in self.roots]
        return Variant.from_file(self.source, ARCH, options=self.options, roots=roots, **rest)

    def command(self) -> list[str]:
        """`cubinet compile` as a person would write it."""
        includes = [word for label, path in self.roots for word in ("-I", f"{label}={path}")]
        argv = [sys.executable, "-m", "cubinet", "compile", str(self.source), "--arch", ARCH, *includes, "--json"]
        return [*argv, "--", *self.options]

    def nvcc(self, store: Store, output: Path) -> list[str]:
        """The same compile without Cubinet."""
        includes = [word for _, path in self.roots for word in ("-I", path)]
        program = store.compiler("nvcc").facts().nvcc
        return [program, "-cubin", f"-arch={ARCH}", *self.options, *includes, "-o", str(output), str(self.source)]

    def files(self, store: Store) -> list[str]:
        """The files its compile read, where they are here."""
        request = store.normalize(self.variant())
        data = store.find(self.record.fingerprint).read("observations")
        found = (path_of(o.name, request.places) for o in read_observations(data) if o.seen == "read")
        return [path for path in found if path]


@dataclass
class Bench:
    """What every part of the run gets."""

    report: Report
    scratch: Scratch
    store: Store
    small: Kernel
    large: Kernel | None
    near: Kernel | None
    quick: bool

    @property
    def kernels(self) -> list[Kernel]:
        return [kernel for kernel in (self.small, self.large) if kernel]

    def again(self) -> Store:
        """A new store on the same folder, with nothing in memory."""
        return Store(self.store.folder, settings=self.store.settings)


def set_up(report: Report, scratch: Scratch, *, quick: bool) -> Bench:
    """Compile the kernels once, and wait until all file times are old enough to be trusted."""
    store = Store(scratch.fresh("compiled"), settings=Settings(durable=False))
    small = _compiled(store, EXAMPLES / "scale.cu", (), ())
    large = near = None
    roots = _cutlass(report)
    if roots:
        modern = ("-std=c++17", "--expt-relaxed-constexpr")
        large = _compiled(store, HERE / "kernels" / "gemm_sm90.cu", modern, roots)
        # The folder of its own is empty and comes first, so all names are looked for there in vain.
        own = ("own", str(scratch.fresh("own")))
        near = _compiled(store, EXAMPLES / "gemm_cutlass.cu", (), (own, *roots))
    time.sleep(2.1)
    bench = Bench(report, scratch, store, small, large, near, quick)
    for kernel in filter(None, (small, large, near)):
        if bench.again().find(kernel.variant()) is None:
            raise SystemExit(f"{kernel.name} was compiled and is not found again")
    head = ("kernel", "files read", "probed, there", "probed, absent", "cubin, bytes", "nvcc under the recorder, s")
    rows = []
    for kernel in filter(None, (small, large, near)):
        counts = dict(kernel.record.observation_counts)
        seen = (counts.get(how, 0) for how in ("read", "present", "absent"))
        rows.append((kernel.name, *seen, kernel.record.blob("cubin").size, kernel.seconds))
    report.add("What is looked up", head, rows, "The kernels of the set-up, compiled by this run for sm_90a.")
    return bench


def _cutlass(report: Report) -> tuple[tuple[str, str], ...]:
    sys.dont_write_bytecode = True  # a new __pycache__ beside a source changes the folder that is watched
    sys.path.insert(0, str(EXAMPLES))
    from wheel_headers import cutlass

    try:
        return (("cutlass", str(cutlass())),)
    except (OSError, subprocess.CalledProcessError) as exc:
        report.leave_out("the lookups of CUTLASS kernels", f"their headers cannot be fetched ({exc})")
        return ()


def _compiled(store: Store, source: Path, options: tuple[str, ...], roots: tuple[tuple[str, str], ...]) -> Kernel:
    print(f"compiling {source.name}", file=sys.stderr, flush=True)
    variant = Variant.from_file(source, ARCH, options=options, roots=[Root(*root) for root in roots])
    artifact = store.get_or_compile(variant)
    if not artifact.cacheable:
        raise SystemExit(f"{source.name} cannot be kept: {artifact.reason}")
    return Kernel(source.stem, source, options, roots, artifact.record, artifact.record.seconds)


def sibling(store: Store, kernel: Kernel, **rest: object) -> Variant:
    """Another variant of a kernel over the same headers, published without a compile."""
    variant = kernel.variant(**rest)
    parts = action_parts(store.normalize(variant))
    action = action_of(parts)
    fingerprint = fingerprint_of(action, kernel.record.observations)
    record = replace(kernel.record, action=action, fingerprint=fingerprint, parts=part_digests(parts))
    first = store.find(kernel.record.fingerprint)
    store.publish(replace(first, _record=record))
    return variant


def data_of(serial: int, size: int) -> bytes:
    return random.Random(serial).randbytes(size)


def build(template: Record, serial: int, data: bytes) -> tuple[Record, dict[Digest, bytes]]:
    """A build like a real one in all but its names: a record with one blob to publish."""
    digest = digest_of(data)
    action = Action(blake3(b"bench action %d" % serial).hexdigest())
    blobs = tuple((role, BlobRef(digest, len(data)) if role == "cubin" else ref) for role, ref in template.blobs)
    fingerprint = fingerprint_of(action, template.observations)
    return replace(template, action=action, fingerprint=fingerprint, blobs=blobs), {digest: data}


def grown(folder: Path) -> LocalLayer:
    """A local layer, not flushing, whose folders are all there, as after a few hundred builds."""
    for kind in ("records", "blobs", "manifests"):
        for fan in range(256):
            (folder / kind / f"{fan:02x}").mkdir(parents=True, exist_ok=True)
    return LocalLayer(str(folder), durable=False)


def absent(serial: int) -> Fingerprint:
    return Fingerprint(blake3(b"bench nobody %d" % serial).hexdigest())


def read_floor(path: str) -> bytes:
    """The least a read of one file takes in Python."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def open_floor(path: str) -> None:
    try:
        os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    raise AssertionError(path)
