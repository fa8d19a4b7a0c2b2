"""The command's contracts: exit statuses, JSON, messages. Real processes, real nvcc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCALE = EXAMPLES / "scale.cu"


class Cli:
    """Runs the command over one store folder."""

    def __init__(self, folder: Path) -> None:
        foreign = ("NVCC", "CUBINET", "CUDA_HOME", "CUDA_PATH", "CPATH")
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.environ["CUBINET_DIR"] = str(folder)
        self.environ["XDG_CONFIG_HOME"] = str(folder.parent / "config")

    def __call__(self, *argv: object, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cubinet", *map(str, argv)]
        done = subprocess.run(command, env=self.environ, cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *argv: object, status: int = 0) -> Any:
        return json.loads(self(*argv, status=status).stdout)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A store that has the example kernel."""
    cli = Cli(tmp_path_factory.mktemp("cli") / "store")
    assert cli.json("compile", SCALE, "--arch", "sm_90a", "--json")["status"] == "compiled"
    return cli


@pytest.fixture
def cold(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "store")


FIELDS = {
    "status", "fingerprint", "action", "layer", "seconds", "cacheable", "reason", "local_only", "blobs", "kernels",
    "observations",
}  # fmt: skip


def test_compile_prints_one_json_object_with_the_promised_fields(warm: Cli) -> None:
    found = warm.json("compile", SCALE, "--arch", "sm_90a", "--json")
    assert set(found) == FIELDS
    assert found["status"] == "hit"
    assert found["layer"] == "local"
    assert found["cacheable"] is True
    assert found["reason"] is None
    assert len(found["fingerprint"]) == len(found["action"]) == 64
    assert found["seconds"] > 0
    blob = found["blobs"]["cubin"]
    assert Path(blob["path"]).stat().st_size == blob["size"]
    assert found["kernels"][0]["name"] == "scale"
    assert found["kernels"][0]["params"] == 24
    assert found["observations"]["read"] > 100


def test_a_miss_under_no_compile_exits_3_and_compiles_nothing(cold: Cli) -> None:
    found = cold.json("compile", SCALE, "--arch", "sm_90a", "--no-compile", "--json", status=3)
    assert set(found) == FIELDS
    assert found["status"] == "miss"
    assert found["fingerprint"] is None
    assert len(found["action"]) == 64
    assert cold("compile", SCALE, "--arch", "sm_90a", "--no-compile", status=3).stdout == ""
    assert cold("ls").stdout == ""


def test_a_compile_error_exits_1_with_the_compilers_words_and_the_users_names(cold: Cli, tmp_path: Path) -> None:
    (tmp_path / "my kernel.cu").write_text('#include "part.cuh"\n__global__ void k() { undefined_name; }\n')
    (tmp_path / "part.cuh").write_text("\n")
    done = cold("compile", "my kernel.cu", "--arch", "sm_90a", "--json", status=1, cwd=tmp_path)
    assert 'identifier "undefined_name" is undefined' in done.stderr
    assert done.stdout == ""
    (tmp_path / "broken.cu").write_text('#include "part.cuh"\n')
    (tmp_path / "part.cuh").write_text("#error this part is missing\n")
    done = cold("compile", "broken.cu", "--arch", "sm_90a", status=1, cwd=tmp_path)
    assert "part.cuh:1:2: error: #error this part is missing" in done.stderr
    assert "include/src" not in done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ("compile",),
        ("compile", "no-such-file.cu"),
        ("compile", SCALE, "--kind", "exe"),
        ("compile", SCALE, "--arch", "native"),
        ("compile", SCALE, "--arch", "sm_90a", "-I", "bad label=/x", "-I", "toolkit=/x"),
        ("compile", SCALE, "--arch", "sm_90a", "--", "-dc"),
        ("compile", SCALE, "--arch", "sm_90a", "--", "-arch=sm_80"),
        ("compile", SCALE, "--arch", "sm_90a", "-o", "/no/such/folder/x.cubin"),
        ("show", "zzzz"),
        ("show", "abcdef"),
        ("inspect",),
        ("frobnicate",),
    ],
    ids=lambda argv: " ".join(map(str, argv[-2:])).replace("/", "_"),
)
def test_wrong_usage_exits_2_with_a_sentence(warm: Cli, argv: tuple[object, ...]) -> None:
    done = warm(*argv, status=2)
    assert done.stderr.strip()


def test_a_missing_compiler_exits_4_and_says_where_it_was_looked_for(cold: Cli) -> None:
    cold.environ["CUBINET_NVCC"] = "/no/such/nvcc"
    done = cold("compile", SCALE, "--arch", "sm_90a", status=4)
    assert "/no/such/nvcc" in done.stderr


def test_the_result_can_be_written_to_a_file_and_inspected(warm: Cli, tmp_path: Path) -> None:
    out = tmp_path / "scale.cubin"
    warm("compile", SCALE, "--arch", "sm_90a", "-o", out)
    info = warm.json("inspect", out, "--json")
    assert info["kind"] == "cubin"
    assert info["kernels"][0]["symbol"] == "scale"
    assert "scale" in warm("inspect", out).stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["scale.cubin"]


def test_inspecting_something_else_is_an_error_not_a_traceback(warm: Cli, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF" + bytes(50))
    assert warm("inspect", tmp_path / "x", status=1).stderr.startswith("cubinet: cannot ")


def test_options_after_two_dashes_reach_the_compiler_and_the_key(warm: Cli) -> None:
    plain = warm.json("compile", SCALE, "--arch", "sm_90a", "--json")
    fast = warm.json("compile", SCALE, "--arch", "sm_90a", "--json", "--", "--use_fast_math")
    assert fast["fingerprint"] != plain["fingerprint"]
    verbose = warm.json("compile", SCALE, "--arch", "sm_90a", "--json", "--", "--keep", "-t", "4")
    assert verbose["fingerprint"] == plain["fingerprint"]


def test_the_same_architecture_in_another_spelling_hits(warm: Cli) -> None:
    plain = warm.json("compile", SCALE, "--arch", "sm_90a", "--json")
    spelled = ("--", "-gencode", "arch=compute_90a,code=sm_90a")
    assert warm.json("compile", SCALE, "--arch", "sm_90a", "--json", *spelled)["fingerprint"] == plain["fingerprint"]


def test_labels_name_include_folders_wherever_they_are(warm: Cli, tmp_path: Path) -> None:
    import shutil

    source = EXAMPLES / "vector"
    entries = ("--entry", "vector::reduce<float>", "--entry", "vector::reduce<double, 512>")
    first = warm.json(
        "compile", source / "reduce.cu", "--arch", "sm_90a", "-I", f"vec={source / 'include'}", *entries, "--json"
    )
    assert len(first["kernels"]) == 2
    moved = shutil.copytree(source, tmp_path / "else where")
    second = warm.json(
        "compile", moved / "reduce.cu", "--arch", "sm_90a", "-I", f"vec={moved / 'include'}", *entries, "--json"
    )
    assert (second["status"], second["fingerprint"]) == ("hit", first["fingerprint"])


def test_line_information_says_that_it_stays_local(warm: Cli) -> None:
    found = warm.json("compile", SCALE, "--arch", "sm_90a", "--json", "--", "-lineinfo")
    assert found["reason"] is None
    assert "-lineinfo" in found["local_only"]
    assert "-lineinfo" in warm("compile", SCALE, "--arch", "sm_90a", "--", "-lineinfo").stdout


def test_an_uncacheable_compile_says_why(warm: Cli, tmp_path: Path) -> None:
    found = warm.json("compile", SCALE, "--arch", "sm_90a", "--json", "--", "-Xcompiler", f"-idirafter{tmp_path}")
    assert found["status"] == "compiled"
    assert found["cacheable"] is False
    assert "-idirafter" in found["reason"]
    assert found["layer"] is None


def test_ls_and_show_list_what_is_there(warm: Cli) -> None:
    records = warm.json("ls", "--json")
    assert all(record["format"] == 1 for record in records)
    one = records[0]
    assert one["fingerprint"][:16] in warm("ls").stdout
    assert warm.json("show", one["fingerprint"][:10], "--json") == one
    text = warm("show", one["fingerprint"]).stdout
    assert one["toolchain"]["version"] in text
    assert "__global__" in warm("show", one["fingerprint"], "--source").stdout
    assert "toolkit:cuda_runtime.h" in warm("show", one["fingerprint"], "--observations").stdout
    assert warm.json("ls", "--arch", "sm_10", "--json") == []


def test_verify_finds_a_flipped_bit_and_the_next_run_heals_it(cold: Cli) -> None:
    first = cold.json("compile", SCALE, "--arch", "sm_90a", "--json")
    blob = Path(first["blobs"]["cubin"]["path"])
    data = bytearray(blob.read_bytes())
    data[100] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    report = cold.json("verify", "--json", status=1)
    assert report["clean"] is False
    assert len(report["problems"]) == 1
    assert cold.json("verify", "--json")["clean"] is True
    again = cold.json("compile", SCALE, "--arch", "sm_90a", "--json")
    assert (again["status"], again["fingerprint"]) == ("compiled", first["fingerprint"])
    assert again["blobs"]["cubin"]["digest"] == first["blobs"]["cubin"]["digest"]
    assert cold.json("compile", SCALE, "--arch", "sm_90a", "--json")["status"] == "hit"


def test_doctor_says_which_rule_found_the_compiler(cold: Cli) -> None:
    report = cold.json("doctor", "--json")
    assert report["ok"] is True
    assert [step["rule"] for step in report["compiler"]["steps"]][:3] == ["CUBINET_NVCC", "NVCC", "$CUDA_HOME/bin"]
    assert [step["chosen"] for step in report["compiler"]["steps"]].count(True) == 1
    assert report["recorder"]["trusted"] is True
    assert report["nvrtc"]["version"]
    assert report["store"]["writable"] is True
    assert "all is well" in cold("doctor").stdout


def test_doctor_exits_1_when_the_main_job_would_fail(cold: Cli, tmp_path: Path) -> None:
    cold.environ["PATH"] = str(tmp_path)  # no gcc there
    done = cold("doctor", status=1)
    assert "gcc" in done.stdout
    assert "the main job would fail" in done.stdout


def test_a_folder_others_can_write_is_refused_unless_told_so(cold: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o777)
    done = cold("compile", SCALE, "--arch", "sm_90a", status=2)
    assert "others can write" in done.stderr
    cold("doctor", status=1)
    cold.environ["CUBINET_TRUST"] = "open"
    assert cold.json("compile", SCALE, "--arch", "sm_90a", "--json")["layer"] == "local"


def test_the_toolkit_of_a_wheel_is_used_when_there_is_no_other(cold: Cli, tmp_path: Path) -> None:
    import shutil

    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("gcc", "sh"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    cold.environ["PATH"] = str(tools)
    steps = cold.json("doctor", "--json")["compiler"]["steps"]
    assert steps[-1]["rule"] == "PyPI wheel"
    assert cold.json("compile", SCALE, "--arch", "sm_90a", "--json")["status"] == "compiled"
    assert cold.json("compile", SCALE, "--arch", "sm_90a", "--json")["status"] == "hit"


def test_every_command_explains_itself(warm: Cli) -> None:
    for command in ("compile", "ls", "show", "inspect", "verify", "doctor"):
        text = warm(command, "--help").stdout
        assert "--json" in text
    assert warm("--version").stdout.startswith("cubinet, version ")


def test_explain_says_what_differs_from_the_nearest_build(warm: Cli, tmp_path: Path) -> None:
    hit = warm.json("explain", SCALE, "--arch", "sm_90a", "--json")
    assert (hit["outcome"], hit["changes"]) == ("hit", [])
    other = warm.json("explain", SCALE, "--arch", "sm_80", "--json", status=3)
    assert other["outcome"] == "miss"
    assert "target" in {change["name"] for change in other["changes"]}
    assert "sm_80" in warm("explain", SCALE, "--arch", "sm_80", status=3).stdout
    new = tmp_path / "new.cu"
    new.write_text("__global__ void n() {}")
    assert "new" in warm("explain", new, "--arch", "sm_80", status=3).stdout


def test_explain_names_the_header_that_changed(cold: Cli, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "h.cuh"\n__global__ void k(int* p) { *p = H; }\n')
    (tmp_path / "h.cuh").write_text("#define H 1\n")
    cold("compile", tmp_path / "k.cu", "--arch", "sm_90a")
    (tmp_path / "h.cuh").write_text("#define H 2\n")
    found = cold.json("explain", tmp_path / "k.cu", "--arch", "sm_90a", "--json", status=3)
    assert found["changes"] == [{"what": "observation", "name": "src:h.cuh", "detail": "changed"}]


def test_verify_can_compile_a_sample_again_and_compare(cold: Cli) -> None:
    cold("compile", SCALE, "--arch", "sm_90a")
    vector = EXAMPLES / "vector"
    cold("compile", vector / "reduce.cu", "--arch", "sm_90a", "-I", f"vec={vector / 'include'}", "--", "-O2", "-DX=1")
    folders: tuple[str, ...] = ("-I", f"src={EXAMPLES}")
    report = cold.json("verify", "--recompile", "9", *folders, "--json")
    assert report["recompiled"]["same"] == {"cubin": 1}
    assert report["recompiled"]["skipped"] == {"cubin": 1}
    assert "-I vec=DIR" in report["recompiled"]["notes"][0]
    folders = ("-I", f"src={vector}", "-I", f"vec={vector / 'include'}")
    report = cold.json("verify", "--recompile", "9", *folders, "--json")
    assert report["recompiled"]["same"] == {"cubin": 1}
    assert "same: 1 cubin" in cold("verify", "--recompile", "9", *folders).stdout


def test_nvrtc_compiles_from_the_command_line(cold: Cli, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("template <class T> __global__ void twice(T* x) { *x += *x; }\n")
    argv = ("compile", tmp_path / "k.cu", "--arch", "sm_90a", "--compiler", "nvrtc", "--entry", "twice<int>", "--json")
    assert cold.json(*argv)["kernels"][0]["name"] == "void twice<int>(int*)"
    assert cold.json(*argv)["status"] == "hit"


def test_a_gate_fails_the_command_and_names_the_kernel(cold: Cli, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        'extern "C" __global__ void big(float* x, int j) { float a[64]; for (int i = 0; i < 64; i++) a[i] = x[i];\n'
        "for (int i = 0; i < 64; i++) a[i * j & 63] += x[i]; x[0] = a[j & 63]; }\n"
    )
    done = cold("compile", tmp_path / "k.cu", "--arch", "sm_90a", "--check-no-local-memory", status=1)
    assert "big: " in done.stderr
    assert cold.json("compile", tmp_path / "k.cu", "--arch", "sm_90a", "--json")["status"] == "hit"


def test_an_option_for_the_compiler_without_two_dashes_is_explained(warm: Cli) -> None:
    assert "two dashes" in warm("compile", SCALE, "--arch", "sm_90a", "-lineinfo", status=2).stderr


def test_a_closed_pipe_is_no_error(warm: Cli) -> None:
    command = f"{sys.executable} -m cubinet ls --json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=warm.environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
