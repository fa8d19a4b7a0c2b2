"""The seams. A new compiler or layer is one module, one contract-test subclass and one entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cubinet.model import BlobRef, Digest, Fingerprint, Kernel, Observation, Record, Root, Toolchain, Variant

__all__ = ["Compiled", "Compiler", "Layer", "Request", "Step"]


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
