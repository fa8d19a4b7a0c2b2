"""`Store`: what programs use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cubinet.config import Settings
from cubinet.errors import ConfigError, LoadError, ReadOnlyError, StoreError
from cubinet.fingerprint import action_of, action_parts, digest_of
from cubinet.model import Artifact, Fingerprint, Record, Variant
from cubinet.protocols import Compiler
from cubinet.registry import loader
from cubinet.store.building import passed
from cubinet.store.lookup import Lookup

if TYPE_CHECKING:  # what a lookup does not need is imported where it is
    from cubinet.store.bulk import Moved
    from cubinet.store.explain import Explanation
    from cubinet.store.far import FarLayer
    from cubinet.store.pins import Pins
    from cubinet.store.recompile import Repeated
    from cubinet.store.remote import RemoteLayer
    from cubinet.store.retention import Collected, Limits
    from cubinet.store.verify import Verification

__all__ = ["Store"]


class Store(Lookup):
    """Finds compiled kernels, compiles those nobody has, and keeps them.

    Safe in threads, survives `fork`, and pickles as its settings.

    Args:
        folder: the local layer; the user's cache folder if neither this nor a setting names one.
        settings: everything else; `Settings.from_env()` if not given.
        environ: where compilers and their variables are looked for; if not given, the process's as it is
            now: later changes of `os.environ` do not reach this store.
        fs: the seam for file changes.
        compilers: adapters by name, used before those that are installed.

    Raises:
        ConfigError: a setting is wrong, or others can write the folder.
    """

    @classmethod
    def from_env(cls, prefix: str = "", environ: Mapping[str, str] | None = None) -> Self:
        """A store as the environment and the configuration file say.

        With a prefix, `<PREFIX>_CUBINET_<NAME>` comes before `CUBINET_<NAME>`: an embedding library
        gives its own name.
        """
        return cls(settings=Settings.from_env(prefix, environ), environ=environ)

    def load(self, what: Variant | Artifact | Fingerprint, device: Any = None) -> Any:
        """A module of launchable kernels: of a variant, compiled if no layer has it, or of what was found before.

        An image that the driver does not take for one is moved away and compiled again, once, if `what` is a variant.

        Args:
            what: what to load.
            device: a number, or the vendor's own object; the current one if not given.

        Raises `LoadError` with its kinds; for a variant also as `get_or_compile`; `StoreError` for a fingerprint that
        nobody has.
        """
        if isinstance(what, Variant):
            artifact = self.get_or_compile(what)
        elif isinstance(what, Fingerprint):
            found = self.find(what)
            if found is None:
                raise StoreError("load", what, "no layer has it", "see cubinet explain")
            artifact = found
        else:
            artifact = what
        chosen = loader(what.target.vendor if isinstance(what, Variant) else artifact.record.target.vendor)
        try:
            return chosen.load(artifact, device)
        except LoadError as exc:
            if not isinstance(what, Variant) or not chosen.damaged(exc):
                raise
            self._layers.reject(artifact, str(exc))
        self.refresh()
        object.__setattr__(what, "_held", None)
        request = self.normalize(what)
        parts = action_parts(request)
        return chosen.load(passed(what, self._compile(request, action_of(parts), parts)[0]), device)

    def explain(self, what: Variant | Fingerprint) -> Explanation:
        """Why a lookup hits, or what differs from the nearest known build. Never compiles."""
        from cubinet.store.explain import explain, explain_fingerprint

        if isinstance(what, Fingerprint):
            return explain_fingerprint(self._layers, what)
        request = self.normalize(what)
        parts = action_parts(request)
        return explain(self._layers, request, action_of(parts), parts)

    def publish(self, artifact: Artifact) -> bool:
        """Store an artifact obtained elsewhere, with all its blobs; `False` if it was there already.

        Raises `ReadOnlyError`, `StoreError`, and `ConfigError` if its bytes are not those of its record.
        """
        blobs = {}
        for role, ref in artifact.record.blobs:
            data = artifact.read(role)
            if data is None or digest_of(data) != ref.digest:
                raise ConfigError("publish", artifact.fingerprint, f"its {role} is not the one its record names")
            blobs[ref.digest] = data
        return self._local.publish(artifact.record, blobs)

    def records(self) -> Iterator[Record]:
        """All records of the local layer, in order of fingerprint. Damaged ones are left out."""
        for fingerprint in self._local.fingerprints():
            record = self._local.find(fingerprint)
            if record is not None:
                yield record

    def resolve(self, text: str) -> Fingerprint:
        """The one fingerprint that begins with some hex digits.

        Raises `ConfigError` if there is none, or several.
        """
        digits = text.strip().lower()
        if len(digits) < 4 or set(digits) - set("0123456789abcdef"):
            raise ConfigError("find fingerprint", repr(text), "expected at least 4 hex digits", "see cubinet ls")
        found = [name for name in self._local.names("records", digits[:2]) if name.startswith(digits)]
        if len(found) != 1:
            what = f"{len(found)} begin so" if found else f"none in {self.folder} begins so"
            raise ConfigError("find fingerprint", text, what, "give more digits" if found else "see cubinet ls")
        return Fingerprint(found[0])

    @property
    def pins(self) -> Pins:
        """What no collection takes, by tag."""
        from cubinet.store.pins import Pins

        return Pins(self._local)

    @property
    def far(self) -> tuple[FarLayer, ...]:
        """The layers beyond the local one, in the order in which they are asked."""
        return tuple(layer for layer, _ in self._layers.far)

    def far_layer(self, name: str | None = None) -> RemoteLayer:
        """The remote with this name (`s3`, as counters call it); the only one, or the first, if none is given.

        Raises `ConfigError`.
        """
        from cubinet.store.remote import RemoteLayer

        known = {layer.name: layer for layer, _ in self._layers.far if isinstance(layer, RemoteLayer)}
        if name is None and known:
            return next(iter(known.values()))
        if name not in known:
            found = f"known: {', '.join(known)}" if known else "no layer is a remote"
            raise ConfigError("use layer", name or "", found, "name it in CUBINET_LAYERS, as s3://bucket/prefix")
        return known[name]

    def push(
        self,
        layer: str | None = None,
        fingerprints: Collection[Fingerprint] | None = None,
        *,
        wanted: Callable[[Record], bool] = lambda _record: True,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Moved:
        """Send builds of the local layer to a remote, those that it does not have: all, or the named and `wanted` ones.

        Raises `ConfigError`, `RemoteError`, `ReadOnlyError`.
        """
        from cubinet.store.bulk import push

        remote = self.far_layer(layer)
        if not remote.writable:
            raise ReadOnlyError("push to", remote.place, "this layer is read-only")
        remote.prepare()
        chosen = list(self._local.fingerprints()) if fingerprints is None else fingerprints
        return push(self._local, remote, chosen, wanted=wanted, sign=self._layers.sign, progress=progress)

    def pull(
        self,
        layer: str | None = None,
        fingerprints: Collection[Fingerprint] | None = None,
        *,
        wanted: Callable[[Record], bool] = lambda _record: True,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Moved:
        """Fetch builds from a remote, those that the local layer does not have: all, or the named and `wanted` ones.

        Raises `ConfigError`, `RemoteError`, `StoreError`.
        """
        from cubinet.store.bulk import pull

        remote = self.far_layer(layer)
        remote.prepare()
        return pull(self._local, remote, fingerprints, wanted=wanted, progress=progress)

    def verify(self, progress: Callable[[int, int], None] = lambda _done, _all: None) -> Verification:
        """Read every record and blob; move what is damaged to `bad/`. `progress` gets done and all."""
        from cubinet.store.verify import verify

        return verify(self._local, progress)

    def collect(
        self,
        limits: Limits | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Collected:
        """Bring the local layer within limits, those of the settings if none are given, and sweep what was left behind.

        It happens by itself, too, after publishing. Raises `StoreError`, `ReadOnlyError`.
        """
        from cubinet.store.retention import Limits

        settings = self.settings
        limits = limits or Limits(settings.size, settings.age, settings.free)
        return self._retention().collect(limits, dry_run=dry_run, progress=progress)

    def recompile(
        self,
        count: int,
        folders: Mapping[str, str],
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> Repeated:
        """Compile a sample of stored records again and compare the bytes. `folders`: label → folder here."""
        from cubinet.store.recompile import recompile

        limit = self.settings.limit
        return recompile(self._local, self.compiler, count, folders, timeout=limit, progress=progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        environ = None if self._own_environ is None else dict(self._own_environ)
        return _restore, (type(self), self.settings, environ, self._given)

    def __repr__(self) -> str:
        return f"<Store {self.folder}>"


def _restore(
    cls: type[Store], settings: Settings, environ: dict[str, str] | None, compilers: dict[str, Compiler]
) -> Store:
    return cls(settings=settings, environ=environ, compilers=compilers)
