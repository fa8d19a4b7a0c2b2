"""What each layer beyond the local one says to a lookup, and what is wrong with one that says nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cubinet.errors import CubinetError, TrustError
from cubinet.fingerprint import fingerprint_of
from cubinet.model import Action, Digest, Fingerprint
from cubinet.protocols import Remote, Request
from cubinet.store.far import FarLayer
from cubinet.store.layered import Layered

__all__ = ["Checkup", "LayerAnswer", "ask_layers", "examine"]

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LayerAnswer:
    """One layer's part in a lookup: `hit`, `miss`, `skipped` (a nearer one has it) or `failed`, and why."""

    layer: str
    outcome: str
    why: str
    fingerprint: Fingerprint | None = None


def ask_layers(
    layers: Layered, request: Request | None, action: Action | None, fingerprint: Fingerprint | None, *, had: bool
) -> Iterator[LayerAnswer]:
    """Each layer's answer, in order. Nothing comes back into nearer layers.

    Args:
        layers: all of them.
        request: what is looked for; if `None`, `fingerprint` is.
        action: its action.
        fingerprint: a build whose observations hold here, if one is known.
        had: whether a nearer layer has it.
    """
    for layer, guard in layers.far:
        if had:
            yield LayerAnswer(layer.name, "skipped", "a nearer layer has it")
            continue
        guard.begin(layer.prepare)
        if guard.open:
            yield LayerAnswer(layer.name, "failed", f"{layer.place} is left alone for now, because it failed")
            continue
        try:
            answer = _ask(layers, layer, request, action, fingerprint)
        except CubinetError as exc:
            answer = LayerAnswer(layer.name, "failed", str(exc))
        had = answer.outcome == "hit"
        yield answer


def _ask(
    layers: Layered, layer: FarLayer, request: Request | None, action: Action | None, fingerprint: Fingerprint | None
) -> LayerAnswer:
    if fingerprint is None and request is not None and action is not None:
        found = layer.candidates(action, timeout=_SECONDS)
        if not found:
            return LayerAnswer(layer.name, "miss", f"{layer.place} has no build of this action")
        here: Digest | None = next((d for d, data in found if _holds(layers, request, d, data)), None)
        if here is None:
            return LayerAnswer(layer.name, "miss", f"{layer.place} has {len(found)} builds of it from other headers")
        fingerprint = fingerprint_of(action, here)
    if fingerprint is None:
        return LayerAnswer(layer.name, "miss", "it has no fingerprint to ask for")
    try:
        fetched = layer.fetch(fingerprint, timeout=_SECONDS)
    except TrustError as exc:
        return LayerAnswer(layer.name, "failed", str(exc), fingerprint)
    if fetched is None:
        return LayerAnswer(layer.name, "miss", f"{layer.place} has no whole build with this fingerprint", fingerprint)
    return LayerAnswer(layer.name, "hit", f"{layer.place} has it", fingerprint)


def _holds(layers: Layered, request: Request, digest: Digest, data: bytes | None) -> bool:
    return layers.checker.holds(digest, request.places, lambda: data)


@dataclass(frozen=True, slots=True)
class Checkup:
    """What a layer can do: whether it answers, takes writes, keeps to create-only writes; milliseconds of a read.

    `None` means: not tried. `exclusive` is whether of several writers at once just one wins; where not, two hosts may
    hold a lease at once.
    """

    layer: str
    place: str
    problem: str = ""
    answers: bool | None = None
    writable: bool | None = None
    exclusive: bool | None = None
    milliseconds: float | None = None


def examine(layer: FarLayer) -> Checkup:
    """Try a layer out. What is written is removed again."""
    answers: bool | None = None
    try:
        layer.prepare()
        layer.fetch(Fingerprint("0" * 64), timeout=_SECONDS)
        answers = True
        start = time.perf_counter()
        layer.fetch(Fingerprint("1" * 64), timeout=_SECONDS)
        milliseconds = round(1000 * (time.perf_counter() - start), 2)
        if layer.remote is None or not layer.writable:
            return Checkup(layer.name, layer.place, "", answers, None, None, milliseconds)
        exclusive = _race(layer.remote)
    except CubinetError as exc:
        return Checkup(layer.name, layer.place, str(exc), answers or False, False if answers else None)
    return Checkup(layer.name, layer.place, "", answers, writable=True, exclusive=exclusive, milliseconds=milliseconds)


def _race(remote: Remote) -> bool:
    """Whether of four writers at once one wins, eight times over. Raises what the remote raises."""
    from os import urandom

    names = [f"v1/probes/{urandom(8).hex()}" for _ in range(8)]
    wins: list[str] = []
    errors: list[CubinetError] = []
    start = threading.Barrier(4)

    def write() -> None:
        for name in names:
            start.wait(_SECONDS)
            try:
                if remote.put(name, b"probe", timeout=_SECONDS, create=True):
                    wins.append(name)
            except CubinetError as exc:
                errors.append(exc)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    remote.delete(names, timeout=_SECONDS)
    if errors and not wins:
        raise errors[0]
    return sorted(wins) == sorted(names)
