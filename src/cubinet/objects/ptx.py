"""What PTX text tells: version, target, entries and the bytes of their parameters.

No registers and no memory: those are decided when ptxas or the driver compiles it.
"""

from __future__ import annotations

import re

from cubinet.model import Kernel
from cubinet.objects.info import ObjectInfo, damaged
from cubinet.objects.names import demangle

__all__ = ["describe"]

HEAD = 4096
"""Where the comment with the compiler's banner is looked for."""

# Each alternative that can lack its end takes the rest of the text then, so that text full of
# beginnings is read once and not once per beginning.
_COMMENT_OR_STRING = re.compile(r'"[^"\n]*"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)(?:\)|\Z))?", re.ASCII)
_VERSION = re.compile(r"\.version\s+(\d{1,4}\.\d{1,4})\b", re.ASCII)
_TARGET = re.compile(r"\.target\s+(\w{1,64})\b", re.ASCII)
_ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d{1,3})\b", re.ASCII)
_PRODUCER = re.compile(r"//\s*(Cuda compilation tools, [^\n]*\S)")
_PARAMETER = re.compile(
    r"\.param (?:\.align (\d{1,9}) )?\.(?:v([248]) \.)?(\w+) "
    r"(?:\.ptr\b(?: \.(?!align)\w+)?(?: \.align \d+)? )?[\w$%]+ ?(?:\[ ?(\d{1,9}) ?\])?",
    re.ASCII,
)
_SIZES = {"8": 1, "16": 2, "16x2": 4, "32": 4, "64": 8, "128": 16, "texref": 8, "samplerref": 8, "surfref": 8}
_TYPE = re.compile(r"(?:[busf]|bf)(8|16|16x2|32|64|128)|(texref|samplerref|surfref)")


def describe(data: bytes, subject: str = "PTX") -> ObjectInfo:
    """Read PTX. Raises `ObjectError` if it has no version or target, or stops within a block.

    PTX cut off between two functions still reads: nothing in it tells how much there should be.
    """
    text = data.rstrip(b"\0").decode("latin-1")  # every byte is a character, so nothing can fail
    if "\0" in text:
        raise damaged(subject, "it holds NUL bytes")
    code = _COMMENT_OR_STRING.sub(lambda match: '""' if match[0][0] == '"' else " ", text)
    version, target, address_size = _VERSION.search(code), _TARGET.search(code), _ADDRESS_SIZE.search(code)
    if version is None or target is None:
        raise damaged(subject, f"it has no .{'version' if version is None else 'target'}")
    for opening, closing in ("{}", "()"):
        if code.count(opening) != code.count(closing):
            raise damaged(
                subject,
                f"cut short or mixed up: {code.count(opening)} {opening!r} and {code.count(closing)} {closing!r}",
                "look for a full disk and compile it again",
            )
    if code.rstrip()[-1:] not in ("}", ";", '"') and _ENTRY.search(code):
        raise damaged(subject, "cut short: it stops within a statement", "look for a full disk and compile it again")
    producer = _PRODUCER.search(text, 0, HEAD)
    arch = target[1]
    return ObjectInfo(
        kind="ptx",
        arch=arch,
        archs=(arch,),
        kernels=_kernels(code),
        producer=producer[1] if producer else "",
        version=version[1],
        address_size=int(address_size[1]) if address_size else None,
    )


def _kernels(code: str) -> tuple[Kernel, ...]:
    found: dict[str, Kernel] = {}
    for match in _ENTRY.finditer(code):
        symbol = match[1]
        if symbol not in found:
            found[symbol] = Kernel(name=demangle(symbol), symbol=symbol, params=_parameter_bytes(match[2] or ""))
    return tuple(found.values())


def _parameter_bytes(text: str) -> int | None:
    """Lay the parameters out as ptxas does; `None` if one is of a type this release does not know."""
    end = 0
    for part in text.split(",") if text.strip() else ():
        match = _PARAMETER.fullmatch(" ".join(part.split()))
        kind = _TYPE.fullmatch(match[3]) if match else None
        if match is None or kind is None:
            return None
        size = _SIZES[kind[1] or kind[2]] * int(match[2] or 1)
        align = int(match[1] or size) or 1
        end = -(-end // align) * align + size * int(match[4] or 1)
    return end
