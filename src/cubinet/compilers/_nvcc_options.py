"""The options of nvcc: what each one means to a build, and the ways they reach nvcc.

The rows are those of `nvcc --help` of 13.0 and 13.5; a test reads the help of the nvcc at hand and fails on
one that is missing or takes another argument. What the rows say about bytes was measured, most of it with
`nvcc -dryrun`: an option is dropped only if the commands that nvcc would run stay the same without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from cubinet.compilers._options import Form, Option, Parsed, Table, Treatment, Words, parse
from cubinet.errors import ConfigError

__all__ = ["NVCC", "parse_nvcc", "split_environment", "split_options_file"]

_SPLIT_COMPILE = re.compile(r"(?:^| )--?split-compile(?:-extended)?[= ][+]?0[xX]?0*(?= |$)")
_FIXED_NUMBER = "give a fixed number of threads"
_PATH = r".*/.*"

_HOST_WORDS = Words(
    # The host compiler is the preprocessor: what it finds through these is under no root.
    uncacheable=re.compile(
        r"-I.*|-i[a-z]+.*|--?sysroot.*|-B.*|@.*|--?specs=.*|-f(?:plugin|profile-use|auto-profile).*|-wrapper.*|-o.*"
        r"|-M.*|-d.*|-f(?!(?:macro|file|debug|profile)-prefix-map=).*/.*|-save-temps.*|-aux-info.*|-X.*|-W[pal],.*"
    ),
    bound=re.compile(r"-f(?:macro|file|debug|profile)-prefix-map=.*"),
    refused=re.compile(r"(?:^| )-m(?:arch|tune|cpu)=native(?= |$)"),
    known=re.compile(
        r"-[DU].+|-O[0-3sgz]?|-Ofast|-[WfgO][A-Za-z0-9=+_.-]*|-m[A-Za-z0-9=+_.-]+|-w|-std=[a-z0-9+]+|-ansi|-pipe"
        r"|-pthread|-pedantic(?:-errors)?|-nostdinc(?:\+\+)?|-undef|-trigraphs|-rdynamic",
        re.DOTALL,
    ),
    remedy="name the processor",
)
_PTXAS_WORDS = Words(
    uncacheable=re.compile(rf"(?:--?options-file|-optf|--?output-file|-o|--?input-as-string|-ias)(?:=.*)?|{_PATH}"),
    bound=re.compile(r"-g|-lineinfo|--(?:device-debug|generate-line-info)"),
    refused=_SPLIT_COMPILE,
    remedy=_FIXED_NUMBER,
)
_CICC_WORDS = Words(
    uncacheable=re.compile(rf"-o|{_PATH}"),
    bound=re.compile(r"-g|--?generate-line-info|-lineinfo|-show-src|--debug_mode"),
    refused=_SPLIT_COMPILE,
    remedy=_FIXED_NUMBER,
)
_TOOL_WORDS = Words(uncacheable=re.compile(rf"-o|{_PATH}"))


def _row(name: str, *short: str, form: Form = Form.FLAG, group: str = "", since: str = "", why: str = "") -> Option:
    """An option that changes what is compiled and needs no further word."""
    return Option(f"--{name}", short or (f"-{name}",), form, why=why, group=group, since=since)


def _drop(why: str, name: str, *short: str, form: Form = Form.FLAG, since: str = "", attached: str = "") -> Option:
    return Option(f"--{name}", short or (f"-{name}",), form, Treatment.OUTPUT, why, attached=attached, since=since)


def _kind(name: str, short: str = "", since: str = "") -> Option:
    why = "names an output kind"
    return Option(f"--{name}", (short or f"-{name}",), treatment=Treatment.KIND, why=why, since=since)


def _refuse(why: str, remedy: str, name: str, *short: str, since: str = "") -> Option:
    short = short or (f"-{name}",)
    return Option(f"--{name}", short, treatment=Treatment.REFUSED, why=why, remedy=remedy, since=since)


_LEAVE_OUT = "leave it out"
_LINK = "it asks for a link, and one compile makes one object"
_INFORM = "it prints something and compiles nothing"
_AT_LINK = "only the link stage looks at it, and nothing is linked"
_OWN_OUTPUT = "the adapter names all outputs"
_DEPENDENCIES = "dependency files: the adapter observes what is read"
_TALK = "verbosity and timing: no effect on the bytes"
_PARALLEL = "how many compile at once: the bytes stay the same [run]"
_WINDOWS = "Windows only: no effect here [run]"
# A word like -lineinfo is not `-l ineinfo` to an nvcc that knows it, so only usual libraries are taken for one.
_LIBRARIES = r"cu[a-z_]+|nv[A-Za-z_-]+|(?:m|c|dl|rt|pthread|gomp|stdc\+\+)"

_STAGES = (
    _kind("cuda"),
    _kind("cubin"),
    _kind("fatbin"),
    _kind("ptx"),
    _kind("optix-ir"),
    _kind("ltoir"),
    _kind("tilebc", since="13.5"),
    _kind("tilecubin", since="13.5"),
    _kind("tilefatbin", since="13.5"),
    _kind("preprocess", "-E"),
    _kind("generate-dependencies", "-M"),
    _kind("generate-nonsystem-dependencies", "-MM"),
    Option("--compile", ("-c",), treatment=Treatment.STAGE, why="no effect beside -cubin, -ptx, -fatbin [run]"),
    Option("--device-w", ("-dw",), treatment=Treatment.STAGE, why="as -c, with -rdc=false, the default"),
    _refuse("it asks for an object file", "for relocatable device code give -rdc=true", "device-c", "-dc"),
    _refuse(_LINK, _LEAVE_OUT, "device-link", "-dlink"),
    _refuse(_LINK, _LEAVE_OUT, "link"),
    _refuse(_LINK, _LEAVE_OUT, "lib"),
    _refuse(_LINK, _LEAVE_OUT, "run"),
    _refuse(_LINK, "for relocatable device code give -rdc=true", "relocatable-link", "-r"),
    _refuse("it edits libraries", _LEAVE_OUT, "prune", since="13.5"),
    _refuse("it deletes files instead of compiling", _LEAVE_OUT, "clean-targets", "-clean"),
    _refuse(_INFORM, _LEAVE_OUT, "dryrun"),
    _refuse(_INFORM, _LEAVE_OUT, "list-gpu-code", "-code-ls"),
    _refuse(_INFORM, _LEAVE_OUT, "list-gpu-arch", "-arch-ls"),
    _refuse(_INFORM, _LEAVE_OUT, "help", "-h"),
    _refuse(_INFORM, _LEAVE_OUT, "version", "-V"),
)

_DROPPED = (
    _drop(_OWN_OUTPUT, "output-file", "-o", form=Form.VALUE),
    _drop(_OWN_OUTPUT, "output-directory", "-odir", form=Form.VALUE),
    _drop(_OWN_OUTPUT, "objdir-as-tempdir", "-objtemp"),
    _drop(_OWN_OUTPUT, "keep"),
    _drop(_OWN_OUTPUT, "keep-dir", form=Form.VALUE),
    _drop(_OWN_OUTPUT, "save-temps"),
    _drop(_DEPENDENCIES, "generate-dependencies-with-compile", "-MD"),
    _drop(_DEPENDENCIES, "generate-nonsystem-dependencies-with-compile", "-MMD"),
    _drop(_DEPENDENCIES, "dependency-output", "-MF", form=Form.VALUE),
    _drop(_DEPENDENCIES, "dependency-target-name", "-MT", form=Form.VALUE),
    _drop(_DEPENDENCIES, "generate-dependency-targets", "-MP"),
    _drop(_TALK, "verbose", "-v"),
    _drop(_TALK, "verbose2", "-v2", since="13.5"),
    _drop(_TALK, "time", form=Form.VALUE),
    _drop(_TALK, "fdevice-time-trace", form=Form.VALUE),
    _drop(_TALK, "fdevice-time-trace-granularity", form=Form.NUMBER, since="13.5"),
    _drop(_TALK, "Wno-deprecated-gpu-targets"),
    _drop(_PARALLEL, "threads", "-t", form=Form.NUMBER, attached=r"\d+"),
    _drop(_PARALLEL, "jobserver"),
    _drop(_AT_LINK, "library", "-l", form=Form.NAMES, attached=_LIBRARIES),
    _drop(_AT_LINK, "library-path", "-L", form=Form.NAMES, attached=".+"),
    _drop(_AT_LINK, "archiver-binary", "-arbin", form=Form.VALUE),
    _drop(_AT_LINK, "cudart", form=Form.VALUE),
    _drop(_AT_LINK, "cudadevrt", form=Form.VALUE),
    _drop(_AT_LINK, "shared"),
    _drop(_AT_LINK, "linker-options", "-Xlinker", form=Form.LIST),
    _drop(_AT_LINK, "archive-options", "-Xarchive", form=Form.LIST),
    _drop(_AT_LINK, "nvlink-options", "-Xnvlink", form=Form.LIST),
    _drop(_AT_LINK, "nvprune-options", "-Xnvprune", form=Form.LIST, since="13.5"),
    _drop(_AT_LINK, "no-device-link", "-nodlink"),
    _drop(_AT_LINK, "host-linker-script", "-hls", form=Form.VALUE),
    _drop(_AT_LINK, "augment-host-linker-script", "-aug-hls"),
    _drop("only --run looks at it", "run-args", form=Form.LIST),
    _drop(_WINDOWS, "use-local-env"),
    _drop(_WINDOWS, "force-cl-env-setup"),
    _drop(_WINDOWS, "input-drive-prefix", "-idp", form=Form.VALUE),
    _drop(_WINDOWS, "dependency-drive-prefix", "-ddp", form=Form.VALUE),
    _drop(_WINDOWS, "drive-prefix", "-dp", form=Form.VALUE),
    Option("--no-align-double", (), treatment=Treatment.OUTPUT, why="32 bit only: no effect here [run]"),
)

_PLACES = (
    Option("--include-path", ("-I",), Form.NAMES, Treatment.INCLUDE, "becomes a root", attached=".+"),
    Option("--system-include", ("-isystem",), Form.NAMES, Treatment.SYSTEM, "becomes a root"),
    Option("--pre-include", ("-include",), Form.NAMES, Treatment.PREINCLUDE, "a header in front of the source"),
    Option("--options-file", ("-optf",), Form.NAMES, Treatment.OPTIONS_FILE, "expanded where it stands"),
    Option("--compiler-bindir", ("-ccbin",), Form.VALUE, Treatment.HOST_COMPILER, "part of the toolchain"),
    Option("--libdevice-directory", ("-ldir",), Form.VALUE, Treatment.UNCACHEABLE, "a folder outside the toolchain"),
    Option("--dont-use-profile", ("-noprof",), treatment=Treatment.UNCACHEABLE, why="no headers of its own"),
    Option(
        "--apply-controls",
        ("-apply-controls",),
        Form.VALUE,
        Treatment.UNCACHEABLE,
        "a file whose content is not understood",
        since="13.5",
    ),
    Option("--target-directory", ("-target-dir",), Form.VALUE, why="which headers of the toolkit are used"),
    Option(
        "--gpu-architecture",
        ("-arch",),
        Form.VALUE,
        Treatment.ARCH,
        "it means the devices of this machine",
        refused=("native",),
        remedy="name the architecture, as sm_90a",
    ),
    Option("--gpu-code", ("-code",), Form.NAMES, Treatment.ARCH, "which images to make"),
    Option("--generate-code", ("-gencode",), Form.EACH, Treatment.ARCH, "an architecture and its images"),
)

_LANGUAGE = (
    Option("--define-macro", ("-D",), Form.LIST, group="macros", attached=".+", why="-D and -U keep their order"),
    Option("--undefine-macro", ("-U",), Form.LIST, group="macros", attached=".+", why="-D and -U keep their order"),
    Option(
        "--x",
        ("-x",),
        Form.VALUE,
        why="it makes nvcc compile for the host only",
        refused=("c", "c++"),
        remedy="leave it out or give cu",
    ),
    _row("std", form=Form.VALUE),
    _row("stdlib", form=Form.VALUE, since="13.5"),
    _row("machine", "-m", form=Form.VALUE),
    Option("--m64", ("-m64",), means="--machine=64"),
    _row("no-exceptions", "-noeh"),
    _row("ftemplate-backtrace-limit", form=Form.NUMBER),
    _row("ftemplate-depth", form=Form.NUMBER),
    _row("fmax-errors", form=Form.NUMBER, since="13.5"),
    _row("no-host-device-initializer-list", "-nohdinitlist"),
    _row("no-host-device-move-forward", "-nohdmoveforward"),
    _row("expt-relaxed-constexpr"),
    _row("extended-lambda"),
    Option("--expt-extended-lambda", ("-expt-extended-lambda",), means="--extended-lambda"),
    _row("utf-8", since="13.5"),
    _row("allow-unsupported-compiler"),
    _row("qpp-config", form=Form.VALUE, why="takes a value, though --help does not show it [run]"),
    _row("static-global-template-stub", form=Form.VALUE),
    _row("device-entity-has-hidden-visibility", form=Form.VALUE),
    _row("default-stream", form=Form.VALUE),
    _row("forward-unknown-to-host-compiler"),
    _row("forward-unknown-to-host-linker"),
    _row("forward-unknown-opts"),
    _row("safety-compatibility", "-safety-compat", since="13.5"),
)

_CODE = (
    Option("--optimize", ("-O",), Form.NUMBER, attached=r"\d+", why="host code; the preprocessor sees it"),
    _row("Ofast-compile", "-Ofc", form=Form.VALUE),
    _row("dopt", form=Form.VALUE),
    _row("profile", "-pg"),
    _row("debug", "-g"),
    Option("--device-debug", ("-G",), treatment=Treatment.BOUND, why="folders and temporary names in the DWARF"),
    Option("--generate-line-info", ("-lineinfo",), treatment=Treatment.BOUND, why="absolute folders in the lines"),
    Option("--source-in-ptx", ("-src-in-ptx",), treatment=Treatment.BOUND, why="source lines and their folders"),
    _row("optimization-info", "-opt-info", form=Form.NAMES),
    _row("dlink-time-opt", "-dlto"),
    Option("--lto", ("-lto",), means="--dlink-time-opt"),
    _row("gen-opt-lto"),
    _row("relocatable-device-code", "-rdc", form=Form.VALUE),
    _row("extensible-whole-program", "-ewp"),
    _row("entries", "-e", form=Form.NAMES),
    _row("maxrregcount", form=Form.NUMBER),
    _row("use_fast_math", why="an explicit -ftz and its like win, wherever they stand [run]"),
    _row("ftz", form=Form.VALUE),
    _row("prec-div", form=Form.VALUE),
    _row("prec-sqrt", form=Form.VALUE),
    _row("fmad", form=Form.VALUE),
    _row("extra-device-vectorization"),
    _row("restrict"),
    _row("keep-device-functions"),
    _row("jump-table-density", "-jtd", form=Form.NUMBER),
    _row("device-stack-protector", form=Form.VALUE),
    _row("sanitize", form=Form.VALUE),
    _row("fdevice-sanitize", form=Form.VALUE, since="13.5"),
    _row("fdevice-syntax-only"),
    _row("skip-ptx-semantics-check", since="13.5"),
    _row("compile-as-tools-patch", "-astoolspatch"),
    _row("frandom-seed", form=Form.VALUE, why="reaches symbol names"),
    _row("relocatable-ptx", "-reloc-ptx"),
    _row("no-compress"),
    _row("compress-mode", form=Form.VALUE),
    _row("concat", since="13.5"),
    _row("enable-tile", since="13.5"),
    _row("tile-preview", form=Form.VALUE, since="13.5"),
    _row("tile-only", since="13.5"),
    _row("simt-only", since="13.5"),
    Option(
        "--split-compile",
        ("-split-compile",),
        Form.NUMBER,
        why="0 is the number of processors, and the bytes differ",
        refused=("0",),
        remedy=_FIXED_NUMBER,
    ),
    Option(
        "--split-compile-extended",
        ("-split-compile-extended",),
        Form.NUMBER,
        why="0 is the number of processors, and the bytes differ",
        refused=("0",),
        remedy=_FIXED_NUMBER,
    ),
)

# Warnings change the bytes: the tkinfo note holds the command line of ptxas, which shares -w and -Werror [run].
_WARNINGS = (
    _row("disable-warnings", "-w"),
    _row("Wreorder"),
    _row("Wdefault-stream-launch"),
    _row("Wmissing-launch-bounds"),
    _row("Wext-lambda-captures-this"),
    _row("Wno-deprecated-declarations"),
    _row("Wconversion", since="13.5"),
    Option("--Werror", ("-Werror",), Form.NAMES, unordered=True, why="a set of kinds [run]"),
    _row("resource-usage", "-res-usage", why="hands -v to ptxas"),
    _row("display-error-number", "-err-no", group="error-number"),
    _row("no-display-error-number", "-no-err-no", group="error-number"),
    _row("diag-error", form=Form.NAMES),
    _row("diag-suppress", form=Form.NAMES),
    _row("diag-warn", form=Form.NAMES),
    _row("brief-diagnostics", "-brief-diag", form=Form.VALUE),
)

_HANDED_ON = (
    Option("--compiler-options", ("-Xcompiler",), Form.LIST, why="to the preprocessor", words=_HOST_WORDS),
    Option("--ptxas-options", ("-Xptxas",), Form.LIST, why="to the assembler", words=_PTXAS_WORDS),
    Option("--cicc-options", ("-Xcicc",), Form.LIST, why="to the compiler", words=_CICC_WORDS, since="hidden"),
    Option("--cudafe-options", ("-Xcudafe",), Form.LIST, why="to the front end", words=_CICC_WORDS, since="hidden"),
    Option("--fatbin-options", ("-Xfatbin",), Form.LIST, why="to fatbinary", words=_TOOL_WORDS, since="hidden"),
    Option("--tileiras-options", ("-Xtileiras",), Form.LIST, why="to the assembler", words=_PTXAS_WORDS, since="13.5"),
)


def split_options_file(text: str) -> list[str]:
    r"""Split an options file into words as nvcc 13.0 does.

    Blanks, tabs and line ends separate; `"` protects them, `\` takes the next character as it is. Then every `"`
    goes, even an escaped one: no macro can hold a quotation mark. There are no comments and no single quotes.
    """
    words: list[str] = []
    word: str | None = None
    quoted, characters = False, iter(text.partition("\0")[0])
    for c in characters:
        if c in " \t\r\n" and not quoted:
            if word is not None:
                words.append(word)
            word = None
        elif c == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise ConfigError("read options file", "", "it ends in a lone backslash")
            word = (word or "") + escaped.replace('"', "")
        else:
            quoted ^= c == '"'
            word = (word or "") + c.replace('"', "")
    if quoted:
        raise ConfigError("read options file", "", "a quotation mark without its partner")
    return words if word is None else [*words, word]


def split_environment(text: str) -> list[str]:
    r"""Split `NVCC_PREPEND_FLAGS` or `NVCC_APPEND_FLAGS` into words as nvcc 13.0 does.

    Blanks and tabs separate, line ends do not. `"` protects blanks and stays in the word, with `\"` inside it;
    outside of quotes `\` is a plain character.
    """
    words, word, quoted, escaped = [], "", False, False
    for c in text:
        if c in " \t" and not quoted:
            words.append(word)
            word = ""
            continue
        word += c
        if escaped:
            escaped = False
        elif c == '"':
            quoted = not quoted
        else:
            escaped = quoted and c == "\\"
    if quoted:
        raise ConfigError("read", "NVCC_PREPEND_FLAGS or NVCC_APPEND_FLAGS", "a quotation mark without its partner")
    return [word for word in (*words, word) if word]


_GENERATE_CODE = re.compile(r'\s*(arch|code)\s*=\s*("[^"]*"|\[[^\]]*\]|[^,"\[\]]*)\s*')
_SPECIFIC = re.compile(r"sm_\d+[a-z]")


def _read_generate_code(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The virtual architecture and the images of a `-gencode`; `None` if it is not understood."""
    facts: dict[str, str] = {}
    at = 0
    while (found := _GENERATE_CODE.match(text, at)) and found[1] not in facts:
        facts[found[1]] = found[2].strip('"[] ')
        at = found.end()
        if at == len(text):
            break
        if text[at] != ",":
            return None
        at += 1
    codes = tuple(code for code in (part.strip() for part in facts.get("code", "").split(",")) if code)
    return (facts["arch"], codes) if at == len(text) and facts.get("arch") and codes else None


def _shorthand(arch: str, codes: tuple[str, ...], kind: str) -> tuple[str, tuple[str, ...]] | None:
    """What `-arch` and `-code` mean in terms of `-gencode`; `None` if `-gencode` cannot say it."""
    if codes:
        # nvcc 13.0 puts the images of -code into a fatbin in another order than those of -gencode.
        same = arch.startswith("compute_") and (kind != "fatbin" or len(codes) == 1)
        return (arch, codes) if same else None
    if arch.startswith("compute_"):
        return arch, (arch,)
    if not arch.startswith("sm_") or (kind == "fatbin" and _SPECIFIC.fullmatch(arch)):
        # As a fatbin, -arch=sm_90a also holds PTX for compute_90, which no single -gencode adds.
        return None
    virtual = arch.replace("sm_", "compute_")
    return virtual, (arch, virtual) if kind == "fatbin" else (arch,)


def _architectures(pairs: Sequence[tuple[str, str]], kind: str, given: Container[object]) -> tuple[str, ...]:
    """Canonical `--generate-code` arguments; `--gpu-architecture` and `--gpu-code` where only they can say it."""
    arch = ""
    codes: list[str] = []
    asked: list[tuple[str, tuple[str, ...]] | str] = []
    for name, value in pairs:
        if name == "--gpu-architecture":
            arch = value
        elif name == "--gpu-code":
            codes.append(value)
        else:
            asked.append(_read_generate_code(value) or f"--generate-code={value}")
    if codes and not arch.startswith("compute_"):
        raise ConfigError(
            "use option", f"-code={','.join(codes)}", f"-arch is {arch or 'missing'}", "give -arch=compute_..."
        )
    before: list[str] = []
    if arch:
        meant = _shorthand(arch, tuple(codes), kind)
        # nvcc refuses -dlto beside -gencode.
        if meant is None or "--dlink-time-opt" in given:
            before = [f"--gpu-architecture={arch}", *(f"--gpu-code={code}" for code in codes)]
        else:
            asked.insert(0, meant)
    images: list[str] = []
    for entry in asked:
        images += [entry] if isinstance(entry, str) else _images(*entry, kind)
    if kind == "fatbin":
        images = images[:1] + [after for one, after in pairwise(images) if after != one]
    return (*before, *(images if kind == "fatbin" else dict.fromkeys(images)))


def _images(virtual: str, codes: tuple[str, ...], kind: str) -> list[str]:
    if kind == "ptx":
        # PTX is that of the virtual architecture, whatever is made of it later.
        codes = tuple(code if code.startswith("lto_") else virtual for code in codes)
    if kind == "fatbin" and len(codes) > 1:
        return [f"--generate-code=arch={virtual},code=[{','.join(codes)}]"]
    return [f"--generate-code=arch={virtual},code={code}" for code in codes]


NVCC = Table(
    (*_STAGES, *_DROPPED, *_PLACES, *_LANGUAGE, *_CODE, *_WARNINGS, *_HANDED_ON), _architectures, split_options_file
)


def _read_text(path: str) -> str:
    return Path(path).read_text("utf-8", "surrogateescape")


def parse_nvcc(
    argv: Sequence[str],
    *,
    kind: str,
    folder: str,
    environ: Mapping[str, str],
    read_text: Callable[[str], str] = _read_text,
) -> Parsed:
    """Read nvcc's arguments and the variables that add to them.

    `NVCC_PREPEND_FLAGS` comes before, `NVCC_APPEND_FLAGS` after the arguments, so the last of two values that
    exclude each other counts; `NVCC_CCBIN` counts if there is no `-ccbin`. The child must not see the three.

    Raises:
        ConfigError: for an option that cannot be meant, or that means something else elsewhere.
    """
    before, after = environ.get("NVCC_PREPEND_FLAGS"), environ.get("NVCC_APPEND_FLAGS")
    host = environ.get("NVCC_CCBIN")
    words = [
        *(("-ccbin", host) if host else ()),
        *(split_environment(before) if before else ()),
        *argv,
        *(split_environment(after) if after else ()),
    ]
    return parse(NVCC, words, kind=kind, folder=folder, read_text=read_text)
