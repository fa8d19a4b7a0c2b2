"""The types and template arguments of mangled names.

`Types` knows everything but names; `mangled.Parser` completes it.
"""

from __future__ import annotations

from collections.abc import Callable

from cubinet.objects.mangled_reader import (
    BUILTIN,
    BUILTIN_D,
    LITERAL_DIGITS,
    LITERAL_SUFFIX,
    POINTER,
    QUALIFIER,
    Argument,
    GiveUpError,
    Reader,
    Type,
)

__all__ = ["Types"]


class Types(Reader):
    """Reads types at a position of one symbol. Raises `GiveUpError` for what it does not know."""

    def __init__(self, symbol: str) -> None:
        super().__init__(symbol)
        self._readers: dict[str, Callable[[], Type]] = {
            "A": self._array, "D": self._d_type, "F": self._function, "M": self._member, "S": self._substituted,
            "T": self._parameter, "K": self._qualified, "V": self._qualified, "r": self._qualified,
            "P": self._pointer, "R": self._pointer, "O": self._pointer, "u": self._vendor,
        }  # fmt: skip

    def name_text(self) -> str:
        """Read a class or function name."""
        raise NotImplementedError

    def encoding(self, *, outermost: bool) -> tuple[str, str]:
        """Read a function or a variable: all of it, and the name alone."""
        raise NotImplementedError

    def type(self) -> Type:
        """Read one type."""
        mark = self.peek()
        if mark in BUILTIN:
            self.at += 1
            return Type(BUILTIN[mark])
        self.used_before.append(self.parameters_used)
        with self.deeper():
            reader = self._readers.get(mark)
            value = reader() if reader else self.see(Type(self.name_text()))
        self.used_before.pop()
        return value

    def types(self) -> list[Type]:
        """Read one type, or as many as a pack expands to."""
        return self._pack() if self.peek(2) == "Dp" else [self.type()]

    def parameters(self) -> str:
        """Read the types of a parameter list, up to the end of the encoding that it belongs to."""
        if self.peek() == "v" and self.peek(2)[1:] in ("", "E", "."):
            self.at += 1
            return "()"
        found: list[Type] = []
        while self.peek() not in ("", "E", "."):
            found += self.types()
        return self.spend("(" + ", ".join(map(str, found)) + ")")

    def _qualified(self) -> Type:
        marks = self.run_of("rVK")
        if self.peek() == "F":  # a member function's own qualifiers: one candidate with them, none without
            bare = self._bare_function()
            return self.see(Type(bare.left, bare.right + "".join(QUALIFIER[mark] for mark in reversed(marks)), "f"))
        inner = self.type()
        # A const T where T stands for a const type is const once.
        words = "".join(QUALIFIER[mark] for mark in reversed(marks) if not inner.left.endswith(QUALIFIER[mark]))
        return self.see(Type(inner.left + words, inner.right, inner.shape))

    def _pointer(self) -> Type:
        sign = POINTER[self.peek()]
        self.at += 1
        inner = self.type()
        if inner.shape:
            gap = " " if inner.shape == "a" else ""
            return self.see(Type(f"{inner.left}{gap}({sign}", ")" + inner.right))
        left = inner.left
        if sign != "*" and left.endswith("&"):  # T& && is T&
            sign = "&" if sign == "&" or not left.endswith("&&") else "&&"
            left = left.rstrip("&")
        return self.see(Type(left + sign, inner.right))

    def _array(self) -> Type:
        self.expect("A")
        size = self.number()
        self.expect("_")
        inner = self.type()
        return self.see(Type(inner.left, f" [{'' if size is None else size}]{inner.right.removeprefix(' ')}", "a"))

    def _function(self) -> Type:
        return self.see(self._bare_function())

    def _bare_function(self) -> Type:
        self.expect("F")
        self.take("Y")
        result = self.type()
        parameters = self.parameters()
        self.expect("E")
        return Type(result.left + ("" if result.right else " "), parameters + result.right, "f")

    def _member(self) -> Type:
        self.expect("M")
        owner, inner = self.type(), self.type()
        if inner.shape:
            gap = " " if inner.shape == "a" else ""
            return self.see(Type(f"{inner.left}{gap}({owner}::*", ")" + inner.right))
        return self.see(Type(f"{inner.left} {owner}::*", inner.right))

    def _vendor(self) -> Type:
        self.expect("u")
        return self.see(Type(self.source_name()))

    def _d_type(self) -> Type:
        self.expect("D")
        mark = self.peek()
        if not mark or mark not in BUILTIN_D:
            raise GiveUpError
        self.at += 1
        return Type(BUILTIN_D[mark])

    def _substituted(self) -> Type:
        if self.peek(2) == "St":
            return self.see(Type(self.name_text()))
        value = self.substitution()
        return self._instance(value) if self.peek() == "I" else value

    def _instance(self, template: Type) -> Type:
        return self.see(Type(template.left + self.template_arguments()[0], template.right))

    def _parameter(self) -> Type:
        if self.peek(2) in ("Ts", "Tu", "Te"):
            self.at += 2
            return self.see(Type(self.name_text()))
        index = self.parameter_index()
        value = self.see(self.resolve(index), index)
        return self._instance(value) if self.peek() == "I" else value

    def _pack(self) -> list[Type]:
        self.expect("Dp")
        if self.pack_at is not None:
            raise GiveUpError
        start, self.pack_at, self.pack_size = self.at, 0, None
        parts = [self.type()]
        if self.pack_size is None:
            raise GiveUpError
        size: int = self.pack_size
        for index in range(1, size):
            self.at, self.pack_at = start, index
            parts.append(self.type())
            self.spend(str(parts[-1]))
        self.pack_at = None
        self.seen.append(None)
        return parts[:size]

    def template_arguments(self) -> tuple[str, tuple[Argument, ...]]:
        """Read `I … E`: how it is written, and the arguments."""
        self.expect("I")
        with self.deeper():
            arguments: list[Argument] = []
            while not self.take("E"):
                if self.take("J"):
                    pack: list[Type] = []
                    while not self.take("E"):
                        pack += self._argument()
                    arguments.append(tuple(pack))
                else:
                    arguments += self._argument()
        flat: list[str] = []
        for argument in arguments:
            flat += [str(argument)] if isinstance(argument, Type) else map(str, argument)
        inside = ", ".join(flat)
        # c++filt leaves this blank out after an empty pack.
        gap = " " if inside.endswith(">") and arguments[-1] != () else ""
        return self.spend(f"<{inside}{gap}>"), tuple(arguments)

    def _argument(self) -> list[Type]:
        if self.peek() == "L":
            return [Type(self._literal())]
        if self.take("X"):
            value = self._expression()
            self.expect("E")
            return [Type(value)]
        return self.types()

    def _expression(self) -> str:
        if self.peek() == "L":
            return self._literal()
        if self.peek() == "T":
            return str(self.template_parameter())
        self.expect("adL_Z")  # the address of a function is the one expression that argument lists need
        whole, name = self.encoding(outermost=True)
        self.expect("E")
        return self.spend(f"&{name}" if whole.startswith(name) and "::" in name else f"&({whole})")

    def _literal(self) -> str:
        self.expect("L")
        if self.take("_Z"):
            whole, _ = self.encoding(outermost=True)
            self.expect("E")
            return whole
        mark, start = self.peek(), self.at
        kind = self.type()
        sign = "-" if self.take("n") else ""
        value = self.run_of(LITERAL_DIGITS.replace("E", ""))
        self.expect("E")
        if not value:
            raise GiveUpError
        if self.at - start > 1 and mark in LITERAL_SUFFIX:
            return self.spend(sign + value + LITERAL_SUFFIX[mark])
        if mark == "b" and value in ("0", "1"):
            return "true" if value == "1" else "false"
        if mark in ("f", "d", "e", "g"):
            value = f"[{value}]"
        return self.spend(f"({kind}){sign}{value}")
