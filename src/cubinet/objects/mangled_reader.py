"""Reading one mangled name character by character, with an account of what is built from it.

The base of `mangled_types.Types` and `mangled.Parser`: one recursive parser in three files.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = [
    "BUILTIN",
    "BUILTIN_D",
    "LITERAL_DIGITS",
    "LITERAL_SUFFIX",
    "POINTER",
    "QUALIFIER",
    "Argument",
    "GiveUpError",
    "Reader",
    "Type",
]

WORK_PER_BYTE = 512
"""Characters built per byte of a symbol before the parser gives up. The most that 58,000 names of
LLVM, Clang and libstdc++ and of Thrust's kernels took was 153, steps included."""

WORK_PER_STEP = 64
"""What building a piece of text costs beyond its characters, in characters."""

MOST_WORK = 1 << 22
"""Characters built for one symbol, however long it is."""

DEPTH = 60
"""Types within types before the parser gives up; each costs up to five Python frames. The deepest of
the same names has 18."""

BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
BUILTIN_D = {
    "n": "decltype(nullptr)", "i": "char32_t", "s": "char16_t", "u": "char8_t", "a": "auto", "c": "decltype(auto)",
}  # fmt: skip
_STANDARD = {
    "t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream",
    "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
LITERAL_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}
LITERAL_DIGITS = string.hexdigits + "._"
POINTER = {"P": "*", "R": "&", "O": "&&"}
_BASE36 = string.digits + string.ascii_uppercase

QUALIFIER = {"r": " restrict", "V": " volatile", "K": " const"}


class GiveUpError(Exception):
    """This is no mangled name, or one that the parser has no words for."""


class Type(NamedTuple):
    """A type in the two halves that a declarator stands between: `int (*` and `)(float)`.

    `shape` is `f` for a function and `a` for an array, which need brackets round a `*`.
    """

    left: str
    right: str = ""
    shape: str = ""

    def __str__(self) -> str:
        return self.left + self.right


Argument = Type | tuple[Type, ...]
"""A template argument; a tuple for a pack."""


class _Candidate(NamedTuple):
    """Something that `S_` can stand for.

    The ABI counts it as it is spelled, `T_` included, so its text holds only where `T_` stands for
    the same: in the template whose arguments are `context`.
    """

    value: Type
    context: object
    parameter: int | None


_INDEPENDENT = object()
_LAMBDA = object()


class Reader:
    """A position in one symbol."""

    def __init__(self, symbol: str) -> None:
        self.text, self.at = symbol, 0
        self._left = min(WORK_PER_BYTE * len(symbol), MOST_WORK)
        self._depth = 0
        self.arguments: tuple[Argument, ...] | None = None
        """What `T_` stands for at this point."""
        self.in_lambda = False
        self.seen: list[_Candidate | None] = []
        self.parameters_used = 0
        self.used_before = [0]
        self.pack_at: int | None = None
        self.pack_size: int | None = None

    def peek(self, count: int = 1) -> str:
        """Look at the next characters."""
        return self.text[self.at : self.at + count]

    def take(self, expected: str) -> bool:
        """Step over `expected` if it comes next."""
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def expect(self, expected: str) -> None:
        """Step over `expected`, which must come next."""
        if not self.take(expected):
            raise GiveUpError

    def run_of(self, characters: str) -> str:
        """Step over as many of these characters as come next."""
        start = self.at
        while (mark := self.peek()) and mark in characters:
            self.at += 1
        return self.text[start : self.at]

    def number(self) -> int | None:
        """Step over digits; `None` if there are none."""
        digits = self.run_of(string.digits)
        if len(digits) > 9:
            raise GiveUpError
        return int(digits) if digits else None

    def spend(self, text: str) -> str:
        """Account for text that was built."""
        self._left -= len(text) + WORK_PER_STEP
        if self._left < 0:
            raise GiveUpError
        return text

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Account for one level of recursion."""
        self._depth += 1
        if self._depth > DEPTH:
            raise GiveUpError
        yield
        self._depth -= 1

    def source_name(self) -> str:
        """Read a length and as many characters."""
        size = self.number()
        text = self.peek(size or 0)
        if not size or len(text) < size:
            raise GiveUpError
        self.at += size
        if text.startswith("_GLOBAL_") and text[8:10] in ("_N", ".N", "$N"):
            return "(anonymous namespace)"
        return text

    @property
    def _context(self) -> object:
        return _LAMBDA if self.in_lambda else self.arguments

    def see(self, value: Type, parameter: int | None = None) -> Type:
        """Remember a candidate for substitution."""
        self.spend(value.left)
        dependent = self.parameters_used > self.used_before[-1]
        # In an expanded pack the ABI counts a candidate once and we come by once per element, each
        # time with another text: such a candidate is counted and cannot be referred to.
        if self.pack_at is None:
            self.seen.append(_Candidate(value, self._context if dependent else _INDEPENDENT, parameter))
        elif self.pack_at == 0:
            self.seen.append(None)
        return value

    def parameter_index(self) -> int:
        """Read `T_` or `T<n>_`: which parameter it is."""
        self.expect("T")
        number = self.number()
        self.expect("_")
        return 0 if number is None else number + 1

    def resolve(self, index: int) -> Type:
        """Find what a template parameter stands for at this point."""
        self.parameters_used += 1
        if self.in_lambda:
            return Type(f"auto:{index + 1}")
        if self.arguments is None or index >= len(self.arguments):
            raise GiveUpError
        value = self.arguments[index]
        if isinstance(value, Type):
            return value
        if self.pack_at is None:
            raise GiveUpError
        self.pack_size = len(value)
        return value[self.pack_at] if value else Type("")

    def template_parameter(self) -> Type:
        """Read `T_` or `T<n>_`: what it stands for."""
        return self.resolve(self.parameter_index())

    def substitution(self) -> Type:
        """Read `S_`, `S<n>_` or one of the short names of the standard library."""
        self.expect("S")
        mark = self.peek()
        if mark and mark in _STANDARD:
            self.at += 1
            if mark != "t" and self.peek() in ("C", "D"):  # the constructor's name is that of a longer type
                raise GiveUpError
            return Type(_STANDARD[mark])
        digits = self.run_of(_BASE36)
        self.expect("_")
        index = int(digits[:6], 36) + 1 if digits else 0
        found = self.seen[index] if index < len(self.seen) else None
        if found is None:
            raise GiveUpError
        self.spend(found.value.left)
        if found.context is _INDEPENDENT:
            return found.value
        if found.parameter is not None:
            return self.resolve(found.parameter)
        if found.context is not self._context:
            raise GiveUpError
        self.parameters_used += 1
        return found.value
