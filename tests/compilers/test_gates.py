"""Spills and local memory: what is recorded of them, and the gates that refuse them. With real compilers."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubinet.compilers.nvcc import NvccCompiler
from cubinet.errors import CompileError, GateError
from cubinet.model import Variant

from .conftest import MakeStore

ARCH = "sm_90a"
FINE = 'extern "C" __global__ void fine(float* x) { x[threadIdx.x] *= 2; }\n'
CROWDED = """extern "C" __global__ void crowded(float* x, int n) {
    float a[64];
    for (int i = 0; i < 64; i++) a[i] = x[i * n];
    __syncthreads();
    for (int i = 0; i < 64; i++) x[i * n + 1] = a[i] * a[63 - i];
}
"""
ARRAY = """extern "C" __global__ void array(int* x, int n) {
    int a[32];
    for (int i = 0; i < 32; i++) a[(i * n) & 31] = x[i];
    x[n] = a[n & 31];
}
"""
CALLS = """__device__ __noinline__ float heavy(float* x, int n) {
    float a[64], s = 0;
    for (int i = 0; i < 64; i++) a[i] = x[i * n];
    __syncthreads();
    for (int i = 0; i < 64; i++) s += a[i] * a[63 - i] * x[i];
    return s;
}
extern "C" __global__ void calls(float* x, int n) { x[n] = heavy(x, n) + heavy(x + 1, n); }
"""
BOUNDED = """template <class T> __global__ void __launch_bounds__(1024, 2) bounded(T* x, int n) {
    T a[48];
    for (int i = 0; i < 48; i++) a[i] = x[i * n];
    __syncthreads();
    for (int i = 0; i < 48; i++) x[i * n + 1] = a[i] * a[47 - i];
}
template __global__ void bounded<double>(double*, int);
"""
ALL = FINE + CROWDED + ARRAY + CALLS + BOUNDED
FEW = ("--maxrregcount=24",)
_LINE = re.compile(r"Function properties for (\S+)\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads")

both = pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])


def variant(source: str, compiler: str = "nvrtc", **rest: Any) -> Variant:
    return Variant(source, ARCH, compiler=compiler, **{"options": FEW, "name": "gated", **rest})


# --- what is recorded


def said_by_nvcc(make_store: MakeStore, folder: Path, options: tuple[str, ...]) -> str:
    adapter = make_store().compiler("nvcc")
    assert isinstance(adapter, NvccCompiler)
    (folder / "all.cu").write_text(ALL)
    argv = [adapter.facts().nvcc, "-cubin", f"-arch={ARCH}", *options, "-Xptxas", "-v", "all.cu", "-o", "all.cubin"]
    return subprocess.run(argv, cwd=folder, stderr=subprocess.PIPE, text=True, check=True).stderr


def said_by_nvrtc(options: tuple[str, ...]) -> str:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(ALL.encode(), b"all.cu", 0, None, None)
    argv = [os.fsencode(option) for option in (f"-arch={ARCH}", *options, "-Xptxas=-v")]
    assert int(nvrtc.nvrtcCompileProgram(program, len(argv), argv)[0]) == 0
    log = b" " * int(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    return log.decode()


@both
@pytest.mark.parametrize("options", [FEW, ("--maxrregcount=40", "-lineinfo")], ids=str)
def test_recorded_spills_are_those_that_ptxas_tells(
    make_store: MakeStore, tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    log = said_by_nvcc(make_store, tmp_path, options) if compiler == "nvcc" else said_by_nvrtc(options)
    told = {symbol: int(stores) + int(loads) for symbol, stores, loads in _LINE.findall(log)}
    made = make_store().get_or_compile(variant(ALL, compiler, options=options))
    assert {kernel.symbol: kernel.spills for kernel in made.kernels} == {k.symbol: told[k.symbol] for k in made.kernels}
    assert {k.name.partition("<")[0].split(" ")[-1] for k in made.kernels} == {
        "fine",
        "crowded",
        "array",
        "calls",
        "bounded",
    }
    if options == FEW:
        assert {k.symbol for k in made.kernels if k.spills} == {"crowded", "calls", "_Z7boundedIdEvPT_i"}
    again = make_store().get_or_compile(variant(ALL, compiler, options=options))
    assert (again.status, again.kernels) == ("hit", made.kernels)


def test_asking_for_spills_does_not_change_the_object(make_store: MakeStore) -> None:
    # asked beside the build: the notes of an object have the options of ptxas in them
    made = make_store().get_or_compile(variant(CROWDED))
    assert b"-v" not in made.data
    assert b"verbose" not in made.data
    assert "--ptxas-options=--verbose" not in made.record.argv


# --- gates

GATES = {
    "spills": (CROWDED, "check_no_spills", r"crowded: [1-9]\d*"),
    "spills of a template": (BOUNDED, "check_no_spills", r"bounded<double>\(double\*, int\): [1-9]\d*"),
    "local memory of an array": (ARRAY, "check_no_local_memory", "array: 128"),
    "local memory of spills": (CROWDED, "check_no_local_memory", r"crowded: [1-9]\d*"),
}


def gate_of(asked: Variant, gate: str) -> Variant:
    fields: dict[str, Any] = {gate: True}
    return replace(asked, **fields)


@both
@pytest.mark.parametrize(("source", "gate", "finding"), GATES.values(), ids=GATES)
def test_a_gate_refuses_on_compile_and_on_a_hit_and_names_kernels_and_bytes(
    make_store: MakeStore, compiler: str, source: str, gate: str, finding: str
) -> None:
    store, plain = make_store(), variant(source + FINE, compiler)
    gated = gate_of(plain, gate)
    with pytest.raises(GateError) as first:
        store.get_or_compile(gated)
    assert str(first.value).startswith("cannot compile gated: bytes of ")
    assert re.search(finding, str(first.value))
    assert gate in str(first.value)
    assert "fine" not in str(first.value)
    assert not first.value.deterministic
    # it was built and kept, for those who do not ask
    found = make_store().get_or_compile(plain)
    assert found.status == "hit"
    assert {kernel.symbol for kernel in found.kernels} >= {"fine"}
    for again in (store, make_store()):
        for look in (again.find, again.get_or_compile):
            with pytest.raises(GateError) as caught:
                look(replace(gated))
            assert str(caught.value) == str(first.value)
    assert store.normalize(gated).arguments == store.normalize(plain).arguments
    assert store.action(gated) == store.action(plain)


def test_a_gate_that_has_nothing_to_refuse_lets_pass(make_store: MakeStore) -> None:
    gated = variant(FINE, check_no_spills=True, check_no_local_memory=True)
    made = make_store().get_or_compile(gated)
    assert made.status == "compiled"
    assert make_store().get_or_compile(gated).status == "hit"
    assert make_store().get_or_compile(variant(FINE)).fingerprint == made.fingerprint
    array = make_store().get_or_compile(variant(ARRAY, check_no_spills=True))  # local memory is no spill
    assert [(kernel.spills, kernel.local) for kernel in array.kernels] == [(0, 128)]


def test_a_gate_holds_for_an_artifact_in_the_process(make_store: MakeStore) -> None:
    store = make_store(refresh=60.0)
    plain = variant(CROWDED)
    store.get_or_compile(plain)
    assert store.get_or_compile(plain).layer == "process"
    with pytest.raises(GateError):
        store.get_or_compile(replace(plain, check_no_spills=True))
    assert store.get_or_compile(plain).layer == "process"


def test_what_is_not_known_is_refused(make_store: MakeStore) -> None:
    for gate in ("check_no_spills", "check_no_local_memory"):
        with pytest.raises(GateError, match="fine: unknown"):
            make_store().get_or_compile(gate_of(variant(FINE, kind="ptx"), gate))


def test_a_gate_error_is_a_compile_error_that_pickles(make_store: MakeStore) -> None:
    with pytest.raises(CompileError) as caught:
        make_store().get_or_compile(variant(CROWDED, check_no_spills=True))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (GateError, str(caught.value))
