"""S3 by s3fs: one request a call, one private client a process, and a hard deadline on each.

The requests are made by s3fs's `_call_s3`, not by its file system methods: those ask HEAD or LIST first, retry at three
levels, and hide which answer it was.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cubinet.errors import (
    ConfigError,
    RemoteDeniedError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
)
from cubinet.protocols import Entry, Object
from cubinet.remotes._base import BaseRemote, shorten
from cubinet.remotes._bucket import OPTIONS, answer_of, explain, split
from cubinet.remotes._options import convert, refuse, take

__all__ = ["S3Remote"]

_CHUNK = 1 << 18
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "InvalidToken")
_OWN: Mapping[str, type] = {**OPTIONS, "profile": str, "addressing": str, "checksums": bool, "requester_pays": bool}
_TABLES = ("client_kwargs", "config_kwargs", "s3_additional_kwargs")
_TAKEN = ("asynchronous", "loop", "session", "max_concurrency", "username", "password", "kwargs", "self")

_live: weakref.WeakSet[S3Remote] = weakref.WeakSet()
_orphans: list[object] = []


class S3Remote(BaseRemote):
    """`s3://bucket/prefix` on AWS, or on any server of its kind by `endpoint_url`.

    Options: `endpoint_url`, `region`, `profile`, `anon`, `key`, `secret`, `token`, `connect_timeout` (5 s),
    `read_timeout` (5 s), `connections` (32), `addressing` (`path`, `virtual`, `auto`), `checksums` (on for AWS itself),
    `requester_pays`, and what s3fs's constructor takes by name. Without key and `anon`, credentials come from where
    botocore looks for them.
    """

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(url, options)
        self._bucket, self._prefix = "", ""
        self._fs_kwargs: dict[str, Any] = {}
        self._made: tuple[int, Any] | None = None
        self._quoted: bool | None = None  # how the server wants a tag in If-Match; None: not known
        _live.add(self)

    # -- the client

    def _settle(self) -> None:
        if self._bucket:
            return
        bucket, prefix = split(self._address, self.url)
        mine = {name: value for name, value in self._options.items() if name in _OWN}
        given = take(self.url, mine, _OWN)
        passed = self._passed({name: value for name, value in self._options.items() if name not in _OWN})
        if given.get("addressing", "auto") not in ("path", "virtual", "auto"):
            refuse(self.url, "addressing", "it is not path, virtual or auto")
        endpoint = given.get("endpoint_url") or os.environ.get(
            "AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL")
        )
        checksums = "when_supported" if given.get("checksums", not endpoint) else "when_required"
        config = {
            "connect_timeout": given.get("connect_timeout", 5.0),
            "read_timeout": given.get("read_timeout", 5.0),
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": max(1, given.get("connections", 32)),
            "request_checksum_calculation": checksums,
            "response_checksum_validation": checksums,
            "s3": {"addressing_style": given.get("addressing", "auto")},
            **passed.pop("config_kwargs", {}),
        }
        client = passed.pop("client_kwargs", {})
        if "region" in given:
            client["region_name"] = given["region"]
        same: dict[str, Any] = {
            name: given[name] for name in ("endpoint_url", "anon", "key", "secret", "token") if name in given
        }
        self._fs_kwargs = {
            **passed, **same, "client_kwargs": client, "config_kwargs": config,
            "requester_pays": given.get("requester_pays", False),
        }  # fmt: skip
        self._profile = given.get("profile")
        self._prefix = prefix
        self._bucket = bucket

    def _passed(self, extra: Mapping[str, object]) -> dict[str, Any]:
        """Options that are s3fs's own, of the kind that its defaults have."""
        if not extra:
            return {}
        import inspect

        known = {
            name: dict if name in _TABLES else str if rule.default is None else type(rule.default)
            for name, rule in inspect.signature(self._s3fs().S3FileSystem.__init__).parameters.items()
            if name not in _TAKEN and rule.default is not inspect.Parameter.empty
        }
        known = {name: kind for name, kind in known.items() if kind in (bool, int, float, str, dict)}
        unknown = sorted(set(extra) - set(known))
        if unknown:
            hint = f"known: {', '.join(sorted({*_OWN, *known}))}"
            refuse(self.url, unknown[0], "there is no such option", hint)
        return {name: convert(self.url, name, value, known[name]) for name, value in extra.items()}

    def _s3fs(self) -> Any:
        try:
            import s3fs
        except ImportError as exc:
            finding, remedy = f"s3fs cannot be imported ({exc})", "install cubinet[s3]"
            raise RemoteMisconfiguredError("use", self.url, finding, remedy) from exc
        return s3fs

    def _filesystem(self) -> Any:
        """The private file system of this process."""
        self._settle()
        made = self._made
        if made is None or made[0] != os.getpid():
            with self._lock:
                made = self._made
                if made is None or made[0] != os.getpid():
                    made = self._made = os.getpid(), self._make()
        return made[1]

    def _make(self) -> Any:
        s3fs = self._s3fs()
        from aiobotocore.session import AioSession

        session = AioSession(profile=self._profile) if self._profile else AioSession()
        # Without credentials anywhere botocore asks the cloud's metadata service, which elsewhere nobody answers.
        for name in ("metadata_service_timeout", "metadata_service_num_attempts"):
            if "AWS_" + name.upper() not in os.environ:
                session.set_config_variable(name, 0.5 if name.endswith("timeout") else 1)
        session.register("before-call.s3", _stay)
        try:
            fs = s3fs.S3FileSystem(
                session=session,
                skip_instance_cache=True,
                use_listings_cache=False,
                max_concurrency=1,
                **self._fs_kwargs,
            )
        except (TypeError, ValueError, KeyError) as exc:
            raise ConfigError("use remote", self.url, shorten(exc)) from exc
        fs.retries = 1
        return fs

    def _renew(self, old: Any) -> Any:
        """A file system with credentials read anew; `old` is the one whose had expired."""
        with self._lock:
            if self._made is None or self._made[1] is old:
                self._made = os.getpid(), self._make()
            return self._made[1]

    def prepare(self) -> None:
        """Import s3fs and make its client. Raises `ConfigError`; without s3fs `RemoteMisconfiguredError`."""
        import asyncio

        from botocore.exceptions import BotoCoreError, ProfileNotFound

        fs = self._filesystem()
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(fs.set_session(), 1.0), fs.loop)
        try:
            future.result(1.5)
        except ProfileNotFound as exc:
            raise ConfigError("use option 'profile' of", self.url, shorten(exc)) from exc
        except TimeoutError:
            future.cancel()  # slow credentials: the first call goes on waiting for them
        except (TypeError, ValueError, BotoCoreError) as exc:
            raise ConfigError("use remote", self.url, shorten(exc), "check its options") from exc

    def close(self) -> None:
        """Let go of the client; its connections end with it."""
        self._made = None

    def disown(self) -> None:
        """Forget a client of the parent process without closing what the parent uses."""
        made, self._made = self._made, None
        if made is not None:
            _orphans.append(made)

    # -- calls

    def _start(self, body: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Future[Any]:
        import asyncio

        fs = self._filesystem()

        async def call() -> Any:
            async with asyncio.timeout(timeout):
                try:
                    return await body(fs, *args)
                except Exception as exc:
                    answer = answer_of(exc)
                    if answer is None or answer[1] not in _EXPIRED:
                        raise
                return await body(self._renew(fs), *args)

        return asyncio.run_coroutine_threadsafe(call(), fs.loop)

    def _abandon(self, future: Future[Any]) -> None:
        future.cancel()

    async def _ask(self, fs: Any, method: str, **kwargs: Any) -> Any:
        return await fs._call_s3(method, Bucket=self._bucket, **kwargs)  # noqa: SLF001

    async def _get(self, fs: Any, name: str, timeout: float, limit: int | None) -> Object | None:  # noqa: ARG002
        try:
            answer = await self._ask(fs, "get_object", Key=self._prefix + name)
        except Exception as exc:
            if _code(exc) == "NoSuchKey":
                return None
            raise
        size, body = answer.get("ContentLength"), answer["Body"]
        action = f"read {name} from"
        chunks, got = [], 0
        try:
            while limit is None or max(got, size or 0) <= limit:
                chunk = await body.read(_CHUNK)
                if not chunk:
                    break
                chunks.append(chunk)
                got += len(chunk)
            else:
                finding = f"more than the {limit} bytes that belong there"
                raise RemoteMisconfiguredError(action, self.url, finding)
        finally:
            if size is None or got != size:
                body.close()
        if size is not None and got != size:
            raise RemoteUnavailableError(action, self.url, f"{got} of {size} bytes came")
        modified = answer.get("LastModified")
        return Object(b"".join(chunks), answer.get("ETag", ""), modified.timestamp() if modified else 0.0)

    async def _put(  # noqa: PLR0917
        self, fs: Any, name: str, data: bytes, timeout: float, create: bool, match: str  # noqa: ARG002, FBT001
    ) -> bool:  # fmt: skip
        import hashlib
        from base64 import b64encode

        # SeaweedFS makes an empty object if the sender dies between head and body; with a checksum it does not.
        check = b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        what = {"Key": self._prefix + name, "Body": data, "ContentMD5": check}
        if self.conditional is False or not (create or match):
            await self._ask(fs, "put_object", **what)
            return True
        if create:
            tries = [{"IfNoneMatch": "*"}]
        else:  # Ceph compares with the tag as it is without quotes
            tries = [{"IfMatch": match}] * (self._quoted is not False)
            tries += [{"IfMatch": match.strip('"')}] * (self._quoted is not True)
        for condition in tries:
            try:
                await self._ask(fs, "put_object", **what, **condition)
            except Exception as exc:
                answer = answer_of(exc)
                if answer is None:
                    raise
                status, code = answer[:2]
                if status == 501 or code in ("NotImplemented", "UnsupportedArgument"):
                    self.conditional = False
                    await self._ask(fs, "put_object", **what)
                    return True
                if status != 412 and code not in ("ConditionalRequestConflict", "NoSuchKey", "PreconditionFailed"):
                    raise
                self.conditional = True
            else:
                if match:
                    self._quoted = condition["IfMatch"] == match
                return True
        return False

    async def _stat(self, fs: Any, name: str, timeout: float) -> Entry | None:  # noqa: ARG002
        key = self._prefix + name
        try:
            answer = await self._ask(fs, "head_object", Key=key)
        except Exception as exc:
            found = answer_of(exc)
            if found is None or found[0] != 404:
                raise
            try:  # HEAD has no body to say whether it is the object or the bucket that is missing
                answer = await self._ask(fs, "get_object", Key=key)
            except Exception as exc2:
                if _code(exc2) == "NoSuchKey":
                    return None
                raise
            answer["Body"].close()
        return Entry(name, answer["ContentLength"], answer["LastModified"].timestamp())

    async def _delete(self, fs: Any, names: Sequence[str], timeout: float) -> None:  # noqa: ARG002
        if len(names) == 1:
            await self._ask(fs, "delete_object", Key=self._prefix + names[0])
            return
        wanted = {"Objects": [{"Key": self._prefix + name} for name in names], "Quiet": True}
        answer = await self._ask(fs, "delete_objects", Delete=wanted)
        for error in answer.get("Errors", ()):
            if error.get("Code") != "NoSuchKey":
                name = error.get("Key", "").removeprefix(self._prefix)
                status = 403 if error.get("Code") == "AccessDenied" else 500
                raise explain(f"delete {name} from", self.url, status, error.get("Code", ""), error.get("Message", ""))

    def _scan(self, prefix: str, timeout: float) -> Iterator[Entry]:
        more: dict[str, str] = {}
        while True:
            answer = self._run("list", self._page, prefix, more, timeout=timeout)
            for item in answer.get("Contents", ()):
                name = item["Key"].removeprefix(self._prefix)
                yield Entry(name, item["Size"], item["LastModified"].timestamp())
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    async def _page(self, fs: Any, prefix: str, more: Mapping[str, str]) -> Any:
        return await self._ask(fs, "list_objects_v2", Prefix=self._prefix + prefix, **more)

    def _explain(self, action: str, exc: BaseException) -> Exception:
        answer = answer_of(exc)
        if answer is not None:
            return explain(action, self.url, *answer)
        from botocore import exceptions

        seen: BaseException | None = exc
        while seen is not None:
            if isinstance(seen, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
                remedy = "set key and secret, a profile or AWS_ACCESS_KEY_ID, or anon for a public bucket"
                return RemoteDeniedError(action, self.url, "no credentials on this machine", remedy)
            if isinstance(seen, exceptions.CredentialRetrievalError | exceptions.TokenRetrievalError):
                return RemoteDeniedError(action, self.url, shorten(seen), "log in anew")
            if isinstance(
                seen, exceptions.ParamValidationError | exceptions.NoRegionError | exceptions.ProfileNotFound
            ):
                return RemoteMisconfiguredError(action, self.url, shorten(seen), "check its options")
            if isinstance(seen, exceptions.SSLError):
                return RemoteMisconfiguredError(action, self.url, shorten(seen), "check the certificate")
            seen = seen.__cause__
        return RemoteUnavailableError(action, self.url, shorten(exc), "check endpoint_url and the network")


def _stay(params: dict[str, Any], **_: object) -> None:
    """Keep botocore from following a bucket to another region by requests of its own."""
    params.setdefault("context", {}).setdefault("s3_redirect", {})["redirected"] = True


def _code(exc: BaseException) -> str:
    answer = answer_of(exc)
    return answer[1] if answer else ""


def _after_fork() -> None:
    for remote in list(_live):
        remote.disown()


os.register_at_fork(after_in_child=_after_fork)
