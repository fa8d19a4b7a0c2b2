"""Hypothesis strategies for the values of `cubinet.model`."""

from __future__ import annotations

import os

from hypothesis import strategies as st

from cubinet.fingerprint import fingerprint_of
from cubinet.model import (
    OUTPUT_KINDS,
    RESERVED_LABELS,
    ROOT_KINDS,
    Action,
    BlobRef,
    Digest,
    Kernel,
    Observation,
    Program,
    Record,
    Root,
    Seen,
    Target,
    Toolchain,
    Variant,
)

__all__ = ["actions", "digests", "names", "observations", "paths", "records", "roots", "targets", "texts", "variants"]

_HEX = st.binary(min_size=32, max_size=32).map(bytes.hex)


def digests() -> st.SearchStrategy[Digest]:
    """Any digest."""
    return _HEX.map(Digest)


def actions() -> st.SearchStrategy[Action]:
    """Any action."""
    return _HEX.map(Action)


def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any text that UTF-8 can write: control characters, NUL and all planes, no surrogates."""
    return st.text(st.characters(codec="utf-8"), max_size=max_size)


def paths() -> st.SearchStrategy[str]:
    """Any relative path as Python gives it: bytes that are no UTF-8 come as surrogates."""
    odd = st.binary(min_size=1, max_size=12)
    plain = st.text("abc/._- %\n\r\0\x85\u2028é", min_size=1, max_size=20).map(os.fsencode)
    return st.one_of(plain, odd).map(os.fsdecode)


def names() -> st.SearchStrategy[str]:
    """A plain name: a label, a kernel."""
    return st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,15}", fullmatch=True)


def targets() -> st.SearchStrategy[Target]:
    """Targets that exist."""
    return st.sampled_from(["cuda:sm_80", "cuda:sm_90", "cuda:sm_90a", "cuda:compute_90", "ascend:dav-2201"]).map(
        Target.parse
    )


def roots() -> st.SearchStrategy[Root]:
    """Roots with labels that callers may use."""
    labels = names().filter(lambda label: not RESERVED_LABELS.fullmatch(label))
    folders = names().map(lambda name: f"/opt/{name}")
    return st.builds(Root, labels, folders, st.sampled_from(ROOT_KINDS))


def observations() -> st.SearchStrategy[Observation]:
    """One look of a compiler."""
    named = st.builds("{}:{}".format, names(), paths())
    looked = st.builds(Observation, named, st.sampled_from([Seen.PRESENT, Seen.ABSENT]))
    read = st.builds(Observation, named, st.sampled_from([Seen.READ, Seen.TREE]), digests())
    return looked | read


def variants() -> st.SearchStrategy[Variant]:
    """Valid requests."""
    pairs = st.dictionaries(names(), texts(), max_size=3)
    return st.builds(
        Variant,
        texts(60).filter(lambda source: bool(source.strip())),
        targets(),
        kind=st.sampled_from(OUTPUT_KINDS),
        options=st.lists(texts().filter(lambda text: "\0" not in text), max_size=4),
        roots=st.lists(roots(), max_size=3, unique_by=lambda root: root.label),
        entries=st.lists(names(), max_size=3),
        source_name=names().map(lambda name: f"{name}.cu"),
        source_folder=st.none() | names().map(lambda name: f"/src/{name}"),
        headers=pairs,
        signature=pairs,
        compiler=st.sampled_from(["nvcc", "fake"]),
        family=texts(),
        name=texts(),
        labels=pairs,
    )


def _kernels() -> st.SearchStrategy[Kernel]:
    count = st.none() | st.integers(0, 2**40)
    fact = dict.fromkeys(("regs", "shared", "local", "const", "params", "spills"), count)
    return st.builds(Kernel, texts(), texts(), **fact)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Valid records in the form that reading one gives: parts and blobs sorted by name."""
    counts = st.integers(0, 2**40)
    pairs = st.dictionaries(names(), texts(), max_size=3).map(lambda d: tuple(sorted(d.items())))
    action, observed = draw(actions()), draw(digests())
    programs = draw(st.dictionaries(names(), digests(), max_size=3))
    blobs = draw(st.dictionaries(names(), st.builds(BlobRef, digests(), counts), max_size=4))
    return Record(
        fingerprint=fingerprint_of(action, observed),
        action=action,
        family=draw(texts()),
        name=draw(texts()),
        entries=tuple(draw(st.lists(texts(), max_size=3))),
        target=draw(targets()),
        kind=draw(st.sampled_from(OUTPUT_KINDS)),
        labels=draw(pairs),
        toolchain=Toolchain(
            draw(texts()),
            draw(texts()),
            draw(digests()),
            tuple(Program(role, "", digest) for role, digest in sorted(programs.items())),
        ),
        parts=draw(pairs),
        blobs=tuple(sorted(blobs.items())),
        kernels=tuple(draw(st.lists(_kernels(), max_size=3))),
        seconds=draw(st.integers(0, 10**10)) / 10**6,
        argv=tuple(draw(st.lists(texts(), max_size=3))),
        host=draw(texts()),
        observations=observed,
        observation_counts=draw(st.dictionaries(names(), counts, max_size=3).map(lambda d: tuple(sorted(d.items())))),
        created=draw(texts()),
        producer=draw(texts()),
        names=draw(pairs),
        local_only=draw(texts()),
    )
