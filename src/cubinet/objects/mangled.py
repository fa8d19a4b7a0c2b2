"""A bounded demangler for the names of CUDA kernels (Itanium C++ ABI).

Why not the one in libstdc++: a name of 300 bytes can be made that demangles to terabytes, and a call
into C cannot be stopped. This one counts what it builds. It writes what `c++filt` of GCC 12 writes
(but not its comma for an empty pack among the parameters), or gives up: for expressions over template
parameters, vector types, special names (vtables, guards) and other things that kernel names do not
hold.
"""

from __future__ import annotations

import string
from typing import NamedTuple

from cubinet.objects.mangled_reader import QUALIFIER, Argument, GiveUpError, Type
from cubinet.objects.mangled_types import Types

__all__ = ["GiveUpError", "Parser"]

_OPERATOR = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "ng": "-", "ad": "&", "de": "*", "co": "~",
    "ps": "+", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=",
    "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<",
    "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->",
    "cl": "()", "ix": "[]",
}  # fmt: skip


class _Name(NamedTuple):
    """A name, with what the rest of its encoding depends on.

    `arguments` are those of the last component if that is a template; `returns` says whether the
    signature begins with a return type.
    """

    text: str
    arguments: tuple[Argument, ...] | None = None
    returns: bool = False
    qualifiers: str = ""


class Parser(Types):
    """Reads one symbol, once: `whole` or `name_alone`."""

    def whole(self) -> str:
        """Demangle the symbol with its parameters, all of it."""
        self.expect("_Z")
        text, _ = self.encoding(outermost=True)
        if self.at != len(self.text):
            raise GiveUpError
        return text

    def name_alone(self) -> str:
        """Demangle only the name: without return type and parameters, and whatever they are."""
        self.expect("_Z")
        return self._name().text

    def encoding(self, *, outermost: bool) -> tuple[str, str]:
        """Read a function or a variable: all of it, and the name alone.

        Within another name there is no return type.
        """
        name = self._name()
        if self.peek() in ("", "E", "."):
            return name.text, name.text
        outer, self.arguments = self.arguments, name.arguments
        result = self.type() if name.returns else None
        declared = self.spend(name.text + self.parameters() + name.qualifiers)
        self.arguments = outer
        if result is None or not outermost:
            return declared, name.text
        gap = "" if result.right else " "
        return self.spend(result.left + gap + declared + result.right), name.text

    def name_text(self) -> str:
        """Read a class name."""
        return self._name().text

    def _name(self) -> _Name:
        if self.peek() == "N":
            return self._nested()
        if self.peek() == "Z":
            return self._local()
        if self.peek() == "S" and self.peek(2) != "St":
            text, plain = self.substitution().left, True
        else:
            text = "std::" if self.take("St") else ""
            last, plain = self._component("")
            text += last
            if self.peek() == "I":
                self.see(Type(text))
        if self.peek() != "I":
            return _Name(text)
        written, arguments = self.template_arguments()
        return _Name(self.spend(text + written), arguments, plain)

    def _nested(self) -> _Name:
        self.expect("N")
        qualifiers = "".join(QUALIFIER[mark] for mark in reversed(self.run_of("rVK")))
        qualifiers += " &" if self.take("R") else " &&" if self.take("O") else ""
        text, last, plain, returns = "", "", True, False
        arguments: tuple[Argument, ...] | None = None
        while not self.take("E"):
            mark = self.peek()
            if mark == "S" and not text:
                text = self.substitution().left
                last = text.rpartition("::")[2]
                continue
            if mark == "I" and text:
                written, arguments = self.template_arguments()
                text, returns = self.spend(text + written), plain
            elif mark == "T" and not text:
                text = last = str(self.template_parameter())
            else:
                last, plain = self._component(last)
                text = self.spend(f"{text}::{last}" if text else last)
                arguments, returns = None, False
            if self.peek() != "E":
                self.see(Type(text))
        if not text:
            raise GiveUpError
        return _Name(text, arguments, returns, qualifiers)

    def _component(self, enclosing: str) -> tuple[str, bool]:
        """Read one part of a name: its text, and whether a template of it has a return type."""
        self.take("L")
        two = self.peek(2)
        plain = True
        if two[:1].isdigit():
            text = self.source_name()
        elif two in ("Ut", "Ul"):
            text = self._unnamed()
        elif two[:1] in ("C", "D") and two[1:].isdigit():
            self.at += 2
            text, plain = ("~" if two[0] == "D" else "") + enclosing.partition("<")[0].partition("[")[0], False
        elif two == "cv":
            self.at += 2
            text, plain = f"operator {self.type()}", False
        elif two in _OPERATOR:
            self.at += 2
            text = "operator" + _OPERATOR[two]
            if text.endswith("<") and self.peek() == "I":
                text += " "
        else:
            raise GiveUpError
        while self.take("B"):
            text += f"[abi:{self.source_name()}]"
        return text, plain

    def _unnamed(self) -> str:
        if self.take("Ut"):
            return f"{{unnamed type#{self._ordinal()}}}"
        self.expect("Ul")
        outer, self.in_lambda = self.in_lambda, True
        parameters = self.parameters()
        self.in_lambda = outer
        self.expect("E")
        return f"{{lambda{parameters}#{self._ordinal()}}}"

    def _ordinal(self) -> int:
        number = self.number()
        self.expect("_")
        return 1 if number is None else number + 2

    def _local(self) -> _Name:
        self.expect("Z")
        scope, _ = self.encoding(outermost=False)
        self.expect("E")
        if self.peek() == "d":
            raise GiveUpError
        inner = _Name("string literal") if self.take("s") else self._name()
        if self.take("__"):
            self.run_of(string.digits)
            self.expect("_")
        elif self.peek() == "_" and self.peek(2)[1:].isdigit():
            self.at += 2
        return inner._replace(text=self.spend(f"{scope}::{inner.text}"))
