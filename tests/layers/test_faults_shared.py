"""What trouble with a shared folder costs a build: a bounded wait, a count, one warning. The folder stays as it is."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from cubinet._fs import Fs
from cubinet.config import Settings
from cubinet.errors import FormatError, ReadOnlyError, StoreError, TrustError
from cubinet.events import Counters
from cubinet.model import Artifact, Digest, Status
from cubinet.store import Store
from cubinet.store.guard import Guard
from cubinet.store.shared import SharedLayer
from cubinet.testing.bench import Bench, overwrite
from cubinet.testing.faults import CountingFs, Fault, FaultyFs, NoSyncFs
from cubinet.testing.remotes import in_child

BUDGET, SLACK = 0.5, 4.0  # a busy machine is slow
NOTHING: list[tuple[Digest, bytes | None]] = []
NOBODY, OTHER, GROUP = 64001, 64002, 64003
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become other users")


@pytest.fixture
def there(tmp_path: Path) -> Bench:
    """Another host, whose folder is the shared one."""
    (tmp_path / "there").mkdir()
    made = Bench.at(tmp_path / "there")
    made.store().get_or_compile(made.variant())
    return made


def source(number: int) -> str:
    return f'#include "a.h"\nnumber {number}\nkernel scale\n'


def layer(folder: Path, more: str = "") -> str:
    return f"{folder}?trust=open&budget={BUDGET}{more}"


def facts(artifact: Artifact | None) -> tuple[object, ...]:
    return (artifact.data, artifact.status, artifact.layer) if artifact else ()


def picture(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything `stat` tells, but for times of access."""
    found: dict[str, tuple[int, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        info = path.lstat()
        found[str(path)] = (info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_gid, info.st_size,
                            info.st_mtime_ns, info.st_ctime_ns)  # fmt: skip
    return found


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "cubinet.store" and r.levelno >= logging.WARNING]


def compiles(store: Store, host: Bench, seconds: float = BUDGET + SLACK) -> None:
    start = time.monotonic()
    built = store.get_or_compile(host.variant())
    assert time.monotonic() - start < seconds
    assert (built.data, built.status, built.reason) == (host.expected(), Status.COMPILED, "")
    start = time.monotonic()
    for number in range(1000, 1020):
        assert store.find(host.variant(source(number))) is None
    assert time.monotonic() - start < 2.0
    assert host.store().verify().clean


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EMFILE])
@pytest.mark.parametrize("where", ["manifests", "records", "blobs"])
def test_an_errno_is_a_miss(
    bench: Bench, there: Bench, code: int, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = picture(there.folder)
    fs = FaultyFs(Fault(code, operation="read", path=f"{there.folder}/{where}/*"))
    with bench.store(layers=layer(there.folder), fs=fs) as store:
        built = store.get_or_compile(bench.variant())
    assert facts(built) == (bench.expected(), Status.COMPILED, "local")
    assert fs.failed
    if code != errno.ESTALE:  # which is how a name that is gone may look
        assert store.stats()["error.read"] == 1
        assert len(said(caplog)) == 1
        assert os.strerror(code) in caplog.text
        assert str(there.folder) in caplog.text
    assert picture(there.folder) == before
    fs.faults.clear()
    third = Bench.at(_folder(bench.top / "third"))
    assert facts(third.store(layers=layer(there.folder), fs=fs).find(third.variant()))[2] == "shared"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_strict_raises_what_happened(bench: Bench, there: Bench) -> None:
    fs = FaultyFs(Fault(errno.EIO, operation="read", path=f"{there.folder}/*"))
    with pytest.raises(StoreError, match="Input/output error"):
        bench.store(layers=layer(there.folder), fs=fs, strict=True).find(bench.variant())


def test_a_stale_handle_is_opened_anew(bench: Bench, there: Bench) -> None:
    fs = FaultyFs(*(Fault(errno.ESTALE, "read", f"{there.folder}/{kind}/*", n)
                    for kind in ("manifests", "records", "blobs") for n in (0, 1)))  # fmt: skip
    found = bench.store(layers=layer(there.folder), fs=fs).find(bench.variant())
    assert facts(found) == (bench.expected(), Status.HIT, "shared")
    assert len(fs.failed) == 6


@pytest.mark.parametrize("kind", ["manifests", "records", "blobs"])
def test_a_pipe_in_place_of_a_file(bench: Bench, there: Bench, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    for path in there.files(kind):
        path.unlink()
        os.mkfifo(path)
    before = picture(there.folder)
    store = bench.store(layers=layer(there.folder))
    compiles(store, bench)
    assert len(said(caplog)) == 1
    assert "no answer within" in caplog.text
    assert picture(there.folder) == before
    third = Bench.at(_folder(bench.top / "third"))
    strict = third.store(layers=layer(there.folder), strict=True)
    with pytest.raises(StoreError, match="no answer within"):
        strict.find(third.variant())


class _Mount(NoSyncFs):
    """A mount that may be dead."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.alive = str(folder), threading.Event()

    def read(self, path: str, limit: int | None = None) -> bytes:
        if path.startswith(self.folder):
            self.alive.wait(30)
        return super().read(path, limit)

    def stat(self, path: str) -> os.stat_result:
        if path.startswith(self.folder):
            self.alive.wait(30)
        return super().stat(path)


@pytest.fixture
def mount(there: Bench) -> Iterator[_Mount]:
    made = _Mount(there.folder)
    yield made
    made.alive.set()


def test_a_mount_that_does_not_answer_and_then_does(
    bench: Bench, there: Bench, mount: _Mount, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.store(layers=layer(there.folder), fs=mount)
    compiles(store, bench)
    assert len(said(caplog)) == 1
    assert "look at its mount" in caplog.text
    mount.alive.set()
    there.store().get_or_compile(there.variant(source(99)))
    store.refresh()
    assert facts(store.find(bench.variant(source(99))))[2] == "shared"


def test_a_dead_mount_holds_few_threads(there: Bench, mount: _Mount) -> None:
    far = SharedLayer(str(there.folder), fs=mount)
    action = there.store().action(there.variant())
    before = threading.active_count()
    for _ in range(30):
        with pytest.raises(StoreError):
            far.candidates(action, timeout=0.01)
    assert threading.active_count() - before <= 8
    mount.alive.set()
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert far.candidates(action, timeout=5.0)


def test_names_that_network_mounts_leave_behind_do_not_matter(bench: Bench, there: Bench) -> None:
    for kind in ("records", "manifests", "blobs"):
        for path in there.files(kind):
            (path.parent / ".nfs000000000123").write_bytes(path.read_bytes())
            (path.parent / f"{path.name}~").write_text("x")
            (path.parent / "sub").mkdir()
        (there.folder / kind / "lost+found").mkdir()
        (there.folder / kind / ".snapshot").mkdir()
    before = picture(there.folder)
    assert facts(bench.store(layers=layer(there.folder)).find(bench.variant()))[2] == "shared"
    assert picture(there.folder) == before
    assert there.store().verify().clean


def test_reading_changes_nothing_and_lists_nothing(bench: Bench, there: Bench) -> None:
    before = picture(there.folder)
    fs = CountingFs()
    store = bench.store(layers=layer(there.folder), fs=fs)
    store.get_or_compile(bench.variant())
    store.get_or_compile(bench.variant(source(1)))
    store.close()
    calls = {operation for operation, path in fs.calls if path.startswith(str(there.folder))}
    assert calls <= {"read", "stat"}
    assert picture(there.folder) == before


def test_a_folder_that_vanishes_in_the_middle_of_a_run(bench: Bench, there: Bench) -> None:
    there.store().get_or_compile(there.variant(source(1)))
    store = bench.store(layers=layer(there.folder))
    assert facts(store.find(bench.variant(source(1))))[2] == "shared"
    kept = bench.top / "kept"
    there.folder.rename(kept)
    compiles(store, bench)
    assert not there.folder.exists()
    kept.rename(there.folder)
    (there.top / "more").mkdir()
    third = Bench.at(there.top / "more")
    assert facts(third.store(layers=layer(there.folder)).find(third.variant()))[2] == "shared"


def test_a_folder_that_is_not_there(bench: Bench) -> None:
    folder = bench.top / "nowhere/at all"
    compiles(bench.store(layers=layer(folder)), bench)
    assert not (bench.top / "nowhere").exists()
    (bench.top / "file").write_text("")
    compiles_again = Bench.at(_folder(bench.top / "third"))
    compiles(compiles_again.store(layers=layer(bench.top / "file")), compiles_again)
    assert (bench.top / "file").read_text() == ""


@pytest.mark.parametrize("version", ["cubinet-store 2\n", "something else\n", "x" * 500])
def test_a_folder_of_another_version_is_left_alone(
    bench: Bench, there: Bench, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    overwrite(there.folder / "VERSION", version.encode())
    before = picture(there.folder)
    for mode in ("&ro", "&rw"):
        host = Bench.at(_folder(bench.top / mode.strip("&")))
        with host.store(layers=layer(there.folder, mode)) as store:
            compiles(store, host)
    assert "VERSION" in caplog.text
    assert picture(there.folder) == before
    with pytest.raises(FormatError, match="VERSION"):
        bench.store(layers=layer(there.folder), strict=True).find(bench.variant())


def test_a_shared_folder_that_is_full(bench: Bench, there: Bench, caplog: pytest.LogCaptureFixture) -> None:
    fs = FaultyFs(Fault(errno.ENOSPC, "create", f"{there.folder}/*"))
    with bench.store(layers=layer(there.folder, "&rw"), fs=fs) as store:
        assert facts(store.get_or_compile(bench.variant(source(1))))[2] == "local"
    assert fs.failed
    assert store.stats()["upload.dropped"] == 1
    assert len(said(caplog)) == 1
    assert "No space left" in caplog.text
    assert there.store().verify().clean
    assert not list((there.folder / "tmp").iterdir())


def test_a_read_only_layer_takes_nothing(there: Bench) -> None:
    far = SharedLayer(str(there.folder))
    record = next(there.store().records())
    before = picture(there.folder)
    with pytest.raises(ReadOnlyError):
        far.publish(record, {})
    assert picture(there.folder) == before


# --- other users


def _as(uid: int, call: Callable[[], str], *, umask: int = 0o022, groups: tuple[int, ...] = ()) -> str:
    def child() -> str:
        os.setgroups(groups)
        os.setgid(uid)
        os.setuid(uid)
        os.umask(umask)
        os.environ["HOME"] = "/nowhere"
        return call()

    return in_child(child)


def _open_up(tmp_path: Path) -> None:
    """Let other users come as far as this folder: pytest keeps the ones above to itself."""
    path = tmp_path
    while path.name and path.stat().st_uid == os.geteuid() and str(path) not in ("/", "/tmp"):
        path.chmod(path.stat().st_mode | 0o055)
        path = path.parent


def _bench(top: Path, uid: int) -> Bench:
    """A host of another user."""
    made = Bench.at(_folder(top))
    for path in (top, *top.rglob("*")):
        os.chown(path, uid, uid)
    return made


@as_root
def test_a_folder_of_somebody_else_that_is_read_only(bench: Bench, there: Bench) -> None:
    _open_up(bench.top)
    host = _bench(bench.top / "user", NOBODY)
    for path in (there.folder, *there.folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    before = picture(there.folder)
    for mode in ("", "&rw"):

        def call(mode: str = mode) -> str:
            store = host.store(layers=layer(there.folder, mode))
            found, built = store.find(host.variant()), store.get_or_compile(host.variant(source(len(mode))))
            store.close()
            return f"{facts(found)[2]} {facts(built)[2]} {store.stats().get('upload.dropped')}"

        assert _as(NOBODY, call) == ("local local 1" if mode else "shared local None")
        assert picture(there.folder) == before


@as_root
def test_a_folder_that_may_not_be_read(bench: Bench, there: Bench) -> None:
    _open_up(bench.top)
    host = _bench(bench.top / "user", NOBODY)
    there.folder.chmod(0o700)
    before = picture(there.folder)

    def call() -> str:
        store = host.store(layers=layer(there.folder))
        built = store.get_or_compile(host.variant())
        store.close()
        strict = host.store(layers=layer(there.folder), strict=True)
        try:
            strict.find(host.variant(source(2)))
        except StoreError as exc:
            return f"{built.data == host.expected()} {store.stats().get('error.read')} {exc}"
        return "no error"

    answer = _as(NOBODY, call)
    assert answer.startswith("True 1 cannot read"), answer
    assert "Permission denied" in answer
    assert picture(there.folder) == before


@as_root
def test_two_users_of_a_group_share_a_folder(bench: Bench) -> None:
    _open_up(bench.top)
    group = _folder(bench.top / "group")
    os.chown(group, 0, GROUP)
    group.chmod(0o2775)
    users = {uid: _bench(bench.top / f"user{uid}", uid) for uid in (NOBODY, OTHER)}

    def call(host: Bench, number: int) -> Callable[[], str]:
        def work() -> str:
            store = host.store(layers=layer(group, "&rw"), drain=10.0)
            built = store.get_or_compile(host.variant(source(number)))
            store.close()
            return f"{built.status} {built.layer} {store.stats()} {host.runs}"

        return work

    for uid, number, wanted in ((NOBODY, 1, "compiled"), (OTHER, 1, "hit"), (OTHER, 2, "compiled"), (NOBODY, 2, "hit")):
        answer = _as(uid, call(users[uid], number), umask=0o077, groups=(GROUP,))
        assert answer.startswith(wanted), (uid, number, answer)
        assert "error" not in answer, answer
        assert ("'upload.shared': 1" in answer) is (wanted == "compiled"), answer
    for path in group.rglob("*"):
        info = path.stat()
        assert info.st_gid == GROUP, path
        assert info.st_mode & 0o7777 == (0o2775 if path.is_dir() else 0o444), (path, oct(info.st_mode))
    damaged = next(iter((group / "records").glob("*/*")))
    overwrite(damaged, b"damaged by user 1")
    third = _bench(bench.top / "third", OTHER)
    answers = [_as(OTHER, call(third, n), umask=0o077, groups=(GROUP,)) for n in (1, 2)]
    assert sorted(answer.split()[0] for answer in answers) == ["compiled", "hit"], answers
    assert b"damaged" not in damaged.read_bytes()


@as_root
def test_a_folder_of_somebody_else_is_refused_under_owner(
    bench: Bench, there: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(there.folder, NOBODY, NOBODY)
    text = f"{there.folder}?trust=owner"
    store = bench.store(layers=text)
    assert facts(store.get_or_compile(bench.variant()))[1] == Status.COMPILED
    assert store.stats()["refused.shared"] >= 1
    assert len(said(caplog)) == 1
    assert f"belongs to user {NOBODY}" in caplog.text
    with pytest.raises(TrustError, match="belongs to user"):
        bench.store(layers=text, strict=True).find(bench.variant(source(1)))


def test_a_guard_over_a_folder_opens_after_three_errors(there: Bench) -> None:
    fs = FaultyFs(Fault(errno.EIO, "read", f"{there.folder}/manifests/*"))
    far = SharedLayer(str(there.folder), fs=fs)
    guard = Guard("shared", far.place, Counters(), lambda _text, _about: None, strict=False, budget=5.0)
    action = there.store().action(there.variant())
    for _ in range(6):
        guard.begin(far.prepare)
        guard.attempt("read", partial(far.candidates, action), NOTHING)
    assert guard.open
    assert len(fs.failed) == 3


def test_a_copy_is_as_good_as_the_folder(bench: Bench, there: Bench) -> None:
    shutil.copytree(there.folder, bench.top / "image")
    found = Store(
        bench.folder,
        settings=Settings(layers=layer(bench.top / "image"), durable=False),  # type: ignore[arg-type]
        environ={},
        fs=Fs(),
        compilers={"fake": bench.store().compiler("fake")},
    ).find(bench.variant())
    assert facts(found)[2] == "shared"
