"""Reads a compiler's argument list through a typed table and gives it back in one canonical form.

A table says of every option how it is spelled, what argument it takes and what it means to a build
(`Treatment`). `parse` turns any accepted spelling into the same `Parsed`, so that two requests that make
the compiler do the same thing are equal, and nothing that changes the bytes is lost. What the table does
not know is handed through and makes the build uncacheable: unknown is uncached, not guessed.

The engine knows no option by name. Splitting of lists follows nvcc and its tools, which share one
command-line reader; compilers without lists use `Form.EACH`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from cubinet.compilers._option_table import Form, Option, Parsed, Table, Treatment, Words
from cubinet.errors import ConfigError

__all__ = ["Form", "Option", "Parsed", "Table", "Treatment", "Words", "parse", "split_list", "split_names"]

# nvcc 13.0 opens 15 nested options files and refuses the 16th.
_FILE_DEPTH = 15
_NUMBER = re.compile(r"[+]?(0[xX][0-9a-fA-F]+|[0-9]+)")
# nvcc runs its tools through `sh -c` and quotes little: `$HOME` and `...` inside -D are expanded [run].
_SHELL_QUOTED = re.compile(r"[$`]")
_SHELL_WORD = re.compile(r"[$`;|&<>~*?#(){}\n]")


def split_list(text: str) -> list[str]:
    """Split a value as nvcc splits macros and options for other programs. Blanks around a value go."""
    if '"' not in text and "\\" not in text:
        return [item for item in (part.strip() for part in text.split(",")) if item]
    items, item, quoted, characters = [], "", False, iter(text)
    for c in characters:
        if c == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise ConfigError("use option value", repr(text), "it ends in a lone backslash")
            item += escaped
        elif c == "," and not quoted:
            items.append(item)
            item = ""
        else:
            quoted ^= c == '"'
            item += c
    if quoted:
        raise ConfigError("use option value", repr(text), "a quotation mark without its partner")
    return [item for item in (part.strip() for part in (*items, item)) if item]


def split_names(text: str) -> list[str]:
    """Split a value as nvcc splits paths, numbers and names. Blanks around a value go."""
    pieces = text.split('"')
    if len(pieces) % 2 == 0:
        raise ConfigError("use option value", repr(text), "a quotation mark without its partner")
    # A NUL cannot be part of an argument, so it can stand for the commas that separate.
    pieces[::2] = [piece.replace(",", "\0") for piece in pieces[::2]]
    return [item for item in (part.strip() for part in "".join(pieces).split("\0")) if item]


def _quote_list(item: str) -> str:
    return item.replace("\\", "\\\\").replace('"', '\\"').replace(",", "\\,")


def _quote_names(item: str) -> str:
    return f'"{item}"' if "," in item else item


def _same(item: str) -> str:
    return item


def _alone(text: str) -> list[str]:
    return [text]


_SPLIT: dict[Form, Callable[[str], list[str]]] = {Form.EACH: _alone, Form.LIST: split_list, Form.NAMES: split_names}
_QUOTE: dict[Form, Callable[[str], str]] = {Form.LIST: _quote_list, Form.NAMES: _quote_names}


def _number(option: Option, text: str) -> str:
    found = _NUMBER.fullmatch(text.strip())
    try:
        digits = found[1] if found else ""
        return str(int(digits, 8 if len(digits) > 1 and digits.isdigit() and digits[0] == "0" else 0))
    except ValueError:
        raise ConfigError("use option", f"{option.name}={text}", "expected a number") from None


def _values(option: Option, text: str | None) -> list[str]:
    if text is None:
        return []
    values = [_number(option, text)] if option.form is Form.NUMBER else _SPLIT.get(option.form, _alone)(text)
    for value in values:
        if value in option.refused:
            raise ConfigError("use option", f"{option.name}={value}", option.why, option.remedy)
    return values


def _spell(option: Option, value: str) -> str:
    return f"{option.name}={_QUOTE.get(option.form, _same)(value)}"


def _absolute(folder: str, path: str) -> str:
    """Make a path absolute. `..` stays: what it means depends on symlinks."""
    whole = path if path.startswith("/") else f"{folder}/{path}"
    return "/" + "/".join([part for part in whole.split("/") if part not in ("", ".")])


class _Reading:
    """One run of `parse`: what has been read so far."""

    __slots__ = (
        "architectures", "dropped", "files", "folder", "host", "includes", "kept", "kind", "kind_named", "last_macro",
        "order", "passthrough", "preincludes", "read_text", "stages", "table", "uncacheable", "worded",
    )  # fmt: skip

    def __init__(self, table: Table, kind: str, folder: str, read_text: Callable[[str], str]) -> None:
        self.table, self.kind, self.folder, self.read_text = table, kind, folder, read_text
        self.last_macro = ""
        # Key: what a later argument replaces. Value: (group, option name, argument).
        self.kept: dict[object, tuple[str, str, str]] = {}
        self.order = count()
        self.architectures: list[tuple[str, str]] = []
        self.includes: list[tuple[str, str]] = []
        self.worded: dict[str, list[str]] = {}
        self.dropped: list[str] = []
        self.files: list[str] = []
        self.passthrough: list[str] = []
        self.preincludes: list[str] = []
        self.stages: list[str] = []
        self.uncacheable: list[str] = []
        self.host: str | None = None
        self.kind_named = False

    def read(self, argv: Sequence[str], depth: int) -> None:
        words = iter(argv)
        after_unknown = False
        for word in words:
            found = self.table.find(word)
            if found is None:
                if word[:1] == "-" and word not in ("-", "--"):
                    self.uncacheable.append(f"{word}: unknown option")
                    after_unknown = True
                elif not after_unknown:
                    raise ConfigError(
                        "use option", repr(word), "an input file among the options", "the source is given apart"
                    )
                self.passthrough.append(word)
                continue
            after_unknown = False
            self.take(*found, words, depth)

    def take(self, option: Option, value: str | None, words: Iterator[str], depth: int) -> None:
        if option.form is Form.FLAG:
            if value is not None:
                raise ConfigError("use option", f"{option.name}={value}", "it takes no argument")
        elif value is None and (value := next(words, None)) is None:
            raise ConfigError("use option", option.name, "its argument is missing")
        if option.means:
            option, value = self.table.find(option.means) or (option, None)
        values = _values(option, value)
        if option.treatment in (Treatment.SEMANTIC, Treatment.BOUND):
            self.keep(option, values)
        elif option.treatment is Treatment.OPTIONS_FILE:
            for item in values:
                self.read_file(_absolute(self.folder, item), depth + 1)
        else:
            self.place(option, values)

    def read_file(self, path: str, depth: int) -> None:
        if depth > _FILE_DEPTH:
            raise ConfigError("read options file", path, f"more than {_FILE_DEPTH} files read each other")
        try:
            text = self.read_text(path)
        except (OSError, UnicodeError) as exc:
            raise ConfigError("read options file", path, getattr(exc, "strerror", None) or str(exc)) from exc
        self.files.append(path)
        self.read(self.table.split_file(text), depth)

    def keep(self, option: Option, values: list[str]) -> None:
        name, group, kept = option.name, option.group or option.name, self.kept
        if option.form not in _SPLIT:
            kept.pop(name, None)  # the last one counts, and so does its place
            kept[name] = (group, name, _spell(option, values[0]) if values else name)
        else:
            if option.words is not None:
                values = list(_plain_words(values)) if option.form is Form.LIST else values
                self.worded.setdefault(name, []).extend(values)
            for item in values:
                argument = _spell(option, item)
                if option.unordered:
                    kept[argument] = (argument, name, argument)
                elif group != "macros" or self.last_macro != argument:  # said again at once, it says nothing new
                    kept[next(self.order)] = (group, name, argument)
                    self.last_macro = argument if group == "macros" else self.last_macro
        risky = _SHELL_QUOTED if option.words is None and option.form is Form.LIST else _SHELL_WORD
        for item in values if self.table.shell else ():
            if risky.search(item):
                self.uncacheable.append(f"{name}={item}: the shell that the compiler starts may expand it")

    def place(self, option: Option, values: list[str]) -> None:
        name, treatment = option.name, option.treatment
        spelled = [_spell(option, item) for item in values] or [name]
        match treatment:
            case Treatment.REFUSED:
                raise ConfigError("use option", name, option.why, option.remedy)
            case Treatment.OUTPUT:
                self.dropped += spelled
            case Treatment.INCLUDE | Treatment.SYSTEM:
                self.includes += [(treatment.value, _absolute(self.folder, item)) for item in values]
            case Treatment.ARCH:
                self.architectures += [(name, item) for item in values]
            case Treatment.PREINCLUDE:
                self.preincludes += values
            case Treatment.HOST_COMPILER:
                self.host = _absolute(self.folder, values[0]) if "/" in values[0] else values[0] or None
            case Treatment.KIND if (option.kind or name.removeprefix("--")) != self.kind:
                raise ConfigError(
                    "use option", name, f"it asks for another output than {self.kind}", "ask for that kind instead"
                )
            case Treatment.KIND | Treatment.STAGE:
                self.kind_named |= treatment is Treatment.KIND
                self.stages += [] if treatment is Treatment.KIND else [name]
                self.dropped.append(name)
            case _:
                self.passthrough += spelled
                self.uncacheable.append(f"{name}: {option.why}")

    def result(self) -> Parsed:
        if self.stages and not self.kind_named:
            raise ConfigError(
                "use option", self.stages[0], f"it asks for another output than {self.kind}", "leave it out"
            )
        bound = [
            argument
            for _, name, argument in self.kept.values()
            if self.table.spellings[name].treatment is Treatment.BOUND
        ]
        for name, words in self.worded.items():
            rules = self.table.spellings[name].words
            if rules is not None:
                rules.judge(name, words, bound, self.uncacheable)
        self.includes.sort(key=_first)
        return Parsed(
            arguments=tuple([argument for _, _, argument in sorted(self.kept.values(), key=_first)]),
            architectures=self.table.architectures(self.architectures, self.kind, self.kept),
            includes=tuple(self.includes),
            preincludes=tuple(self.preincludes),
            host_compiler=self.host,
            bound=tuple(sorted(bound)),
            passthrough=tuple(self.passthrough),
            uncacheable=tuple(self.uncacheable),
            dropped=tuple(self.dropped),
            options_files=tuple(self.files),
        )


def _plain_words(values: Iterable[str]) -> Iterator[str]:
    """Part values at blanks as the shell will, unless quotes make that hard to tell."""
    for value in values:
        if any(c in value for c in "\"'\\"):
            yield value
        else:
            yield from value.split()


def _first(entry: tuple[str, ...]) -> str:
    return entry[0]


def parse(table: Table, argv: Sequence[str], *, kind: str, folder: str, read_text: Callable[[str], str]) -> Parsed:
    """Read an argument list without the source.

    Args:
        table: the options of the compiler.
        argv: the arguments.
        kind: the output kind that will be asked for (`cubin`, `ptx`, `fatbin`).
        folder: absolute folder that relative paths are meant against.
        read_text: reads an options file by absolute path.

    Raises:
        ConfigError: for an option that cannot be meant, or that means something else elsewhere.
    """
    reading = _Reading(table, kind, folder, read_text)
    reading.read(argv, 0)
    return reading.result()
