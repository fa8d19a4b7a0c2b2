"""From settings to layers: what lies beyond the local one, whom it is trusted for, and with which key we sign."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cubinet._fs import Fs
from cubinet.config import Settings, config_path
from cubinet.events import Counters
from cubinet.layer_spec import LayerSpec
from cubinet.model import Record
from cubinet.registry import remote
from cubinet.store.far import FarLayer
from cubinet.store.guard import Guard
from cubinet.store.layered import Guarded

if TYPE_CHECKING:
    from cubinet.store.trust import Policy

__all__ = ["Opener"]


@dataclass(frozen=True, slots=True)
class Opener:
    """Makes the layers beyond the local one.

    Keys and revocations are read when it is made, so that a mistake in them is told at once.

    Args:
        settings: of the store.
        environ: for the key to sign with, and where configuration lies.
    """

    settings: Settings
    environ: Mapping[str, str]
    fs: Fs
    counters: Counters
    warn: Callable[[str, str], None]

    def layers(self) -> Sequence[Guarded]:
        """All of them, in the order in which they are asked. Raises `ConfigError`."""
        seen: Counter[str] = Counter()
        out = []
        for spec in self.settings.far:
            seen[spec.kind] += 1
            name = spec.kind if seen[spec.kind] == 1 else f"{spec.kind}{seen[spec.kind]}"
            layer = self.layer(spec, name)
            guard = Guard(name, layer.place, self.counters, self.warn, strict=self.settings.strict, budget=spec.budget)
            out.append((layer, guard))
        return out

    def layer(self, spec: LayerSpec, name: str) -> FarLayer:
        """One layer. Imports no client: that is for the first call."""
        kind = spec.trust or "signed"
        policy = self._policy(kind)
        if not spec.scheme:
            from cubinet.store.shared import SharedLayer

            return SharedLayer(
                spec.url,
                name=name,
                policy=policy,
                owner_only=kind == "owner",
                writable=spec.writable,
                fs=self.fs,
                durable=self.settings.durable,
                patience=spec.budget,
            )
        scheme = f"{spec.scheme}-{spec.client}" if spec.client else spec.scheme
        from cubinet.store.remote import RemoteLayer

        made = remote(scheme, spec.url, dict(spec.options))
        return RemoteLayer(made, name=name, policy=policy, writable=spec.writable)

    def _policy(self, kind: str) -> Policy:
        from cubinet.store.trust import Policy

        settings = self.settings
        return Policy.load(kind, self.environ, trusted_keys=settings.trusted_keys, revoked=settings.revoked)

    def sign(self) -> Callable[[bytes], bytes] | None:
        """What puts our signature to a record; `None` if no key is set. Raises `ConfigError`."""
        if not self.settings.sign_key and not self.environ.get("CUBINET_SIGN_KEY_DATA"):
            return None
        from cubinet.store.trust import load_private, sign

        key = load_private(os.path.expanduser(self.settings.sign_key), self.environ)
        return None if key is None else lambda raw: sign(raw, key)

    def admit(self) -> Callable[[bytes, Record], object] | None:
        """What refuses revoked records in the local layer; `None` if nothing is revoked."""
        beside = os.path.join(os.path.dirname(config_path(self.environ)), "revoked")
        if not self.settings.revoked and not os.path.exists(beside):
            return None
        policy = self._policy("open")
        return policy.admit if policy.looks else None
