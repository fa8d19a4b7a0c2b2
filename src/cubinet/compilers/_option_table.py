"""The table of a compiler's options: how each is spelled, what argument it takes, what it means to a build.

`_options` reads argument lists through such a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cubinet.errors import ConfigError

__all__ = ["Form", "Option", "Parsed", "Table", "Treatment", "Words"]

# `-DA="x"` is one word for sure; `"-I"/a`, `-DA="x" -I/a` must not pass for something else.
_QUOTED_WORDS = re.compile(r"\s|^(?!-[DU]).*[\"'\\]", re.DOTALL)


class Treatment(StrEnum):
    """What an option means to a build."""

    SEMANTIC = "semantic"
    """Changes what is compiled: kept and keyed."""
    OUTPUT = "output"
    """Names outputs or steers the run without changing the bytes: dropped."""
    INCLUDE = "include"
    SYSTEM = "system"
    PREINCLUDE = "preinclude"
    OPTIONS_FILE = "options-file"
    HOST_COMPILER = "host-compiler"
    ARCH = "arch"
    KIND = "kind"
    """Names an output kind: dropped if it is the one asked for, refused otherwise. See `Option.kind`."""
    STAGE = "stage"
    """Names a later stage: changes nothing beside the option of the kind asked for, refused without it."""
    BOUND = "bound"
    """Writes folders into the result: semantic, and the build is tied to its folder."""
    UNCACHEABLE = "uncacheable"
    """Reaches for something the key cannot account for: passed through, the result is not kept."""
    REFUSED = "refused"


class Form(StrEnum):
    """The argument an option takes."""

    FLAG = "flag"
    VALUE = "value"
    """One value; the last one counts."""
    NUMBER = "number"
    """One C integer; the last one counts."""
    EACH = "each"
    """One value, taken as it is; all of them count."""
    LIST = "list"
    """Values between commas; `"` protects a comma and stays, `\\` takes the next character as it is."""
    NAMES = "names"
    """Values between commas; `"` protects a comma and goes, `\\` is a plain character."""


@dataclass(frozen=True, slots=True)
class Words:
    """What to make of words that an option hands to another program.

    A word is refused, uncacheable, or tied to the folder if the pattern matches all of it. `refused` is
    searched in all words joined by blanks. A word outside `known`, if that is given, is uncacheable.
    """

    uncacheable: re.Pattern[str]
    bound: re.Pattern[str] | None = None
    refused: re.Pattern[str] | None = None
    known: re.Pattern[str] | None = None
    remedy: str = ""

    def judge(self, name: str, words: Sequence[str], bound: list[str], uncacheable: list[str]) -> None:
        """Add what these words do to a build. Raises `ConfigError` for a refused one."""
        if self.refused and (found := self.refused.search(" ".join(words))):
            raise ConfigError("use option", f"{name} {found[0].strip()}", "means another thing elsewhere", self.remedy)
        for word in words:
            if _QUOTED_WORDS.search(word):
                uncacheable.append(f"{name} {word}: quotes that Cubinet does not take apart")
            elif self.bound and self.bound.fullmatch(word):
                bound.append(f"{name}={word}")
            elif self.uncacheable.fullmatch(word):
                uncacheable.append(f"{name} {word}: names a file or folder that the key cannot see")
            elif self.known and not self.known.fullmatch(word):
                uncacheable.append(f"{name} {word}: unknown to Cubinet")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a table.

    Args:
        name: the long spelling, which is the canonical one.
        short: other spellings.
        form: the argument it takes.
        treatment: what it means to a build.
        why: one line; for a refused one it says what was found.
        group: options of a group keep their mutual order; by default each is its own group.
        attached: pattern of a value that may follow a two-letter spelling directly (`-O3`). Blanks in front of
            the value go.
        joined: whether the value must follow `=`. Then the spelling alone is not in the table.
        kind: the output kind it names, if that is not its own name (`Treatment.KIND`).
        means: the canonical argument that this is another word for.
        unordered: whether the values of a list are a set.
        refused: values that are refused though the option is not.
        remedy: what to do about a refusal.
        words: what to make of values that go to another program.
        since: the release it was first seen in, if not 13.0 or before; `hidden` if `--help` omits it.
    """

    name: str
    short: tuple[str, ...] = ()
    form: Form = Form.FLAG
    treatment: Treatment = Treatment.SEMANTIC
    why: str = ""
    group: str = ""
    attached: str = ""
    joined: bool = False
    kind: str = ""
    means: str = ""
    unordered: bool = False
    refused: tuple[str, ...] = ()
    remedy: str = ""
    words: Words | None = None
    since: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """An argument list in canonical form.

    Attributes:
        arguments: what changes the result, one value an argument, in an order that depends on nothing.
        architectures: canonical arguments that choose the architecture; apart, because the target is.
        includes: `(kind, path)`, kind `include` or `system`: all of the first, then all of the second, as
            the compiler searches them. Absolute, symlinks kept.
        preincludes: files included before the source, as spelled: the compiler searches for them.
        host_compiler: program or folder as given, resolved against the folder if it holds a slash.
        bound: arguments that tie the build to its folder. They are in `arguments`, too.
        passthrough: arguments of no known meaning, in order, to be put after all others.
        uncacheable: why the result must not be kept; empty if it may.
        dropped: arguments that were left out because they do not change the result.
        options_files: the files that arguments were read from.
    """

    arguments: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    includes: tuple[tuple[str, str], ...] = ()
    preincludes: tuple[str, ...] = ()
    host_compiler: str | None = None
    bound: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    uncacheable: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    options_files: tuple[str, ...] = ()


class Table:
    """All options of a compiler.

    Args:
        options: the rows. Two rows must not share a spelling.
        architectures: turns the `(name, value)` pairs of `Treatment.ARCH`, the output kind and the
            names of the flags and single values given into canonical arguments.
        split_file: splits the text of an options file into words.
        shell: whether the compiler hands its arguments to a shell, which may expand them.
    """

    __slots__ = ("architectures", "attached", "options", "shell", "spellings", "split_file")

    def __init__(
        self,
        options: Iterable[Option],
        architectures: Callable[[Sequence[tuple[str, str]], str, Container[object]], tuple[str, ...]],
        split_file: Callable[[str], list[str]] = str.split,
        *,
        shell: bool = True,
    ) -> None:
        self.options = tuple(options)
        self.architectures = architectures
        self.split_file = split_file
        self.shell = shell
        self.spellings: dict[str, Option] = {}
        for option in self.options:
            for spelling in (option.name, *option.short):
                if self.spellings.setdefault(spelling, option) is not option:
                    raise ConfigError("build option table", spelling, "two options have this spelling")
        self.attached = {
            spelling: (option, re.compile(option.attached, re.DOTALL))
            for spelling, option in self.spellings.items()
            if option.attached and len(spelling) == 2
        }

    def find(self, word: str) -> tuple[Option, str | None] | None:
        """The option a word spells and the value in the same word; `None` if it is not in the table."""
        option = self.spellings.get(word)
        if option is not None and not option.joined:
            return option, None
        name, equals, value = word.partition("=")
        if equals and (option := self.spellings.get(name)) is not None:
            return option, value
        pair = self.attached.get(word[:2])
        # The pattern guards against a newer compiler's `-tfoo` being read as `-t foo`.
        if pair is not None and pair[1].fullmatch(word, 2):
            return pair[0], word[2:].lstrip(" ")
        return None
