"""`cubinet key`: make a signing key, say which keys are trusted, and take trust back."""

from __future__ import annotations

import os
import sys

import click

from cubinet._fs import Fs
from cubinet.cli._out import print_json, print_table
from cubinet.config import Settings
from cubinet.errors import ConfigError
from cubinet.store.keys import (
    PublicKey,
    add_lines,
    key_file,
    key_lines,
    load_keyring,
    load_private,
    new_private,
)
from cubinet.store.trust import Revoked, load_revoked

__all__ = ["key"]

_LIMIT = 1 << 20


@click.group(name="key")
def key() -> None:
    """Keys that sign records, keys that are trusted, and what is revoked."""


@key.command(name="new")
@click.option("--name", default="", help="A name for people, as ci@example.com.")
@click.option(
    "--file", help="Where to put the private key. Default: CUBINET_SIGN_KEY, else private-key beside config.toml."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(name: str, file: str | None, as_json: bool) -> int:  # noqa: FBT001
    """Make a private key and print its public line.

    Nothing is signed until CUBINET_SIGN_KEY names the file.
    """
    path = _place("private-key", file)
    made = new_private(name)
    fs = Fs()
    try:
        fs.mkdir(os.path.dirname(path), 0o700)
        fs.create(path, made.file_bytes(), mode=0o600)
        fs.sync_folder(os.path.dirname(path))
    except FileExistsError as exc:
        raise ConfigError("make private key", path, "there is one already", "name another place with --file") from exc
    except OSError as exc:
        raise ConfigError("make private key", path, exc.strerror or str(exc)) from exc
    _print(made.public, path, as_json)
    click.echo(f"private key in {path}; it signs what is compiled with CUBINET_SIGN_KEY={path}", err=True)
    return 0


@key.command(name="show")
@click.option("--file", help="The private key. Default: CUBINET_SIGN_KEY, else private-key beside config.toml.")
@click.option("--trusted", is_flag=True, help="Show the keys that are trusted here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object, or an array with --trusted.")
def show(file: str | None, trusted: bool, as_json: bool) -> int:  # noqa: FBT001
    """Print the public line of a private key, or the keys that are trusted."""
    if not trusted:
        # a file that was named is the one meant, whatever the environment holds
        found = None if file else load_private("", os.environ)
        path = None if found else _place("private-key", file)
        found = found or load_private(path or "", {})
        if found is not None:
            _print(found.public, path, as_json)
        return 0
    if file:
        raise click.UsageError("--file names a private key: leave out --trusted")
    keyring = load_keyring(_place("trusted-keys"))
    revoked = load_revoked(_place("revoked"))
    rows = [(name, public.name, name in revoked.keys) for name, public in sorted(keyring.items())]
    if as_json:
        print_json([{"id": i, "name": n, "key": str(keyring[i]), "revoked": gone} for i, n, gone in rows])
    elif rows:
        print_table(("key", "name", "state"), [(i, n or "-", "revoked" if gone else "trusted") for i, n, gone in rows])
    else:
        click.echo("no trusted keys", err=True)
    return 0


@key.command(name="trust")
@click.argument("words", metavar="KEYLINE|FILE|-", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def trust(words: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001
    """Trust the keys in a line, a file or standard input: records they signed are let in."""
    given = " ".join(words)
    inline = given.startswith("cubinet-")
    where = "the argument" if inline else "standard input" if given == "-" else given
    data = given.encode("utf-8", "surrogateescape") if inline else _read(given, where)
    if data.startswith(b"cubinet-private-key"):
        raise ConfigError("trust", where, "a private key", "give what cubinet key show prints")
    if len(data) > _LIMIT:
        raise ConfigError("read keys", where, f"larger than {_LIMIT} bytes")
    keys = key_lines(data, where)
    if not keys:
        raise ConfigError("trust", where, "no key in it", "give what cubinet key show prints")
    return _add("trusted-keys", [str(one) for one in keys], "trusted", as_json)


@key.command(name="revoke")
@click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def revoke(entries: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001
    """Keep builds out from now on, whoever signed them.

    ENTRY is a fingerprint, a blob (blake3:DIGEST), a key (ed25519:ID) or 'producer TEXT'.
    """
    wanted = [" ".join(entry.split()) for entry in entries]
    Revoked.parse(dict.fromkeys(wanted, ""))
    return _add("revoked", wanted, "revoked", as_json)


def _place(name: str, file: str | None = None) -> str:
    """The file that was named, else that of the settings, else the one beside the configuration."""
    if file:
        return os.path.abspath(file)
    settings = Settings.from_env()
    named = {"private-key": settings.sign_key, "trusted-keys": settings.trusted_keys, "revoked": settings.revoked}
    return key_file(name, os.environ, named[name])


def _add(name: str, lines: list[str], done: str, as_json: bool) -> int:  # noqa: FBT001
    path = _place(name)
    # what is there must be right: nothing is added to a file that is then refused
    load_keyring(path) if name == "trusted-keys" else load_revoked(path)
    added = add_lines(path, lines, Fs())
    if as_json:
        print_json({"file": path, "added": added, "present": [line for line in lines if line not in added]})
        return 0
    for line in lines:
        click.echo(f"{done} {line}" if line in added else f"{done} already: {line}")
    return 0


def _read(file: str, where: str) -> bytes:
    """What the user points at, a byte more than we take at most; of any owner, since naming it is the trust."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(_LIMIT + 1)
        with open(file, "rb") as stream:
            return stream.read(_LIMIT + 1)
    except (OSError, ValueError) as exc:
        finding = getattr(exc, "strerror", None) or str(exc)
        raise ConfigError("read keys", where, finding, "give a key line, a file of them, or -") from exc


def _print(public: PublicKey, path: str | None, as_json: bool) -> None:  # noqa: FBT001
    if as_json:
        print_json({"id": public.id, "name": public.name, "key": str(public), "file": path})
    else:
        click.echo(str(public))
