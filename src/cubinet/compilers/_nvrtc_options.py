"""The options of NVRTC: what each one means to a build.

The rows are the options that `nvrtc.h` of 13.5 documents; a test reads the header at hand and fails on one
that is missing, another gives every spelling to the library. What the rows say about bytes was measured.

NVRTC reads each entry of its list alone, without a shell: blanks around an entry go, nothing is quoted or
split but the lists of warnings, and a value may be an entry of its own, except where a row says `joined`.
Left to NVRTC is what it refuses by itself, such as an architecture that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from cubinet.compilers._options import Form, Option, Parsed, Table, Treatment, Words, parse
from cubinet.errors import ConfigError

__all__ = ["NVRTC", "parse_nvrtc"]

_BLANKS = " \t\n\v\f\r"
_FIXED_NUMBER = "give a fixed number of threads"
_LEAVE_OUT = "leave it out"
_LAST_COUNTS = "NVRTC refuses it beside its opposite; here the last one counts"
_ABORTS = "NVRTC 13.5 ends the process over an empty value [run]"

_PTXAS_WORDS = Words(
    # What is neither an option nor a number may be the name of another input.
    uncacheable=re.compile(
        r"(?:--?options-file|-optf|--?output-file|-o|--?input-as-string|-ias|--?fdevice-time-trace)(?:=.*)?"
        r"|.*/.*|(?!-|\d+$).*"
    ),
    bound=re.compile(r"-g|-lineinfo|--(?:device-debug|generate-line-info)"),
    refused=re.compile(r"(?:^| )--?split-compile(?:-extended)?[= ][+]?0[xX]?0*(?= |$)"),
    remedy=_FIXED_NUMBER,
)


def _row(
    name: str,
    *short: str,
    form: Form = Form.FLAG,
    group: str = "",
    since: str = "",
    why: str = "",
    joined: bool = False,
) -> Option:
    """An option that changes what is compiled and needs no further word."""
    return Option(f"--{name}", short or (f"-{name}",), form, why=why, group=group, since=since, joined=joined)


def _drop(why: str, name: str, *, form: Form = Form.FLAG, joined: bool = False) -> Option:
    return Option(f"--{name}", (f"-{name}",), form, Treatment.OUTPUT, why, joined=joined)


_OWN_OUTPUT = "the adapter names all outputs"
_SPEED = "speed only: the bytes stay the same [run]"
_HEADERS = "precompiled headers, for speed only: the bytes stay the same [run]"

_KINDS = (
    Option("--dlink-time-opt", ("-dlto",), treatment=Treatment.KIND, why="names an output kind", kind="ltoir"),
    Option("--optix-ir", ("-optix-ir",), treatment=Treatment.KIND, why="names an output kind"),
    Option(
        "--fdevice-syntax-only",
        ("-fdevice-syntax-only",),
        treatment=Treatment.REFUSED,
        why="it checks the syntax and makes no valid code",
        remedy=_LEAVE_OUT,
    ),
)

_DROPPED = (
    _drop("the adapter says whether; no cache was seen to work [run]", "no-cache"),
    _drop("for the process that compiles: the bytes stay the same [run]", "modify-stack-limit", form=Form.VALUE),
    _drop(_OWN_OUTPUT, "time", form=Form.VALUE, joined=True),
    _drop(_OWN_OUTPUT, "fdevice-time-trace", form=Form.VALUE, joined=True),
    _drop(_HEADERS, "pch"),
    _drop(_HEADERS, "pch-dir", form=Form.VALUE, joined=True),
    _drop(_HEADERS, "use-pch", form=Form.VALUE, joined=True),
    _drop(_OWN_OUTPUT, "create-pch", form=Form.VALUE, joined=True),
    _drop(_SPEED, "instantiate-templates-in-pch", form=Form.VALUE),
    _drop("verbosity: no effect on the bytes", "pch-verbose", form=Form.VALUE),
    _drop("verbosity: no effect on the bytes", "pch-messages", form=Form.VALUE),
)

_PLACES = (
    Option("--include-path", ("-I",), Form.EACH, Treatment.INCLUDE, "becomes a root", attached=".+"),
    Option("--pre-include", ("-include",), Form.EACH, Treatment.PREINCLUDE, "a header in front of the source"),
    Option(
        "--use-bundled-headers",
        (),
        Form.VALUE,
        Treatment.UNCACHEABLE,
        "writes headers into a folder and searches it",
        joined=True,
        since="13.5",
    ),
    Option("--gpu-architecture", ("-arch",), Form.VALUE, Treatment.ARCH, "which architecture to compile for"),
)

_LANGUAGE = (
    Option("--define-macro", ("-D",), Form.EACH, group="macros", attached=".+", why="-D and -U keep their order"),
    Option("--undefine-macro", ("-U",), Form.EACH, group="macros", attached=".+", why="-D and -U keep their order"),
    _row("std", form=Form.VALUE, joined=True),
    _row("no-source-include"),
    _row("builtin-move-forward", form=Form.VALUE),
    _row("builtin-initializer-list", form=Form.VALUE),
    _row("device-as-default-execution-space", "-default-device"),
    _row("device-int128"),
    _row("device-float128"),
    _row("minimal", why="leaves out types and macros that the source may look for"),
    _row("utf-8", since="13.5", why="NVRTC for Linux takes it and fails [run]"),
    _row("enable-tile", since="13.5"),
    _row("tile-preview", form=Form.VALUE, joined=True, since="13.5"),
    _row("tile-only", since="13.5"),
    _row("simt-only", since="13.5"),
    _row(
        "tile-as-default-execution-space",
        "-default-tile",
        since="13.5",
        why="--default-tile, which is documented, is none [run]",
    ),
    _row("diagnose-implicit-tile-var", since="13.5"),
)

_CODE = (
    _row("relocatable-device-code", "-rdc", form=Form.VALUE),
    Option("--device-c", ("-dc",), why=_LAST_COUNTS, means="--relocatable-device-code=true"),
    Option("--device-w", ("-dw",), why=_LAST_COUNTS, means="--relocatable-device-code=false"),
    _row("extensible-whole-program", "-ewp"),
    Option("--device-debug", ("-G",), treatment=Treatment.BOUND, why="folders in the DWARF"),
    Option("--generate-line-info", ("-lineinfo",), treatment=Treatment.BOUND, why="folders in the lines"),
    Option("--dopt", ("-dopt",), Form.VALUE, why=_ABORTS, refused=("",), remedy="give on"),
    Option("--Ofast-compile", ("-Ofc",), Form.VALUE, why=_ABORTS, refused=("",), remedy="give 0, min, mid or max"),
    Option(
        "--ptxas-options",
        ("-Xptxas",),
        Form.EACH,
        why=_ABORTS,
        refused=("",),
        remedy="give one option of ptxas",
        words=_PTXAS_WORDS,
    ),
    _row("maxrregcount", form=Form.VALUE, why="010 is 8, and the note of ptxas's options keeps it as written [run]"),
    _row("use_fast_math", why="an explicit -ftz and its like win, wherever they stand [run]"),
    _row("ftz", form=Form.VALUE),
    _row("prec-sqrt", form=Form.VALUE),
    _row("prec-div", form=Form.VALUE),
    _row("fmad", form=Form.VALUE),
    _row("fno-signed-zeros", since="13.5"),
    _row("ffinite-math-only", since="13.5"),
    _row("extra-device-vectorization"),
    _row("restrict"),
    _row("gen-opt-lto"),
    _row("jump-table-density", "-jtd", form=Form.VALUE),
    _row("device-stack-protector", form=Form.VALUE),
    _row("frandom-seed", form=Form.VALUE, joined=True, why="reaches symbol names"),
    Option(
        "--split-compile",
        ("-split-compile",),
        Form.NUMBER,
        why="0 is the number of processors, and the bytes differ",
        refused=("0",),
        remedy=_FIXED_NUMBER,
    ),
)

# Warnings change the bytes: the tkinfo note holds the options of ptxas, which shares -w [run].
_WARNINGS = (
    _row("disable-warnings", "-w"),
    _row("Wreorder", since="13.5"),
    _row("Wconversion", since="13.5"),
    Option("--warning-as-error", ("-Werror",), Form.NAMES, unordered=True, why="a set of kinds", since="13.5"),
    _row("fmax-errors", form=Form.VALUE, since="13.5"),
    _row("optimization-info", "-opt-info", form=Form.VALUE, joined=True),
    _row("display-error-number", "-err-no", why="NVRTC refuses it beside its opposite"),
    _row("no-display-error-number", "-no-err-no", why="NVRTC refuses it beside its opposite"),
    *(
        _row(name, form=Form.NAMES, group="diagnostics", why="the last one that names a number counts [run]")
        for name in ("diag-error", "diag-suppress", "diag-warn")
    ),
    _row("brief-diagnostics", "-brief-diag", form=Form.VALUE),
)


def _architectures(pairs: Sequence[tuple[str, str]], kind: str, _given: Container[object]) -> tuple[str, ...]:
    """The canonical `--gpu-architecture`: the last one counts, and PTX and LTO IR are of the virtual one."""
    if not pairs:
        return ()
    arch = pairs[-1][1]
    if kind != "cubin":
        arch = re.sub(r"^sm_", "compute_", arch)
    elif arch.startswith("compute_"):
        raise ConfigError(
            "make a cubin for", arch, "a cubin is for a real architecture", f"give {arch.replace('compute_', 'sm_')}"
        )
    return (f"--gpu-architecture={arch}",)


NVRTC = Table((*_KINDS, *_DROPPED, *_PLACES, *_LANGUAGE, *_CODE, *_WARNINGS), _architectures, shell=False)


def parse_nvrtc(argv: Sequence[str], *, kind: str, folder: str, environ: Mapping[str, str]) -> Parsed:
    """Read the options of an NVRTC program.

    All that is given back is one entry of NVRTC's list each. The option that asks for LTO IR is not among
    them: it belongs to the kind.

    Args:
        argv: the entries.
        kind: `cubin`, `ptx` or `ltoir`.
        folder: absolute folder that relative paths are meant against.
        environ: the variables that NVRTC will see. No NVRTC tried acts on `NVRTC_APPEND_FLAGS`: 13.0 asks for
            it, 13.5 does not [run]. A build that has it is not kept, as nobody knows what it means.

    Raises:
        ConfigError: for an option that cannot be meant, or that means something else elsewhere.
    """
    parsed = parse(NVRTC, [word.strip(_BLANKS) for word in argv], kind=kind, folder=folder, read_text=_no_file)
    names = [name for name in ("NVRTC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS") if environ.get(name)]
    if names:
        parsed = replace(parsed, uncacheable=(*parsed.uncacheable, *(f"{name}: unknown to Cubinet" for name in names)))
    return parsed


def _no_file(path: str) -> str:
    raise ConfigError("read options file", path, "NVRTC has no options files")
