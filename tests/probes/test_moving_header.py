"""A header that is rewritten all the time: what is stored of it must be what its recorded content makes."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from cubinet.config import Settings
from cubinet.errors import CompileError
from cubinet.fingerprint import digest_of
from cubinet.model import Root, Variant
from cubinet.observations import read_observations
from cubinet.store import Store

from .bench import clean_environ, make_tools, missing

TEXTS = ("", "#define V 1\n", "#define V 2\n", "#define V 3\n")
SOURCE = "#include <a.h>\n#ifndef V\n#define V 0\n#endif\n__global__ void k(int* p) { *p = V; }\n"
LOOKUPS = 60


def _variant(root: Path, number: int = 0) -> Variant:
    return Variant(
        SOURCE, "sm_90", kind="ptx", roots=[Root("r", str(root))], signature={"n": str(number)}, compiler="nvrtc"
    )


def test_a_build_of_a_header_that_never_rests_is_stored_under_what_was_compiled(tmp_path: Path) -> None:
    if why := missing("nvrtc"):
        pytest.skip(why)
    make_tools(tmp_path / "store", ["nvrtc"])
    root, over = tmp_path / "r", threading.Event()
    root.mkdir()
    header = root / "a.h"
    header.write_text(TEXTS[1])

    def rewrite() -> None:
        choose = random.Random(1)
        while not over.is_set():
            header.write_text(choose.choice(TEXTS[1:]))  # empty for a moment
            time.sleep(choose.choice([0.0, 0.0005, 0.004, 0.03, 0.06]))

    store = Store(tmp_path / "store", settings=Settings(durable=False, refresh=0.0), environ=clean_environ())
    thread = threading.Thread(target=rewrite)
    thread.start()
    found = []
    try:
        for number in range(LOOKUPS):
            try:
                found.append(store.get_or_compile(_variant(root, number)))
            except CompileError as exc:  # cut short while it was read
                assert "a.h" in str(exc) or "V" in str(exc)  # noqa: PT017 - most lookups do not fail
    finally:
        over.set()
        thread.join()
    made = {}
    for text in TEXTS:
        header.write_text(text)
        fresh = Store(tmp_path / "store", settings=Settings(durable=False, refresh=0.0), environ=clean_environ())
        made[digest_of(text.encode())] = fresh.get_or_compile(_variant(root, -1 - TEXTS.index(text))).data
    kept = [artifact for artifact in found if not artifact.reason]
    assert kept, "every lookup was disturbed"
    for artifact in kept:
        data = artifact.read("observations")
        assert data is not None
        (seen,) = [o.digest for o in read_observations(data) if o.name == "r:a.h"]
        assert seen is not None
        assert made[seen] == artifact.data
