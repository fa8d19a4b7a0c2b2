"""The values everything else is made of. Standard library only, immutable, comparable, picklable."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from cubinet.errors import ConfigError, IntegrityError

__all__ = [
    "Action",
    "Artifact",
    "BlobRef",
    "Digest",
    "Fingerprint",
    "Kernel",
    "Observation",
    "Outline",
    "Program",
    "Record",
    "Root",
    "Seen",
    "Status",
    "Target",
    "Toolchain",
    "Variant",
]

_HEX64 = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SOURCE_NAME = re.compile(r"""[^/\x00-\x1f"$`\\-][^/\x00-\x1f"$`\\]{0,199}\.(cu|cpp|cc|cxx|c|asc|cce)""")
_ARCH = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

OUTPUT_KINDS = ("cubin", "ptx", "fatbin", "ltoir", "ascend")
ROOT_KINDS = ("include", "system", "quote", "beside")
RESERVED_LABELS = re.compile(r"src|work|file|hostlib|(toolkit|host|pre)[0-9]*")
"""Labels Cubinet gives out itself: the source's folder, files given by `-include`, the
toolkit's headers, the host compiler's."""


@dataclass(frozen=True, slots=True, order=True)
class _Hash:
    """256 bits with a meaning; the subclasses keep the meanings apart."""

    hex: str
    prefix: ClassVar[str] = ""
    _held: ClassVar[None] = None  # what a variant has: so that a lookup need not ask which of the two it got

    def __post_init__(self) -> None:
        if not _HEX64.fullmatch(self.hex):
            raise ConfigError(f"read {type(self).__name__.lower()}", repr(self.hex[:80]), "expected 64 hex digits")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the form that `str()` writes. Raises `ConfigError` for anything else."""
        return cls(text.removeprefix(cls.prefix))

    @classmethod
    def known(cls, digits: str) -> Self:
        """The same as the class itself, for what has been checked to be 64 hex digits: several times as fast."""
        made = object.__new__(cls)
        object.__setattr__(made, "hex", digits)
        return made

    @property
    def raw(self) -> bytes:
        """The 32 bytes."""
        return bytes.fromhex(self.hex)

    def __str__(self) -> str:
        return self.prefix + self.hex


@dataclass(frozen=True, slots=True, order=True)
class Digest(_Hash):
    """BLAKE3-256 of some bytes; written `blake3:<64 hex digits>`."""

    prefix: ClassVar[str] = "blake3:"


@dataclass(frozen=True, slots=True, order=True)
class Action(_Hash):
    """Everything known before compiling, except header content."""


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint(_Hash):
    """The identity of a build: its action and everything the compiler looked at."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Vendor and architecture exactly as compiled: `cuda:sm_90a`. `sm_90` and `sm_90a` differ."""

    vendor: str
    arch: str

    def __post_init__(self) -> None:
        if self.vendor not in ("cuda", "ascend"):
            raise ConfigError("use target", str(self), f"unknown vendor {self.vendor!r}", "known: cuda, ascend")
        if not _ARCH.fullmatch(self.arch):
            raise ConfigError("use target", str(self), "malformed architecture", "an example: cuda:sm_90a")
        if self.arch in ("native", "all", "all-major"):
            raise ConfigError(
                "use target", str(self), "it means something else on each machine", "name the architecture, as sm_90a"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `vendor:arch`, or `arch` alone for CUDA."""
        vendor, colon, arch = text.partition(":")
        return cls(vendor, arch) if colon else cls("cuda", text)

    def __str__(self) -> str:
        return f"{self.vendor}:{self.arch}"


@dataclass(frozen=True, slots=True)
class Root:
    """A folder of headers under a label. The label is identity, the place is not.

    Args:
        label: name for the folder, the same on every machine (`cutlass`).
        path: where it is here.
        kind: how the compiler searches it: `include` (`-I`), `system` (`-isystem`), `quote` (for
            quoted includes of every file) or `beside` (the folder the source itself lies in).
    """

    label: str
    path: str
    kind: str = "include"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        if not _LABEL.fullmatch(self.label):
            raise ConfigError(
                "use root label", repr(self.label), "not a plain name", "use up to 64 letters, digits, '_', '-', '.'"
            )
        if self.kind not in ROOT_KINDS:
            raise ConfigError("use root", self.label, f"unknown kind {self.kind!r}", f"one of {', '.join(ROOT_KINDS)}")
        if "\0" in self.path:
            raise ConfigError("use root", self.label, "its path holds a NUL character")


def _pairs(value: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple(sorted((str(k), str(v)) for k, v in pairs))


@dataclass(frozen=True, slots=True)
class Variant:
    """What a caller wants built: the request.

    Args:
        source: the source text.
        target: a `Target`, or its text (`sm_90a`, `cuda:sm_90a`).
        kind: what to make: `cubin`, `ptx`, `fatbin`, `ltoir`; for an Ascend target `ascend`, also if nothing is said.
        options: compiler options, as the compiler takes them. Order is kept where it matters.
        roots: include folders, in search order; or a mapping of label to path.
        entries: kernels that must be in the result: a symbol (`scale`) or a C++ name
            (`scale<float>`). Order does not matter.
        source_name: the name the source has for the compiler, `__FILE__` and messages.
        source_folder: the folder for `#include "beside.h"`. If the source is there as a file, includes
            are found as from that file; else the folder is searched for quoted includes of every file.
        headers: headers given in memory, as a mapping of include name to text (NVRTC only).
        folder: where relative paths in options start; the working folder of the moment if not given.
        check_no_spills, check_no_local_memory: gates: an object with kernels that spill, or use local
            memory, is refused with `GateError`. No part of the key.
        hook: a Python file under a root, as `label:relative/path.py`, whose `edit(data: bytes) -> bytes`
            changes the object after it was compiled.
        signature: facts the caller wants in the key, as a mapping of strings.
        compiler: name of the compiler adapter.
        family, name, labels: for people and queries; never identity.
    """

    source: str
    target: Target
    kind: str = field(default="cubin", kw_only=True)
    options: tuple[str, ...] = field(default=(), kw_only=True)
    roots: tuple[Root, ...] = field(default=(), kw_only=True)
    entries: tuple[str, ...] = field(default=(), kw_only=True)
    source_name: str = field(default="kernel.cu", kw_only=True)
    source_folder: str | None = field(default=None, kw_only=True)
    headers: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    folder: str = field(default="", kw_only=True)
    hook: str = field(default="", kw_only=True)
    check_no_spills: bool = field(default=False, kw_only=True)
    check_no_local_memory: bool = field(default=False, kw_only=True)
    signature: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    compiler: str = field(default="nvcc", kw_only=True)
    family: str = field(default="", kw_only=True)
    name: str = field(default="", kw_only=True)
    labels: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    # The artifact last found for this very object, with the store generation that found it: what
    # makes a repeated lookup cost one attribute. Not part of the value.
    _held: tuple[object, Artifact] | None = field(default=None, init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # what callers may give is wider than what the fields hold

        def __init__(
            self,
            source: str,
            target: Target | str,
            *,
            kind: str = ...,
            options: Sequence[str] = ...,
            roots: Sequence[Root | tuple[str, str]] | Mapping[str, str] = ...,
            entries: Sequence[str] = ...,
            source_name: str = ...,
            source_folder: str | os.PathLike[str] | None = ...,
            headers: Mapping[str, str] | Sequence[tuple[str, str]] = ...,
            folder: str = ...,
            hook: str = ...,
            check_no_spills: bool = ...,
            check_no_local_memory: bool = ...,
            signature: Mapping[str, str] | Sequence[tuple[str, str]] = ...,
            compiler: str = ...,
            family: str = ...,
            name: str = ...,
            labels: Mapping[str, str] | Sequence[tuple[str, str]] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.target, Target):
            put(self, "target", Target.parse(self.target))
        if self.target.vendor == "ascend" and self.kind == "cubin":  # what is meant by saying nothing
            put(self, "kind", "ascend")
        for name in ("options", "entries"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ConfigError("use variant", name, "a single string", f"give a sequence: {name}=[{value!r}]")
            put(self, name, tuple(str(item) for item in value))
        put(self, "entries", tuple(sorted(set(self.entries))))
        roots = self.roots.items() if isinstance(self.roots, Mapping) else self.roots
        put(self, "roots", tuple(Root(*root) if isinstance(root, tuple) else root for root in roots))
        put(self, "headers", _pairs(self.headers))
        if self.options and not self.folder:
            put(self, "folder", os.getcwd())
        put(self, "signature", _pairs(self.signature))
        put(self, "labels", _pairs(self.labels))
        if self.source_folder is not None:
            put(self, "source_folder", str(Path(self.source_folder).absolute()))
        self._check()

    def _check(self) -> None:
        for root in self.roots:
            if not isinstance(root, Root):
                what = type(root).__name__
                raise ConfigError("use roots", "", f"found {what}", "give Root(label, path), or {label: path}")
        if not isinstance(self.source, str):
            raise ConfigError(
                "use source", "", f"found {type(self.source).__name__}", "give text, or Variant.from_file"
            )
        if not self.source.strip():
            raise ConfigError("use variant", self.name, "its source is empty")
        if not _SOURCE_NAME.fullmatch(self.source_name):
            raise ConfigError("use source name", repr(self.source_name), "not a plain file name", "as in kernel.cu")
        if self.kind not in OUTPUT_KINDS:
            raise ConfigError("make", repr(self.kind), "unknown output kind", f"one of {', '.join(OUTPUT_KINDS)}")
        texts = (self.source, self.hook, self.folder, *self.options, *self.entries)
        try:
            "".join((*texts, *chain.from_iterable((*self.headers, *self.signature)))).encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as exc:
            raise ConfigError("use variant", self.name, f"it holds text that is no text: {exc.reason}") from exc
        if any("\0" in text for text in (*self.options, *self.entries)):
            raise ConfigError("use variant", self.name, "an option or entry holds a NUL character")
        labels = [root.label for root in self.roots]
        if len(set(labels)) != len(labels):
            twice = sorted({label for label in labels if labels.count(label) > 1})
            raise ConfigError("use roots", ", ".join(twice), "two roots have this label", "give each its own")
        if any(RESERVED_LABELS.fullmatch(label) for label in labels):
            raise ConfigError("use roots", ", ".join(labels), "a label Cubinet uses itself", "name it differently")

    @classmethod
    def from_file(cls, path: str | Path, target: Target | str, **rest: Any) -> Self:
        """Take source, source name and source folder from a file.

        A name that a compiler's shell would trip over (`$`, double quotes) becomes `kernel.cu`.
        Raises `ConfigError` if the file cannot be read.
        """
        place = Path(path)
        try:
            source = place.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as exc:
            raise ConfigError("read source", str(path), exc.strerror or str(exc)) from exc
        rest.setdefault("source_name", place.name if _SOURCE_NAME.fullmatch(place.name) else "kernel.cu")
        rest.setdefault("source_folder", str(place.absolute().parent))
        rest.setdefault("name", place.stem)
        if not isinstance(target, Target):
            target = Target.parse(target)
        return cls(source, target, **rest)

    def source_bytes(self) -> bytes:
        """The source as the compiler reads it. Bytes that were not UTF-8 come back as they were."""
        return self.source.encode("utf-8", "surrogateescape")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "_held"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_held": None}.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Program:
    """One program or data file that takes part in a compile."""

    role: str
    path: str = field(compare=False)
    digest: Digest


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and its identity: the content of every program that runs, never where it is."""

    name: str
    version: str
    identity: Digest
    programs: tuple[Program, ...] = ()


class Seen(StrEnum):
    """How the compiler looked at a name."""

    READ = "read"
    PRESENT = "present"
    ABSENT = "absent"
    TIME = "time"
    """The time of a file that was read, where it reaches the result: line tables have it."""
    TREE = "tree"
    """A whole folder, names and content: the fallback when single looks could not be recorded."""


@dataclass(frozen=True, slots=True, order=True)
class Observation:
    """One thing the compiler looked at: `label:relative/path`, how, and the content if it read it.

    `digest` is that of the content for `read`, of the time for `time` and of the listing with all contents
    for `tree`; `None` otherwise. A folder that was only probed is `present` like a file.
    """

    name: str
    seen: Seen
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Digest and size in bytes of one blob of a record."""

    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a compiled object says of one kernel.

    `regs` counts 32-bit registers a thread; `shared` (static), `local` (a thread), `const` (bank 0
    and up, this kernel's) and `params` are bytes, `spills` the bytes of spill stores and loads if the
    compiler's log told them. `None` means: the object does not say.
    """

    name: str
    symbol: str
    regs: int | None = None
    shared: int | None = None
    local: int | None = None
    const: int | None = None
    params: int | None = None
    spills: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One build: which blobs it made, from what, by whom. Fields are those of the record format."""

    fingerprint: Fingerprint
    action: Action
    family: str
    name: str
    entries: tuple[str, ...]
    target: Target
    kind: str
    labels: tuple[tuple[str, str], ...]
    toolchain: Toolchain
    parts: tuple[tuple[str, str], ...]
    blobs: tuple[tuple[str, BlobRef], ...]
    kernels: tuple[Kernel, ...]
    seconds: float
    argv: tuple[str, ...]
    host: str
    observations: Digest
    observation_counts: tuple[tuple[str, int], ...]
    created: str
    producer: str
    names: tuple[tuple[str, str], ...] = ()
    """C++ name asked for → symbol, where the compiler told them."""
    local_only: str = ""
    """Why this build must not leave the local layer; empty if it may."""
    signatures: tuple[tuple[str, str], ...] = ()
    """Key id → signature in base64, as stored: nobody has checked them. `store/trust.py` does."""

    def blob(self, role: str) -> BlobRef | None:
        """The blob with this role, or `None`."""
        for have, ref in self.blobs:
            if have == role:
                return ref
        return None


class Outline(NamedTuple):
    """What a loader must know of a record, which is far less work to read than all of it.

    `target` is its text; `digest` is that of the main blob, empty if there is none; `kernels` are names and symbols;
    `names` as in the record.
    """

    target: str
    kind: str
    digest: str
    kernels: tuple[tuple[str, str], ...]
    names: tuple[tuple[str, str], ...]


class Status(StrEnum):
    """How a lookup ended."""

    HIT = "hit"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A record with its blobs at hand: what a lookup returns.

    Attributes:
        data: the verified bytes of the main blob (cubin, PTX or fatbin).
        status: `hit` or `compiled`, for the lookup that made this object.
        layer: the layer that answered, or that the result was published to; empty if it was kept
            nowhere.
        seconds: time the lookup took, wall clock.
        reason: why a compiled result was not stored; empty if it was.
        cacheable: whether it could have been; `False` if the key cannot account for all of its input.
        messages: what the compiler said just now, with the caller's file names; empty on a hit.
    """

    _record: Record | Callable[[], Record] = field(repr=False)
    data: bytes = field(repr=False)
    status: Status = Status.HIT
    layer: str = ""
    seconds: float = 0.0
    reason: str = ""
    cacheable: bool = True
    messages: str = field(default="", repr=False)
    _fingerprint: Fingerprint | None = field(default=None, repr=False, compare=False)
    _more: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    _reader: Callable[[BlobRef], bytes] | None = field(default=None, repr=False, compare=False)
    _outline: Outline | None = field(default=None, init=False, repr=False, compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Artifact):
            return NotImplemented
        mine = (self.data, self.status, self.layer, self.seconds, self.reason, self.record)
        return mine == (other.data, other.status, other.layer, other.seconds, other.reason, other.record)

    def __hash__(self) -> int:
        return hash((self.data, self.status, self.layer))

    @property
    def record(self) -> Record:
        """The build. Read from its stored form when it is first asked for: a hit need not wait for it."""
        if not isinstance(self._record, Record):
            object.__setattr__(self, "_record", self._record())
        return self._record  # type: ignore[return-value]

    @property
    def outline(self) -> Outline:
        """The little of the record that loading needs. Raises `FormatError` if the stored form has not even that."""
        found = self._outline
        if found is None:
            stored = getattr(self._record, "outline", None)
            found = stored() if stored is not None else _outline(self.record)
            object.__setattr__(self, "_outline", found)
        return found

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the build."""
        return self._fingerprint or self.record.fingerprint

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in it."""
        return self.record.kernels

    def symbol(self, name: str) -> str | None:
        """The symbol of a kernel by symbol, C++ name or the name it was asked for; `None` if there is none."""
        outline = self.outline
        for asked, symbol in outline.names:
            if asked == name:
                return symbol
        return next((symbol for full, symbol in outline.kernels if name in (symbol, full)), None)

    def read(self, role: str) -> bytes | None:
        """The bytes of one blob, verified; `None` if the build has no such role.

        Raises `IntegrityError` if the blob is gone or damaged.
        """
        if role == self.record.kind:
            return self.data
        ref = self.record.blob(role)
        if ref is None:
            return None
        if role in self._more:
            return self._more[role]
        if self._reader is None:
            raise IntegrityError(f"blob {ref.digest} ({role})", "its bytes", "no layer at hand")
        return self._reader(ref)


def _outline(record: Record) -> Outline:
    main = record.blob(record.kind)
    kernels = tuple((kernel.name, kernel.symbol) for kernel in record.kernels)
    return Outline(str(record.target), record.kind, main.digest.hex if main else "", kernels, record.names)
