"""Post-hooks: what they may do, what of it is keyed, and what becomes of one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cubinet.compilers import _worker
from cubinet.errors import CompileError, CompileTimeoutError, ConfigError
from cubinet.model import Artifact, Root, Seen, Variant

from .conftest import MakeStore
from .trees import observed, plant

ARCH = "sm_90a"
SOURCE = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'
SAME = "def edit(data):\n    return data\n"
STAMP = """
from pathlib import Path

def edit(data: bytes) -> bytes:
    tag = Path(__file__).with_name("tag.txt").read_bytes()
    assert data.count(b"Cuda comp") > 0
    return data.replace(b"Cuda comp", tag.ljust(9)[:9], 1)
"""


@pytest.fixture
def tools(tools: Path, tmp_path: Path) -> Path:
    """A root for hooks; the outer fixture of this name is a store's folder that has been warmed up."""
    return plant(tmp_path / "my tools", {"tag.txt": "release 7", "deep/er/unread.txt": ""})


def variant(root: Path, text: str | None = SAME, **rest: Any) -> Variant:
    """A request with a hook of this text."""
    if text is not None:
        (root / "edit.py").write_text(text)
    fields: dict[str, Any] = {"compiler": "nvrtc", "hook": "tools:edit.py", "roots": [Root("tools", str(root))]}
    return Variant(rest.pop("source", SOURCE), ARCH, **{**fields, "entries": ["k"], **rest})


def plain(make_store: MakeStore, compiler: str) -> Artifact:
    return make_store().get_or_compile(Variant(SOURCE, ARCH, compiler=compiler, entries=["k"]))


# --- what it does, and what is keyed


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_hook_edits_the_object_and_the_edited_one_is_found_again(
    make_store: MakeStore, tools: Path, compiler: str
) -> None:
    asked = variant(tools, STAMP, compiler=compiler)
    first = make_store().get_or_compile(asked)
    assert (first.status, first.reason, first.record.local_only) == ("compiled", "", "")
    assert b"release 7" in first.data
    assert first.data != plain(make_store, compiler).data
    assert [kernel.name for kernel in first.kernels] == ["k"]
    second = make_store().get_or_compile(asked)
    assert (second.status, second.data, second.fingerprint) == ("hit", first.data, first.fingerprint)
    looks = observed(first)
    assert [name for name, how in looks.items() if name.startswith("tools:") and how is Seen.READ] == [
        "tools:edit.py",
        "tools:tag.txt",
    ]
    (tools / "tag.txt").write_text("release 8")
    third = make_store().get_or_compile(asked)
    assert third.status == "compiled"
    assert b"release 8" in third.data
    (tools / "tag.txt").write_text("release 7")
    assert make_store().get_or_compile(asked).fingerprint == first.fingerprint


def test_the_content_and_the_name_of_a_hook_are_keyed(make_store: MakeStore, tools: Path) -> None:
    first = make_store().get_or_compile(variant(tools, SAME))
    assert first.data == plain(make_store, "nvrtc").data
    assert first.fingerprint != plain(make_store, "nvrtc").fingerprint
    assert make_store().get_or_compile(variant(tools, SAME + "# edited\n")).status == "compiled"
    assert make_store().get_or_compile(variant(tools, SAME)).fingerprint == first.fingerprint
    (tools / "other.py").write_text(SAME)
    assert make_store().get_or_compile(variant(tools, SAME, hook="tools:other.py")).status == "compiled"


def test_the_place_of_a_hook_is_not_keyed(make_store: MakeStore, tools: Path, tmp_path: Path) -> None:
    first = make_store().get_or_compile(variant(tools, STAMP))
    moved = plant(tmp_path / "moved", {"tag.txt": "release 7"})
    assert make_store().get_or_compile(variant(moved, STAMP)).fingerprint == first.fingerprint


def test_names_a_hook_looks_for_in_vain_are_observed(make_store: MakeStore, tools: Path) -> None:
    text = "import os\n\ndef edit(data):\n    os.path.exists('include/tools/deep/opt.txt')\n    return data\n"
    first = make_store().get_or_compile(variant(tools, text))
    assert observed(first)["tools:deep/opt.txt"] is Seen.ABSENT
    (tools / "deep/opt.txt").write_text("")
    assert make_store().get_or_compile(variant(tools, text)).status == "compiled"


def test_a_time_is_keyed_only_if_a_hook_asks_about_the_file(make_store: MakeStore, tools: Path) -> None:
    asks = "import os\n\ndef edit(data):\n    os.stat('include/tools/tag.txt')\n    return data\n"
    for text, status, when in ((STAMP, "hit", 1_500_000_000), (asks, "compiled", 1_600_000_000)):
        make_store().get_or_compile(variant(tools, text))
        for name in ("edit.py", "tag.txt"):
            os.utime(tools / name, (when, when))
        assert make_store().get_or_compile(variant(tools, None)).status == status


def test_a_hook_may_be_a_link_but_where_links_lead_is_not_keyed(
    make_store: MakeStore, tools: Path, tmp_path: Path
) -> None:
    farm = plant(tmp_path / "farm", {})
    variant(tools, STAMP)
    for name in ("edit.py", "tag.txt"):
        (farm / name).symlink_to(tools / name)
    made = make_store().get_or_compile(variant(farm, None))
    assert made.reason == made.record.local_only == ""
    assert make_store().get_or_compile(variant(tools, None)).fingerprint == made.fingerprint
    (tools / "link").symlink_to("tag.txt")
    asks = "import os\n\ndef edit(data):\n    os.readlink('include/tools/link')\n    return data\n"
    assert "asks about a link" in make_store().get_or_compile(variant(tools, asks)).reason


HELPER = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport helper\n" + SAME


def test_a_module_beside_a_hook_is_observed_and_never_taken_from_a_cache(make_store: MakeStore, tools: Path) -> None:
    (tools / "helper.py").write_text("VALUE = 1\n")
    text = HELPER.replace("return data", "return data.replace(b'Cuda comp', b'value%4d' % helper.VALUE, 1)")
    first = make_store().get_or_compile(variant(tools, text))
    assert b"value   1" in first.data
    assert first.reason == first.record.local_only == ""
    assert observed(first)["tools:helper.py"] is Seen.READ
    assert observed(first)["tools:helper/__init__.py"] is Seen.ABSENT
    # a compiled module that Python would take for fresh
    subprocess.run([sys.executable, "-c", "import helper"], cwd=tools, check=True)
    info = (tools / "helper.py").stat()
    (tools / "helper.py").write_text("VALUE = 2\n")
    os.utime(tools / "helper.py", ns=(info.st_atime_ns, info.st_mtime_ns))
    second = make_store().get_or_compile(variant(tools, text))
    assert second.status == "compiled"
    assert b"value   2" in second.data


def test_a_shared_object_that_a_hook_loads_is_observed(make_store: MakeStore, tools: Path, tmp_path: Path) -> None:
    text = "import ctypes\n\ndef edit(data):\n    value = ctypes.CDLL('include/tools/lib.so').value()\n"
    text += "    return data.replace(b'Cuda comp', b'value%4d' % value, 1)\n"

    def build(value: int) -> None:
        (tmp_path / "lib.c").write_text(f"int value(void) {{ return {value}; }}\n")
        made = tmp_path / f"lib{value}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "lib.c", "-o", made], check=True)
        made.rename(tools / "lib.so")

    build(1)
    first = make_store().get_or_compile(variant(tools, text))
    assert b"value   1" in first.data
    assert observed(first)["tools:lib.so"] is Seen.READ
    build(2)
    second = make_store().get_or_compile(variant(tools, text))
    assert (second.status, b"value   2" in second.data) == ("compiled", True)


def test_the_order_of_a_set_is_the_same_in_every_process(make_store: MakeStore, tools: Path) -> None:
    text = "def edit(data):\n    word = ''.join({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}).encode()\n"
    text += "    return data.replace(b'Cuda comp', word, 1)\n"
    made = {make_store().get_or_compile(variant(tools, text, source=f"{SOURCE}// {i}\n")).data for i in range(3)}
    assert len(made) == 1


def test_kernels_are_read_anew_and_spills_are_those_of_the_compiler(make_store: MakeStore, tools: Path) -> None:
    text = "def edit(data):\n    return data.replace(b'\\0k\\0', b'\\0j\\0').replace(b'.k\\0', b'.j\\0')\n"
    with pytest.raises(CompileError, match="no good: cannot find entry 'k'"):
        make_store().get_or_compile(variant(tools, text))
    made = make_store().get_or_compile(variant(tools, text, entries=[]))
    assert [(kernel.name, kernel.spills) for kernel in made.kernels] == [("j", None)]
    assert make_store().get_or_compile(variant(tools, SAME)).kernels[0].spills == 0


def test_a_hook_edits_ptx_that_stands_in_for_a_cubin(make_store: MakeStore, tools: Path) -> None:
    text = "def edit(data):\n    return data + b'// edited\\n'\n"
    asked = Variant(
        SOURCE, "sm_999", compiler="nvrtc", roots=[Root("tools", str(tools))], hook="tools:edit.py", entries=["k"]
    )
    variant(tools, text)
    made = make_store().get_or_compile(asked)
    assert (made.record.kind, made.data.endswith(b"// edited\n")) == ("ptx", True)
    assert [kernel.name for kernel in made.kernels] == ["k"]


def test_a_template_of_nvrtc_is_still_found_by_its_expression(make_store: MakeStore, tools: Path) -> None:
    source = "template <class T> __global__ void scale(T* x) { *x *= 2; }\n"
    asked = Variant(
        source, ARCH, compiler="nvrtc", roots=[Root("tools", str(tools))], hook="tools:edit.py", entries=["scale<int>"]
    )
    variant(tools, STAMP)
    make_store().get_or_compile(asked)
    assert make_store().get_or_compile(asked).symbol("scale<int>") == "_Z5scaleIiEvPT_"


# --- what it may not do

STDLIB = """
import ast, base64, collections, copy, csv, ctypes, dataclasses, decimal, enum, fractions, functools, hashlib, heapq
import io, itertools, json, logging, lzma, math, operator, pathlib, pickle, random, re, shutil, sqlite3, ssl, string
import struct, subprocess, tempfile, textwrap, time, typing, unittest, uuid, xml.etree.ElementTree, zipfile, zlib
time.localtime()
hashlib.sha256(b"")
"""
READS = "\n\ndef edit(data):\n    open('/etc/hostname').read()\n    return data\n"
RUNS = "import subprocess\n\ndef edit(data):\n    subprocess.run(['true'])\n    return data\n"
SHELL = "import os\n\ndef edit(data):\n    os.system('true')\n    return data\n"
LISTS = "import os\n\ndef edit(data):\n    os.listdir('include/tools')\n    return data\n"
WRITES = "\n\ndef edit(data):\n    open('include/tools/new.txt', 'w').close()\n    return data\n"
SCRATCH = "\n\ndef edit(data):\n    open('x', 'wb').write(data)\n    return open('x', 'rb').read()\n"
PATHS = "import os\n\ndef edit(data):\n    return data.replace(b'Cuda comp', os.getcwd().encode()[:9].ljust(9), 1)\n"
FORKS = (
    "import os\n\ndef edit(data):\n    if os.fork() == 0:\n        open('/etc/hostname').read()\n        os._exit(0)\n"
    "    os.wait()\n    return data\n"
)
TRIES = "try:\n    import cubinet_no_such_module\nexcept ImportError:\n    pass\n" + SAME


@pytest.mark.parametrize(
    ("text", "reason", "local_only"),
    [
        (STDLIB + SAME, "", ""),
        (SCRATCH, "", ""),
        (READS, "", "it depends on /etc/hostname, which is under no root"),
        (FORKS, "", "it depends on /etc/hostname, which is under no root"),
        (TRIES, "", "which is under no root"),
        (RUNS, "the post-hook starts other programs: ", ""),
        (SHELL, "the post-hook starts other programs: ", ""),
        (LISTS, "the post-hook listed include/tools", ""),
        (WRITES, "the post-hook wrote outside its folder: include/tools/new.txt", ""),
    ],
    ids=["imports", "scratch", "reads", "forks", "tries an import", "runs", "shell", "lists", "writes"],
)
def test_what_a_hook_does_says_whether_its_result_is_kept(
    make_store: MakeStore, tools: Path, text: str, reason: str, local_only: str
) -> None:
    store = make_store()
    made = store.get_or_compile(variant(tools, text))
    assert made.status == "compiled"
    assert made.reason.startswith(reason)
    assert bool(made.reason) is bool(reason)
    assert local_only in made.record.local_only
    assert bool(made.record.local_only) is bool(local_only)
    assert len(list(store.records())) == (0 if reason else 1)


def test_an_installed_package_is_observed_and_keeps_the_result_local(make_store: MakeStore, tools: Path) -> None:
    made = make_store().get_or_compile(variant(tools, "import idna.package_data\n" + SAME))
    assert "under no root" in made.record.local_only
    looks = observed(made)
    assert [how for name, how in looks.items() if name.endswith("/idna/package_data.py")] == [Seen.READ]
    assert not any(name.endswith(".pyc") and how is Seen.READ for name, how in looks.items())
    assert make_store().get_or_compile(variant(tools, None)).status == "hit"


def test_a_folder_of_the_machine_in_the_object_is_not_kept(make_store: MakeStore, tools: Path, tmp_path: Path) -> None:
    text = "import os\n\ndef edit(data):\n    return data + b'// ' + os.getcwd().encode() + b'\\n'\n"
    made = make_store().get_or_compile(variant(tools, text, kind="ptx"))
    assert "is in it" in made.reason
    text = "import os\n\ndef edit(data):\n    return data + os.readlink('include/tools').encode() + b'\\n'\n"
    made = make_store().get_or_compile(variant(tools, text.replace("data +", "data + b'//' +"), kind="ptx"))
    assert f"the path {tools} is in it" in made.reason


@pytest.mark.parametrize(
    "hook",
    [
        "edit.py",
        "tools:../edit.py",
        "tools:a/../../edit.py",
        "/etc/edit.py",
        "tools:/etc/edit.py",
        "other:edit.py",
        "tools:edit.txt",
        "tools:",
        ":edit.py",
        "tools",
    ],
)
@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_hook_outside_every_root_is_refused(make_store: MakeStore, tools: Path, hook: str, compiler: str) -> None:
    with pytest.raises(ConfigError, match="not a Python file under a root"):
        make_store().get_or_compile(variant(tools, hook=hook, compiler=compiler))


def test_a_hook_may_lie_beside_the_source(make_store: MakeStore, tmp_path: Path) -> None:
    folder = plant(tmp_path / "src", {"k.cu": SOURCE, "edit.py": STAMP, "tag.txt": "beside"})
    made = make_store().get_or_compile(Variant.from_file(folder / "k.cu", ARCH, compiler="nvrtc", hook="src:edit.py"))
    assert b"beside" in made.data
    assert {name for name, how in observed(made).items() if how is Seen.READ} == {"src:edit.py", "src:tag.txt"}


# --- when it fails

FAILURES = {
    "an exception": ("def edit(data):\n    raise ValueError('boom')\n", "ValueError: boom"),
    "an exception while loading": ("1 / 0\n", "ZeroDivisionError: division by zero"),
    "no Python": ("def edit(data:\n", "SyntaxError: "),
    "no function": ("Edit = 1\n", "edit.py has no function edit(data)"),
    "no bytes": ("def edit(data):\n    return 'text'\n", "edit returned str, not bytes"),
    "nothing": ("def edit(data):\n    pass\n", "edit returned NoneType, not bytes"),
    "no object": ("def edit(data):\n    return b'junk'\n", "what it returned is no good"),
    "an empty object": ("def edit(data):\n    return b''\n", "what it returned is no good: cannot use compiled"),
    "half an object": ("def edit(data):\n    return data[:-100]\n", "what it returned is no good"),
    "an early end": ("import os\n\ndef edit(data):\n    os._exit(0)\n", "ended with status 0, and made nothing"),
    "a crash": ("import os\n\ndef edit(data):\n    os.abort()\n", "ended with status -6, and made nothing"),
    "an exit": ("def edit(data):\n    raise SystemExit('enough')\n", "enough"),
}


@pytest.mark.parametrize(("text", "finding"), FAILURES.values(), ids=FAILURES)
def test_a_hook_that_fails_leaves_nothing_and_says_why(
    make_store: MakeStore, tools: Path, text: str, finding: str
) -> None:
    store = make_store()
    with pytest.raises(CompileError) as caught:
        store.get_or_compile(variant(tools, text, name="scale"))
    assert str(caught.value).startswith("cannot compile scale with post-hook tools:edit.py: ")
    assert finding in str(caught.value)
    assert not caught.value.deterministic
    if "Traceback" in caught.value.log:
        assert f'"{tools}/edit.py"' in caught.value.log or "edit.py" in caught.value.log
    assert list(store.records()) == []
    assert store.get_or_compile(variant(tools, SAME, name="scale")).status == "compiled"


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_a_hook_that_is_not_there_is_named(make_store: MakeStore, tools: Path, compiler: str) -> None:
    with pytest.raises(CompileError, match=r"post-hook tools:edit\.py: there is no such file"):
        make_store().get_or_compile(variant(tools, None, compiler=compiler))


def test_a_hook_that_takes_too_long_is_killed_with_its_children(make_store: MakeStore, tools: Path) -> None:
    text = "import subprocess\n\ndef edit(data):\n    subprocess.run(['sleep', '600.125'])\n    return data\n"
    make_store().get_or_compile(variant(tools, SAME))  # a warm worker
    with pytest.raises(CompileTimeoutError, match=r"post-hook tools:edit\.py: it was killed after 1 s"):
        make_store(timeout=1.0).get_or_compile(variant(tools, text))
    deadline = time.monotonic() + 5
    while _sleeping() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _sleeping()


def _sleeping() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"600.125" in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def test_without_the_recorder_nothing_with_a_hook_is_kept(make_store: MakeStore, tools: Path) -> None:
    for compiler in ("nvcc", "nvrtc"):
        made = make_store(recorder="off").get_or_compile(variant(tools, STAMP, compiler=compiler))
        assert "cannot be seen" in made.reason
        assert b"release 7" in made.data


def test_a_hook_after_nvrtc_needs_one_slot_alone(
    make_store: MakeStore, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_worker, "_slots", threading.BoundedSemaphore(1))
    done: list[Artifact] = []
    thread = threading.Thread(
        target=lambda: done.append(make_store().get_or_compile(variant(tools, STAMP))), daemon=True
    )
    thread.start()
    thread.join(60)
    assert [artifact.status for artifact in done] == ["compiled"]
