"""The seams. A new compiler or layer is one module, one contract-test subclass and one entry point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cubinet.errors import CubinetError, RemoteError
from cubinet.model import (
    Artifact,
    BlobRef,
    Digest,
    Fingerprint,
    Kernel,
    Observation,
    Record,
    Root,
    Target,
    Toolchain,
    Variant,
)

__all__ = ["Compiled", "Compiler", "Entry", "Layer", "Loader", "Object", "Remote", "Request", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One place where a compiler was looked for: the rule, what it named, and whether that is it."""

    rule: str
    found: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A variant in the form its compiler adapter settled: what is keyed and what will run.

    Attributes:
        variant: what was asked for.
        toolchain: the compiler that would build it.
        arguments: canonical, location-free compiler arguments; keyed.
        environment: variables that reach the compiler and may matter; keyed.
        roots: all include folders in search order, those named in options included.
        places: label → absolute folder, for every label that an observation may name.
        same: labels that name one folder here, as `a=b`: a compiler may search such a folder only once.
        uncacheable: why the result must not be stored at all; empty if it may.
        revision: of what the adapter adds by itself, which its arguments do not show; keyed.
        bound: the folders this build is tied to (`-lineinfo` writes them into the result); keyed,
            and such a build stays in the local layer. Empty if it is tied to none.
        bound_by: what ties it, as a sentence.
        detail: whatever the adapter wants to find again when it compiles.
    """

    variant: Variant
    toolchain: Toolchain
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    roots: tuple[Root, ...]
    places: Mapping[str, str]
    same: tuple[str, ...] = ()
    uncacheable: str = ""
    revision: str = "1"
    bound: str = ""
    bound_by: str = ""
    detail: object = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiler adapter hands back.

    Attributes:
        data: the compiled object, inspected.
        log: everything the compiler printed, with labels instead of this machine's folders.
        kernels: the kernels in `data`.
        observations: what the compiler looked at.
        argv: the argument list that ran, with location-free names.
        seconds: wall clock of the compiler run.
        uncacheable: why this result must not be stored (an input changed meanwhile, …), or empty.
        local_only: why it must stay in the local layer, or empty.
        messages: the log with the caller's file names.
        kind: what was made, if it is not what was asked for (PTX for an architecture yet unknown).
        names: C++ name asked for → symbol, where the compiler told them.
        extra: further blobs by role.
    """

    data: bytes
    log: bytes
    kernels: tuple[Kernel, ...]
    observations: tuple[Observation, ...]
    argv: tuple[str, ...]
    seconds: float
    uncacheable: str = ""
    local_only: str = ""
    messages: str = ""
    kind: str = ""
    names: tuple[tuple[str, str], ...] = ()
    extra: Mapping[str, bytes] = field(default_factory=dict)


class Compiler(Protocol):
    """Turns requests into objects. Stateless but for memos; safe in threads."""

    name: str

    def toolchain(self) -> Toolchain:
        """The compiler at hand. Cheap when nothing changed. Raises `ToolchainNotFoundError`."""
        ...

    def steps(self) -> Sequence[Step]:
        """Where the compiler was looked for, in order."""
        ...

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant: canonical arguments, roots, places. Starts no process on a warm start.

        Raises `ConfigError` for options that contradict or are refused, `ToolchainNotFoundError`.
        """
        ...

    def refresh(self) -> None:
        """Look anew for the compiler at the next call."""
        ...

    def pin(self) -> object:
        """A description of the compiler at hand, for machines that have none (`cubinet toolchain`).

        Raises `ToolchainNotFoundError`; `ConfigError` if the adapter knows no such thing.
        """
        ...

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Run the compiler and inspect what it made.

        Raises `CompileError`; on it `observations` may be set to what the compiler had looked at.
        """
        ...


class Layer(Protocol):
    """One place in the ordered lookup. A miss is `None`; only trouble raises."""

    name: str

    def find(self, fingerprint: Fingerprint) -> Record | None:
        """The record, checked; `None` if the layer has none or only a damaged one."""
        ...

    def read(self, ref: BlobRef) -> bytes | None:
        """The verified bytes of a blob; `None` if it is gone or damaged."""
        ...

    def publish(self, record: Record, blobs: Mapping[Digest, bytes]) -> bool:
        """Store a build: blobs, then the record. `False` if the fingerprint was there already.

        Idempotent. Raises `ReadOnlyError` or `StoreError`; then the build is absent or whole.
        """
        ...

    def close(self) -> None:
        """Let go of files and locks."""
        ...


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a remote as it was read: its bytes, and the tag to give to `put(match=…)`.

    `tag` is empty where the remote has none. `modified` is seconds since the epoch by the remote's clock, 0.0 if
    it was not told.
    """

    data: bytes
    tag: str = ""
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a remote as a listing shows it: name below the remote's prefix, bytes, seconds since the epoch."""

    name: str
    size: int
    modified: float


class Remote(Protocol):
    """A flat namespace of immutable-by-convention objects: S3, or whatever can put and get bytes by name.

    Names are plain: `[a-z0-9]` segments joined by `/`, as `v1/records/ab/ab12…`. All calls are synchronous and safe in
    threads; each returns or raises within its `timeout` in seconds and a little, whatever the other end does. A
    remote opens nothing before its first call, survives `fork` (a child makes its own connections, or is refused
    with `RemoteUnavailableError`), and pickles as what it was made from. No call lists, or asks twice, to answer `get`.

    Every failure is a `RemoteError`: `RemoteUnavailableError`, `RemoteDeniedError`, `RemoteMisconfiguredError`; a
    missing bucket is none of "not there". A write to a remote that takes none is a `ReadOnlyError`.

    Attributes:
        url: its address, without secrets.
        read_only: whether it takes no writes at all (`http://`).
        conditional: whether `create` and `match` are kept to: `True`, `False` (the last writer wins), or `None` until
            that is known from the first answer.
    """

    url: str
    read_only: bool
    conditional: bool | None

    def prepare(self) -> None:
        """Import and construct what calls need, without asking the other end anything. May take a second."""
        ...

    def get(self, name: str, *, timeout: float, limit: int | None = None) -> Object | None:
        """One object, `None` if it is not there: one request. More than `limit` bytes is `RemoteMisconfiguredError`."""
        ...

    def put(self, name: str, data: bytes, *, timeout: float, create: bool = False, match: str = "") -> bool:
        """Write an object: one request. `False` if `create` was asked and there is one, or `match` is not its tag.

        Without `conditional`, both are taken as wishes: the object is written, and `True` comes back.
        """
        ...

    def stat(self, name: str, *, timeout: float) -> Entry | None:
        """Size and time of one object, `None` if it is not there."""
        ...

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Entry]:
        """All objects whose name begins so, in no order. `timeout` is that of each request."""
        ...

    def delete(self, names: Sequence[str], *, timeout: float) -> None:
        """Remove objects; those that are not there are no error."""
        ...

    def get_many(
        self, names: Iterable[str], *, timeout: float, limit: int | None = None
    ) -> Iterator[tuple[str, Object | RemoteError | None]]:
        """`get` of many, some at a time, in the order of their answers; an error belongs to its name."""
        ...

    def put_many(
        self, items: Iterable[tuple[str, bytes]], *, timeout: float, create: bool = False
    ) -> Iterator[tuple[str, bool | RemoteError]]:
        """`put` of many, some at a time, in the order of their answers; an error belongs to its name."""
        ...

    def close(self) -> None:
        """Let go of connections. A later call makes new ones."""
        ...


class Loader(Protocol):
    """Turns artifacts of one vendor into modules of launchable kernels. Safe in threads; does no work before `load`.

    A module gives kernels by name (`module["scale"]`), their names (`module.kernels`), the only one (`module.kernel`),
    and has `close()`. A kernel launches by `kernel.launch(config, *args, stream=None)` and `kernel[…](*args)`; `handle`
    is the vendor's own.
    """

    name: str

    def supports(self, target: Target) -> bool:
        """Whether artifacts for this target are this loader's. Says nothing about the device at hand."""
        ...

    def load(self, artifact: Artifact, device: Any = None) -> Any:
        """The module of an artifact, on a device or the current one.

        Raises `NoDeviceError`, `UnsupportedTargetError`, `DriverError`, `LoadError`.
        """
        ...

    def damaged(self, error: CubinetError) -> bool:
        """Whether an error of `load` means that the bytes are no sound object: worth compiling again, once."""
        ...
