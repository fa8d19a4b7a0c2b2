"""The private folder of one compile: where source and roots are in it, and what names in it mean outside.

```
src/              the source's own folder (a link), or a folder with the source alone
include/<label>   a link to each root
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cubinet.errors import ConfigError
from cubinet.fingerprint import digest_of
from cubinet.model import Root, Seen, Variant
from cubinet.protocols import Request
from cubinet.registry import Workshop

if TYPE_CHECKING:
    from cubinet.compilers._observe import Observed

__all__ = ["SCRATCH", "Layout", "all_roots", "hook_environment", "kept_as_file", "same_folders", "with_seed"]

SCRATCH = re.compile(rb"tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")
"""nvcc's names for its own temporary files, with its process id in them."""


def with_seed(options: Sequence[str]) -> tuple[str, ...]:
    """Options with a constant seed, unless they have one.

    Without it the process id of nvcc's front end, or a counter of NVRTC's, reaches symbol names.
    """
    given = any(option.lstrip("-").startswith("frandom-seed") for option in options)
    return (*options, *(() if given else ("--frandom-seed=1",)))


def all_roots(
    variant: Variant, includes: Sequence[tuple[str, str]], environ: Mapping[str, str], variables: Mapping[str, str]
) -> tuple[Root, ...]:
    """The source's own folder, then declared roots, then those from options and from variables.

    Args:
        variant: for its folder and declared roots.
        includes: (kind, path) from options; they are labelled by position, `i0`, `i1`, …
        environ: where to look for `variables`.
        variables: name → kind, as `CPATH` → `include`, in the order they are searched.
    """
    roots = []
    if variant.source_folder:
        roots.append(Root("src", variant.source_folder, "beside" if _is_file(variant) else "quote"))
    roots += variant.roots
    taken = {root.label for root in roots}
    found = list(includes)
    for name, kind in variables.items():
        value = environ.get(name, "")
        found += ((kind, entry or ".") for entry in value.split(os.pathsep) if value)
    number = 0
    for kind, path in found:
        while f"i{number}" in taken:
            number += 1
        roots.append(Root(f"i{number}", path, kind))
        taken.add(f"i{number}")
    return tuple(roots)


def _is_file(variant: Variant) -> bool:
    """Whether the source is in its folder, as that file."""
    try:
        return Path(f"{variant.source_folder}/{variant.source_name}").read_bytes() == variant.source_bytes()
    except OSError:
        return False


def same_folders(roots: Sequence[Root], own: Mapping[str, str]) -> tuple[str, ...]:
    """Labels of roots that are one folder here, or one that the compiler searches anyway, as `a=b`.

    gcc drops a search folder that it has already, or that is one of its own, whatever it is called.
    """
    found: dict[tuple[int, int], str] = {}
    same = []
    candidates = [(root.label, root.path) for root in roots if root.kind != "beside"]
    if not candidates:
        return ()
    for label, path in (*own.items(), *candidates):
        try:
            info = os.stat(path)
        except OSError:
            continue
        first = found.setdefault((info.st_dev, info.st_ino), label)
        if first != label and label not in own:
            same.append(f"{first}={label}")
    return tuple(sorted(same))


def hook_environment(variant: Variant, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What a hook adds to the keyed environment. Raises `ConfigError` if it lies under no root."""
    if not variant.hook:
        return ()
    label, colon, rest = variant.hook.partition(":")
    if not colon or label not in places or not rest.endswith(".py") or os.path.isabs(rest) or ".." in rest.split("/"):
        raise ConfigError("use post-hook", variant.hook, "not a Python file under a root", "as in tools:strip/notes.py")
    import platform

    return (("PYTHON", f"{platform.python_implementation()} {platform.python_version()}"),)


def kept_as_file(variant: Variant, workshop: Workshop) -> Variant:
    """The same variant with its source in a file that lasts, for results that name their source's file."""
    if variant.source_folder is not None or workshop.folder is None:
        return variant
    data = variant.source_bytes()
    folder = f"{workshop.folder}/sources/{digest_of(data).hex[:32]}"
    try:
        workshop.fs.mkdir(folder)
        workshop.fs.create(f"{folder}/{variant.source_name}", data, sync=False)
    except FileExistsError:
        pass
    except OSError:
        return variant
    return replace(variant, source_folder=folder)


class Layout:
    """Lays out a folder for a request.

    Args:
        folder: the private folder, empty but for what the compiler keeps there.
        request: what to compile.
        own: label → folder of the toolchain's own headers, which get no link.
    """

    def __init__(self, folder: str, request: Request, own: Mapping[str, str]) -> None:
        self.folder, self.request, self.own, self.variant = folder, request, own, request.variant
        self.source = f"src/{self.variant.source_name}"
        self.beside = next((root.path for root in request.roots if root.kind == "beside"), None)

    def prepare(self) -> None:
        """Make the links, and the source if it is not a file already."""
        Path(self.folder, "include").mkdir()
        if self.beside:
            Path(self.folder, "src").symlink_to(self.beside)
        else:
            Path(self.folder, "src").mkdir()
            Path(self.folder, self.source).write_bytes(self.variant.source_bytes())
        for label, place in self.request.places.items():
            if label not in self.own:
                Path(self.folder, "include", label).symlink_to(place)

    def without_source(self, observed: Observed) -> Observed:
        """The source is in the action already; what was read must have been that source."""
        if not self.beside:
            return observed
        name = f"src:{self.variant.source_name}"
        read = [o.digest for o in observed.observations if o.name == name and o.seen is Seen.READ]
        same = read in ([], [None], [digest_of(self.variant.source_bytes())])
        changed = "" if same else f"{name} changed while compiling"
        rest = tuple(o for o in observed.observations if o.name != name or o.seen is Seen.TIME)
        return replace(observed, observations=rest, uncacheable=observed.uncacheable or changed)

    def path_in(self, data: bytes) -> tuple[str, bool]:
        """A folder of this machine that can be read in the result, as a sentence; or an empty text.

        And whether the key accounts for it: the caller wrote it into the source or an option.
        """
        given = b"\0".join((self.variant.source_bytes(), *map(os.fsencode, self.request.arguments)))
        for place in (self.folder, *self.request.places.values()):
            if os.fsencode(place) in data:
                return f"the path {place} is in it", os.fsencode(place) in given
        return "", True

    def neutral(self, output: bytes) -> bytes:
        """A log without temporary names and folders of this machine, to be stored."""
        out = SCRATCH.sub(b"", output).replace(os.fsencode(self.folder) + b"/", b"")
        for label, place in self.request.places.items():
            out = out.replace(os.fsencode(place) + b"/", label.encode() + b":")
        return out

    def named(self, output: bytes) -> str:
        """A log with the caller's file names, to be read."""
        text = SCRATCH.sub(b"", output).decode(errors="replace").replace(self.folder + "/", "")
        if self.beside:
            text = _renamed(text, "src/", _shown(self.beside))
        elif self.variant.source_folder:
            text = _renamed(text, self.source, f"{_shown(self.variant.source_folder)}{self.variant.source_name}")
        else:
            text = _renamed(text, self.source, self.variant.source_name)
        for label, place in self.request.places.items():
            if label not in self.own:
                text = _renamed(text, f"include/{label}/", _shown(place))
        return text


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w/.]){re.escape(old)}", lambda _: new, text)


def _shown(folder: str) -> str:
    """A folder as a person here would write it before a file's name."""
    relative = os.path.relpath(folder)
    return "" if relative == "." else f"{folder if relative.startswith('..') else relative}/"
