"""S3 by obstore: a twentieth of s3fs's time a request, for processes that do not fork.

Its threads do not survive `fork`, and it then hangs for ever, even in a client made anew. So it belongs to the process
that used it first; in a child every call is refused.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cubinet.errors import ConfigError, RemoteMisconfiguredError, RemoteUnavailableError
from cubinet.protocols import Entry, Object
from cubinet.remotes._base import BaseRemote, shorten
from cubinet.remotes._bucket import OPTIONS, explain, split
from cubinet.remotes._options import refuse, take

__all__ = ["ObstoreRemote"]

_STATUS = re.compile(r"status:? (\d{3})|HTTP status (?:client|server) error \((\d{3})|\b([45]\d\d) [A-Z][a-z]+")
_CODE = re.compile(r"(?:<Code>|\(code: )(\w+)(?:</Code>|\))")
_REGION = re.compile(r"<Region>([\w-]+)</Region>")
_STORES = 8

_owner: list[int] = []
"""The process that uses obstore, once one does."""


class ObstoreRemote(BaseRemote):
    """`s3-obstore://bucket/prefix`.

    Options: `endpoint_url`, `region`, `anon`, `key`, `secret`, `token`, `connect_timeout` (5 s), `read_timeout`,
    `connections`; what is not given comes from AWS's environment variables, or the machine's role.
    """

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(url, options)
        self._bucket, self._prefix = "", ""
        self._given: dict[str, Any] = {}
        self._stores: dict[float, Any] = {}
        self._quoted: bool | None = None

    def _settle(self) -> None:
        if self._bucket:
            return
        bucket, self._prefix = split(self._address, self.url)
        if "profile" in self._options:
            refuse(self.url, "profile", "obstore knows no profiles", "use s3://, or give key and secret")
        self._given = take(self.url, self._options, OPTIONS)
        self._bucket = bucket

    def _refuse_child(self, action: str) -> None:
        if _owner and _owner[0] != os.getpid():
            finding = "obstore was used before this process was forked, and does not survive that"
            raise RemoteUnavailableError(action, self.url, finding, "use s3://, or start processes by spawn")

    def _store(self, timeout: float) -> Any:
        """The client with this time-out."""
        self._refuse_child("use")
        # A client takes 10 ms to make and a connection of its own: one for times up to 0.25, 0.5, 1, 2, … seconds.
        # Who calls has its own deadline.
        timeout = 2.0 ** math.ceil(math.log2(max(timeout, 0.25)))
        store = self._stores.get(timeout)
        if store is None:
            with self._lock:
                if len(self._stores) >= _STORES:
                    self._stores.clear()
                store = self._stores.get(timeout) or self._stores.setdefault(timeout, self._make(timeout))
        return store

    def _make(self, timeout: float) -> Any:
        try:
            from obstore.store import S3Store
        except ImportError as exc:
            finding = f"obstore cannot be imported ({exc})"
            raise RemoteMisconfiguredError("use", self.url, finding, "install cubinet[obstore]") from exc
        from datetime import timedelta

        given = self._given
        names = {"endpoint_url": "endpoint", "region": "region", "anon": "skip_signature", "key": "access_key_id"}
        names |= {"secret": "secret_access_key", "token": "session_token"}
        config = {names[name]: value for name, value in given.items() if name in names}
        config["checksum_algorithm"] = "SHA256"  # SeaweedFS makes an empty object if the sender dies after the head
        if not config.get("region") and not os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION")):
            config["region"] = "us-east-1"
        options = {
            "timeout": timedelta(seconds=max(0.001, min(timeout, given.get("read_timeout", timeout)))),
            "connect_timeout": timedelta(seconds=min(timeout, given.get("connect_timeout", 5.0))),
            "pool_max_idle_per_host": str(given.get("connections", 32)),
            "allow_http": str(given.get("endpoint_url", "")).startswith("http://"),
        }
        try:
            return S3Store(
                self._bucket,
                prefix=self._prefix.rstrip("/") or None,
                config=config,  # type: ignore[arg-type]
                client_options=options,  # type: ignore[arg-type]
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=timeout)},
            )
        except Exception as exc:
            raise ConfigError("use remote", self.url, shorten(exc), "check its options") from exc

    def prepare(self) -> None:
        """Import obstore. Raises `ConfigError`; without obstore `RemoteMisconfiguredError`."""
        self._settle()
        self._store(5.0)

    def _start(self, body: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Future[Any]:
        self._refuse_child("use")
        self._settle()
        if not _owner:
            _owner.append(os.getpid())
        self._store(timeout)
        return super()._start(body, args, timeout)

    def _get(self, name: str, timeout: float, limit: int | None) -> Object | None:
        import obstore

        try:
            found = obstore.get(self._store(timeout), name)
        except FileNotFoundError as exc:
            self._missing(f"read {name} from", exc)
            return None
        size = found.meta["size"]
        if limit is not None and size > limit:
            finding = f"more than the {limit} bytes that belong there"
            raise RemoteMisconfiguredError(f"read {name} from", self.url, finding)
        data = bytes(found.bytes())
        if len(data) != size:
            raise RemoteUnavailableError(f"read {name} from", self.url, f"{len(data)} of {size} bytes came")
        return Object(data, found.meta["e_tag"] or "", found.meta["last_modified"].timestamp())

    def _missing(self, action: str, exc: BaseException) -> None:
        """Nothing, if it is the object that is missing."""
        code = _CODE.search(str(exc))
        if not code or code[1] != "NoSuchKey":
            raise explain(action, self.url, 404, code[1] if code else "") from exc

    def _put(self, name: str, data: bytes, timeout: float, create: bool, match: str) -> bool:  # noqa: FBT001
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError, PreconditionError

        modes: list[Any] = ["overwrite"]
        if create and self.conditional is not False:
            modes = ["create"]
        elif match and self.conditional is not False:  # Ceph compares without quotes
            modes = [{"e_tag": match}] * (self._quoted is not False)
            modes += [{"e_tag": match.strip('"')}] * (self._quoted is not True)
        for mode in modes:
            try:
                obstore.put(self._store(timeout), name, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                self.conditional = True
            except FileNotFoundError as exc:
                self._missing(f"write {name} to", exc)
                if not match:
                    raise
            except (NotSupportedError, GenericError) as exc:
                if not isinstance(exc, NotSupportedError) and "NotImplemented" not in str(exc):
                    raise
                self.conditional = False
                obstore.put(self._store(timeout), name, data, mode="overwrite", use_multipart=False)
                return True
            else:
                if isinstance(mode, dict):
                    self._quoted = mode["e_tag"] == match
                return True
        return False

    def _stat(self, name: str, timeout: float) -> Entry | None:
        import obstore

        store = self._store(timeout)
        try:
            meta = obstore.head(store, name)
        except FileNotFoundError:
            try:  # HEAD has no body to say whether it is the object or the bucket that is missing
                meta = obstore.get(store, name).meta
            except FileNotFoundError as exc:
                self._missing(f"look at {name} in", exc)
                return None
        return Entry(name, meta["size"], meta["last_modified"].timestamp())

    def _delete(self, names: Sequence[str], timeout: float) -> None:
        import obstore

        try:
            obstore.delete(self._store(timeout), list(names))
        except FileNotFoundError as exc:
            self._missing("delete from", exc)

    def _pages(self, prefix: str, timeout: float) -> Iterator[list[Entry]]:
        import obstore

        # obstore takes prefixes by whole segments only.
        folder = prefix.rpartition("/")[0]
        for page in obstore.list(self._store(timeout), folder or None, chunk_size=1000):
            yield [
                Entry(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for meta in page
                if meta["path"].startswith(prefix)
            ]

    def _explain(self, action: str, exc: BaseException) -> Exception:
        text = str(exc)
        code, region = _CODE.search(text), _REGION.search(text)
        status = next((int(part) for found in [_STATUS.search(text)] if found for part in found.groups() if part), 0)
        if not status:
            status = {"PermissionDeniedError": 403, "UnauthenticatedError": 401}.get(type(exc).__name__, 0)
        if isinstance(exc, FileNotFoundError):
            status = 404
        if "redirect without LOCATION" in text:
            status = 301
        if status or code:
            return explain(action, self.url, status, code[1] if code else "", "", region[1] if region else "")
        return RemoteUnavailableError(action, self.url, shorten(exc))

    def close(self) -> None:
        """Let go of the clients."""
        self._stores = {}
