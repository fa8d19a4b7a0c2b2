"""One spelling for the many ways to write the name of a C++ function or template instance."""

from __future__ import annotations

import re

__all__ = ["canonical"]

_PIECE = re.compile(
    r"""\s+ | :: | '(?:\\.|[^'\\])' | [A-Za-z_$][\w$]* | 0[xX][\da-fA-F']+[uUlLzZ]* | \d[\d']*[uUlLzZ]* | .""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NUMBER = re.compile(r"(0[xX][\da-fA-F']*[\da-fA-F]|\d[\d']*)[uUlLzZ]*", re.ASCII)
_GROUP = re.compile(r"\((.+)\)", re.DOTALL)
_DECIMAL = re.compile(r"-?\d+", re.ASCII)
_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|\{anonymous\}|<unnamed>)\s*::\s*")
_OPEN = {"<": ">", "(": ")", "[": "]"}
_CLOSE = {">": "<", ")": "(", "]": "["}
_DROPPED = frozenset({"typename", "struct", "class", "enum", "union"})
_QUALIFIERS = frozenset({"const", "volatile"})
_BUILTIN = frozenset({"unsigned", "signed", "short", "long", "int", "char"})
_INTEGER = frozenset(
    {"bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long"}
    | {"unsigned long", "long long", "unsigned long long"}
)
_ALIASES = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
    "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
    "size_t": "unsigned long", "ptrdiff_t": "long", "intptr_t": "long", "uintptr_t": "unsigned long",
    "half": "__half", "half2": "__half2", "nv_bfloat16": "__nv_bfloat16", "nv_bfloat162": "__nv_bfloat162",
}  # fmt: skip
"""As the 64-bit Linux headers and CUDA's define them."""
_SCOPES = ("std::", "cuda::std::")

DEEPEST = 200
"""Brackets in brackets; text with more comes back as it is."""


def canonical(text: str) -> str:
    """Give the one spelling that all ways to write a name share.

    A function's return type `void` is left out. Text with brackets that do not match, or too
    many in each other, comes back without its blanks.
    """
    text = _ANONYMOUS.sub("", text).strip().removeprefix("&").strip().removeprefix("void ")
    groups: list[list[list[str]]] = [[[]]]  # open brackets: their arguments: their pieces
    expected: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.isspace():
            continue
        if piece in _OPEN:
            if len(expected) == DEEPEST:
                break
            expected.append(_OPEN[piece])
            groups.append([[]])
        elif piece in _CLOSE:
            if not expected or expected.pop() != piece:
                return "".join(text.split())
            inside = ",".join(_argument(argument) for argument in groups.pop() if argument)
            opening = _CLOSE[piece]
            groups[-1][-1].append("()" if opening + inside == "(void" else opening + inside + piece)
        elif piece == "," and expected:
            groups[-1].append([])
        else:
            groups[-1][-1].append(piece)
    if expected:
        return "".join(text.split())
    return _argument(groups[0][0])


def _argument(pieces: list[str]) -> str:
    """Spell one template argument, type or name; brackets in it are single pieces, spelled already."""
    if pieces[:1] == ["::"]:
        pieces = pieces[1:]
    pieces = [piece for piece in pieces if piece not in _DROPPED]
    return _value(pieces) or _type(pieces)


def _value(pieces: list[str]) -> str:
    """Spell a literal; empty if this is none. The type of a number does not matter, an enum's does."""
    last = _literal(pieces[-1]) if 0 < len(pieces) <= 5 else ""
    head = pieces[:-1]
    if last and head and head[-1] in ("-", "+"):
        last = last if head.pop() == "+" or last == "0" else f"-{last}"
    if not last or not head:
        return last
    cast = _GROUP.fullmatch(head[0])
    if cast is None or len(head) > 1:  # int(4)
        return last if pieces[-1].startswith("(") and _type(head) in _INTEGER else ""
    if cast[1] == "bool":
        last = "0" if last == "0" else "1"
    return last if cast[1] in _INTEGER else f"({cast[1]}){last}"


def _literal(piece: str) -> str:
    """Spell one number, character or truth value as a decimal number; empty if it is none."""
    number, group = _NUMBER.fullmatch(piece), _GROUP.fullmatch(piece)
    if piece in ("true", "false"):
        spelled = "1" if piece == "true" else "0"
    elif piece.startswith("'") and len(piece) == 3:
        spelled = str(ord(piece[1]))
    elif group is not None:
        spelled = group[1] if _DECIMAL.fullmatch(group[1]) else ""
    else:
        spelled = _decimal(number[1].replace("'", "").lower()) if number is not None else ""
    return spelled


def _decimal(digits: str) -> str:
    if len(digits) > 40:  # no integer type is that long
        return digits
    if digits.startswith("0x"):
        return str(int(digits, 16))
    return str(int(digits, 8) if digits.startswith("0") and not set(digits) & set("89") else int(digits))


def _type(pieces: list[str]) -> str:
    """Spell a type or name: qualifiers behind what they qualify, one spelling for each built-in."""
    head = 0
    while head < len(pieces) and (
        pieces[head] == "::" or pieces[head].startswith("<") or _WORD.fullmatch(pieces[head])
    ):
        head += 1
    base = [piece for piece in pieces[:head] if piece not in _QUALIFIERS]
    if base[:1] == ["::"]:
        base = base[1:]
    qualifiers = sorted({piece for piece in pieces[:head] if piece in _QUALIFIERS})
    if base and set(base) <= _BUILTIN:
        spelled = _builtin(base)
    else:
        spelled = _joined(base)
        scope = next((scope for scope in reversed(_SCOPES) if spelled.startswith(scope)), "")
        spelled = _ALIASES.get(spelled.removeprefix(scope), spelled)
    return _joined([spelled, *qualifiers, *pieces[head:]])


def _builtin(words: list[str]) -> str:
    unsigned = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return ("signed " if "signed" in words else unsigned) + "char"
    if "short" in words:
        return unsigned + "short"
    longs = words.count("long")
    return unsigned + (" ".join(["long"] * min(longs, 2)) or "int")


def _joined(pieces: list[str]) -> str:
    """Write pieces one after the other, with a blank only between two words."""
    text = ""
    for piece in pieces:
        word = piece[:1].isalnum() or piece[:1] in ("_", "$")
        text += f" {piece}" if word and (text[-1:].isalnum() or text[-1:] in ("_", "$", "*", ">")) else piece
    return text
