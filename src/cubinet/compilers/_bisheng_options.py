"""The options of bisheng that Cubinet knows, and the two command lines that they end up in.

There is no `--help` to compare with here: the rows come from public sources (see `docs/reference/ascend.md`). What is
not in the table is handed on and makes the build uncacheable.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from cubinet.compilers._options import Form, Option, Parsed, Table, Treatment, Words, parse
from cubinet.errors import ConfigError

__all__ = ["BISHENG", "for_compiler", "for_linker", "parse_bisheng"]

KIND = "ascend"
_DEFAULTS = ("-O=2", "-mllvm=-cce-aicore-dcpreload-args=false", "-mllvm=-enable-hiipu-vf-loop-unroll")
_NAMED = re.compile(r"(-mllvm=)?(--?[^=]+)")
_LINKER = "-Xlinker"
_ATTACHED = ("-D", "-U", "-O", "-W", "-f")
_SEPARATE = ("-mllvm", "-x", "-Xclang", "-include")
_PATHS = Words(uncacheable=re.compile(r".*/.*|-o|@.*"))
_LEAVE_OUT = "leave it out"
_TWO_STEPS = "the adapter compiles and links by itself"
_OTHER_OUTPUT = "it asks for another output than a device object"


def _flag(name: str, why: str = "") -> Option:
    return Option(name, (), why=why)


def _drop(name: str, why: str, form: Form = Form.FLAG) -> Option:
    return Option(name, (), form, Treatment.OUTPUT, why)


def _refuse(name: str, why: str, remedy: str = _LEAVE_OUT, form: Form = Form.FLAG) -> Option:
    return Option(name, (), form, Treatment.REFUSED, why, remedy=remedy)


_ROWS = (
    Option("--npu-arch", (), Form.VALUE, Treatment.ARCH, "the target names it, too", joined=True),
    _refuse(
        "--cce-aicore-arch", "it names a core kind of an architecture", "name a target, as ascend:dav-2201", Form.VALUE
    ),
    _drop("--cce-aicore-only", "always given"),
    _flag("--enable-simt", "SIMT kernels, on dav-3510"),
    Option("-O", (), Form.VALUE, attached=r"[0-3sz]|fast", why="the last one counts"),
    Option("-std", (), Form.VALUE, joined=True, why="the language"),
    Option("-x", (), Form.VALUE, attached="asc|cce", why="the language of a source whose name does not tell it"),
    Option("-D", (), Form.EACH, group="macros", attached=".+", why="-D and -U keep their order"),
    Option("-U", (), Form.EACH, group="macros", attached=".+", why="-D and -U keep their order"),
    Option("-I", (), Form.EACH, Treatment.INCLUDE, "becomes a root", attached=".+"),
    Option("-isystem", (), Form.EACH, Treatment.SYSTEM, "becomes a root"),
    Option("-include", (), Form.EACH, Treatment.PREINCLUDE, "a header in front of the source"),
    Option("-mllvm", (), Form.EACH, words=_PATHS, why="to the code generator"),
    Option(
        "-f",
        (),
        Form.EACH,
        # not those that name files, folders or programs, or read a profile
        attached=r"(?:no-)?(?!plugin|pass-plugin|profile|modules?|auto-profile|sanitize|xray|crash|save|openmp|embed)"
        r"[a-z][a-z0-9-]*(?:=[a-z0-9+-]+)?",
        why="code generation and language",
    ),
    Option("-W", (), Form.EACH, attached=r"[A-Za-z][A-Za-z0-9+=-]*", why="-Werror decides whether there is a result"),
    _flag("-w", "no warnings"),
    _flag("-g", "line tables"),
    _flag("-gdwarf-5", "their format"),
    _flag("-gembed-source", "sources in them"),
    _flag("-gline-tables-only", "nothing beside them"),
    Option(_LINKER, (), Form.EACH, words=_PATHS, why="to ld.lld"),
    Option("-Xclang", (), Form.EACH, Treatment.UNCACHEABLE, "it goes past the options that are known"),
    _drop("-o", "the adapter names all outputs", Form.VALUE),
    _drop("-c", "the object is compiled and linked in two steps"),
    _drop("-v", "verbosity"),
    _drop("-save-temps", "more outputs, the same object"),
    _drop("-MD", "dependency files: the adapter observes what is read"),
    _drop("-MP", "as -MD"),
    _drop("-MF", "as -MD", Form.VALUE),
    _drop("-MT", "as -MD", Form.VALUE),
    _refuse("-E", _OTHER_OUTPUT),
    _refuse("-S", _OTHER_OUTPUT),
    _refuse("-M", _OTHER_OUTPUT),
    _refuse("-shared", _TWO_STEPS),
    _refuse("-lib", _TWO_STEPS),
    _refuse("-dc", _TWO_STEPS),
    _refuse("--version", "it prints something and compiles nothing"),
    _refuse("--help", "it prints something and compiles nothing"),
)


def _architectures(pairs: Sequence[tuple[str, str]], _kind: str, _given: Container[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{name}={value}" for name, value in pairs))


BISHENG = Table(_ROWS, _architectures, shell=False)


def parse_bisheng(options: Sequence[str], *, arch: str, folder: str) -> Parsed:
    """Settle options for an architecture, with what is given by default where they do not say otherwise.

    Raises `ConfigError`.
    """
    given = {found[2] for word in options if (found := _NAMED.match(word))}
    defaults = [d for d in _DEFAULTS if (found := _NAMED.match(d)) and found[2] not in given]
    words = [f"--npu-arch={arch}", *defaults, *options]
    parsed = parse(BISHENG, words, kind=KIND, folder=folder, read_text=lambda path: Path(path).read_text("utf-8"))
    if len(parsed.architectures) > 1:
        raise ConfigError("compile for", arch, f"the options say {parsed.architectures[1]}", "name it once")
    return parsed


def for_compiler(arguments: Iterable[str]) -> list[str]:
    """Canonical arguments as bisheng takes them, without those for the linker."""
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == _LINKER:
            continue
        if equals and name in _ATTACHED:
            words.append(name + value)
        elif equals and name in _SEPARATE:
            words += (name, value)
        else:
            words.append(argument)
    return words


def for_linker(arguments: Iterable[str]) -> list[str]:
    """The words among canonical arguments that are for the linker."""
    return [argument[len(_LINKER) + 1 :] for argument in arguments if argument.startswith(f"{_LINKER}=")]
