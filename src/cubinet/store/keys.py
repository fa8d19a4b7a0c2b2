"""Keys that sign records and keys that vouch for them: their texts, and the files that hold them.

Secrets stay in `PrivateKey`: no message, `repr` or pickle has one. `cryptography` is imported when a key is used.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from blake3 import blake3

from cubinet._fs import Fs
from cubinet.config import config_path
from cubinet.errors import ConfigError

__all__ = [
    "Keyring",
    "PrivateKey",
    "PublicKey",
    "add_lines",
    "ed25519",
    "is_plain",
    "key_file",
    "key_lines",
    "load_keyring",
    "load_private",
    "new_private",
    "read_guarded",
    "strict_base64",
    "told_lines",
]

_HEADER = "cubinet-private-key 1"
_WORD = "cubinet-key"
_DATA = "CUBINET_SIGN_KEY_DATA"
_COMMENT = re.compile(r"(?:^|\s)#")
_PRIVATE_LIMIT, LINES_LIMIT = 4096, 1 << 20
_NAME_LIMIT = 200


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that may vouch for records: 32 bytes, and a name for people."""

    raw: bytes
    name: str = ""

    @property
    def id(self) -> str:
        """`ed25519:` and the first 16 hex digits of the BLAKE3 of the 32 bytes."""
        return f"ed25519:{blake3(self.raw).hexdigest()[:16]}"

    def __str__(self) -> str:
        return " ".join(filter(None, (_WORD, self.id, base64.b64encode(self.raw).decode(), self.name)))

    @classmethod
    def parse(cls, line: str, where: str = "") -> Self:
        """Read the form that `str()` writes. Raises `ConfigError` for anything else."""
        words = line.split(None, 3)
        if words[:1] != [_WORD] or len(words) < 3:
            _malformed("public key", where, "not a key line", "it looks like: cubinet-key ed25519:… BASE64 NAME")
        raw = strict_base64(words[2])
        if raw is None or len(raw) != 32:
            _malformed("public key", where, "its third word is not the base64 of 32 bytes", "copy the whole line")
        key = cls(raw, _name(words[3].strip() if len(words) > 3 else "", where))
        if key.id != words[1]:
            _malformed("public key", where, f"its bytes are those of {key.id}", "copy the whole line")
        return key


Keyring = Mapping[str, PublicKey]
"""Key id → key: the keys somebody trusts."""


class PrivateKey:
    """A key that signs. Its 32 secret bytes are in no `repr`; it cannot be pickled or copied.

    Raises `ConfigError` if the package `cryptography` is missing.
    """

    __slots__ = ("_secret", "public")

    def __init__(self, secret: bytes, name: str = "") -> None:
        self._secret = ed25519().Ed25519PrivateKey.from_private_bytes(secret)
        self.public = PublicKey(self._secret.public_key().public_bytes_raw(), name)

    @property
    def id(self) -> str:
        """The key's id."""
        return self.public.id

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return bytes(self._secret.sign(data))

    def file_bytes(self) -> bytes:
        """The bytes of its file, the secret among them."""
        lines = [_HEADER, f"name {self.public.name}"] if self.public.name else [_HEADER]
        return "\n".join([*lines, base64.b64encode(self._secret.private_bytes_raw()).decode(), ""]).encode()

    def __repr__(self) -> str:
        return f"PrivateKey({self.id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled or copied: name its file instead")


def new_private(name: str = "") -> PrivateKey:
    """A fresh key. Raises `ConfigError` for a name that does not fit in a line."""
    return PrivateKey(os.urandom(32), _name(name, ""))


def key_file(name: str, environ: Mapping[str, str], named: str = "") -> str:
    """Where `private-key`, `trusted-keys` or `revoked` is: as the setting names it, else beside the configuration."""
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return os.path.join(os.path.dirname(os.path.abspath(config_path(environ))), name)


def load_private(path: str, environ: Mapping[str, str]) -> PrivateKey | None:
    """The key to sign with: from `CUBINET_SIGN_KEY_DATA`, else from this file; `None` if neither is given.

    Raises `ConfigError` if it is missing, malformed, or others can read it.
    """
    if environ.get(_DATA):
        secret = strict_base64(environ[_DATA].strip())
        if secret is None or len(secret) != 32:
            _malformed("private key", _DATA, "not the base64 of 32 bytes", "give the last line of a private key file")
        return PrivateKey(secret)
    if not path:
        return None
    data = read_guarded(path, "private key", _PRIVATE_LIMIT, forbidden=0o077)
    if data is None:
        raise ConfigError("read private key", path, "no such file", "make one with cubinet key new")
    header, *lines = data.decode("utf-8", "replace").split("\n")
    if header != _HEADER:
        if header.startswith(_HEADER[:-1]):
            _malformed("private key", path, "a newer form of file", "upgrade cubinet")
        _malformed("private key", path, f"its first line is not {_HEADER!r}", "make one with cubinet key new")
    name = lines.pop(0).removeprefix("name ").strip() if lines and lines[0].startswith("name ") else ""
    secret = strict_base64(lines[0]) if lines else None
    if secret is None or len(secret) != 32 or any(lines[1:]):
        _malformed("private key", path, "it does not end with one line, the base64 of 32 bytes", "restore or remake it")
    return PrivateKey(secret, _name(name, path))


def load_keyring(path: str, *, required: bool = False) -> Keyring:
    """The keys in this file; none if it is not there and need not be.

    Raises `ConfigError` if it is malformed or others can write it.
    """
    data = read_guarded(path, "trusted keys", required=required)
    return {} if data is None else {key.id: key for key in key_lines(data, path)}


def key_lines(data: bytes, path: str) -> list[PublicKey]:
    """Public keys, one a line. Raises `ConfigError` with the number of the line that is none."""
    return [PublicKey.parse(line, f"{path}:{number}") for number, line in told_lines(data, path)]


def add_lines(path: str, lines: list[str], fs: Fs) -> list[str]:
    """Add lines that a file of keys or revocations lacks, in one step; the ones that were added.

    Raises `ConfigError` if the file cannot be written, or others can write it.
    """
    from cubinet.store.lock import FileLock

    path = os.path.realpath(path)  # a link stays one
    folder = os.path.dirname(path)
    lock = FileLock(fs, f"{path}.lock", prepare=lambda: fs.mkdir(folder, 0o700))
    try:
        lock.acquire(10.0)
        try:
            data = read_guarded(path, "file") or b""
            have = {_identity(line) for _, line in told_lines(data, path)}
            added = [line for line in dict.fromkeys(lines) if _identity(line) not in have]
            if added:
                start = data if not data or data.endswith(b"\n") else data + b"\n"
                temporary = f"{path}.{os.urandom(6).hex()}.tmp"
                fs.create(temporary, start + "".join(f"{line}\n" for line in added).encode(), mode=0o644)
                try:
                    fs.rename(temporary, path)
                except BaseException:
                    fs.discard(temporary)
                    raise
                fs.sync_folder(folder)
            return added
        finally:
            lock.release()
    except OSError as exc:
        raise ConfigError("write", path, exc.strerror or str(exc)) from exc


def _identity(line: str) -> str:
    """What makes two lines the same: a key's id, whatever its name, or the entry."""
    words = line.split()
    return words[1] if words[0] == _WORD and len(words) > 1 else " ".join(words)


def told_lines(data: bytes, path: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, with their numbers; `#` at the start or after a blank begins a comment."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigError("read", path, f"not UTF-8 ({exc.reason} at byte {exc.start})") from exc
    for number, line in enumerate(text.split("\n"), 1):
        told = _COMMENT.split(line, maxsplit=1)[0].strip()
        if told:
            yield number, told


def read_guarded(
    path: str, what: str, limit: int = LINES_LIMIT, *, forbidden: int = 0o022, required: bool = False
) -> bytes | None:
    """A file that only we or root can change (or read, by `forbidden`); `None` if it is not there.

    Raises `ConfigError` for any other file, or if it is `required` and not there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not keep us waiting
    except FileNotFoundError as exc:
        if required:
            raise ConfigError(
                f"read {what}", path, "no such file", "make it, or unset the setting that names it"
            ) from exc
        return None
    except (OSError, ValueError) as exc:
        raise ConfigError(f"read {what}", path, getattr(exc, "strerror", None) or str(exc)) from exc
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"read {what}", path, "not a file")
        if info.st_uid not in (0, os.geteuid()):
            finding = f"it belongs to user {info.st_uid}, not to you"
            raise ConfigError(f"use {what}", path, finding, "make your own copy of it")
        if info.st_mode & forbidden:
            does, remedy = ("read or write", "go-rwx") if forbidden & 0o044 else ("write", "go-w")
            finding = f"others can {does} it (mode {info.st_mode & 0o7777:04o})"
            raise ConfigError(f"use {what}", path, finding, f"chmod {remedy} it")
        data = os.read(fd, limit + 1)
    except OSError as exc:
        raise ConfigError(f"read {what}", path, exc.strerror or str(exc)) from exc
    finally:
        os.close(fd)
    if len(data) > limit:
        raise ConfigError(f"read {what}", path, f"larger than {limit} bytes")
    return data


def is_plain(text: str) -> bool:
    """Whether it can stand in a line and on a terminal, and is read back as it was."""
    return text.isprintable() and text == text.strip() and not _COMMENT.search(text)


def _name(name: str, where: str) -> str:
    if len(name) > _NAME_LIMIT or not is_plain(name):
        _malformed("name of key", where, f"more than {_NAME_LIMIT} characters, or not plain text", "give a short name")
    return name


def _malformed(what: str, where: str, finding: str, remedy: str) -> NoReturn:
    raise ConfigError(f"read {what}", where, finding, remedy) from None


def ed25519() -> Any:
    """The module of that name in `cryptography`. Raises `ConfigError` if it is missing."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as exc:
        finding = "the package cryptography is not installed"
        raise ConfigError("use signatures", "", finding, "pip install 'cubinet[sign]'") from exc
    return ed25519


def strict_base64(text: str) -> bytes | None:
    """The bytes, or `None` if this is not exactly how they are written: no blanks, no spare bits."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64.b64encode(data).decode() == text else None
