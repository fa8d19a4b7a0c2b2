"""Runs a post-hook in a process of its own: `_hook_worker.py HOOK IN OUT LIBRARY...`. Standard library only.

The hook is a Python file with a function `edit(data: bytes) -> bytes`. What it imports from elsewhere than the
standard library (the `LIBRARY` folders) is looked for name by name and compiled from its source, so that every
look can be recorded: Python's own finder lists whole folders, and its cache of compiled modules may be stale.
"""

import os
import sys
from importlib import machinery
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

BEGIN, END = "/cubinet/begin", "/cubinet/end"
IMPORT, IMPORTED = "/cubinet/import", "/cubinet/imported"
"""Names that no file has: looked for around the hook, and around each search for a module, so that the log shows
where these begin and end."""

_FOREIGN = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/dev/", "[")


class _Source(machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _AnyName:
    """Stands for a folder's listing: any name may be in it, so each has to be looked for."""

    def __contains__(self, name: str) -> bool:
        return True


class _Finder(machinery.FileFinder):
    """Finds modules outside the standard library, for everybody but the standard library."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        frame = sys._getframe(1)  # noqa: SLF001 - who imports is in no argument
        while frame.f_back is not None and _is_importing(frame.f_code.co_filename):
            frame = frame.f_back
        if is_library(frame.f_code.co_filename):
            return None  # what it tries beyond itself is optional, and would differ from place to place
        os.access(IMPORT, os.F_OK)
        try:
            return super().find_spec(fullname, target)
        finally:
            os.access(IMPORTED, os.F_OK)

    def _fill_cache(self) -> None:
        self._path_cache = self._relaxed_path_cache = _AnyName()


_libraries: tuple[str, ...] = ()


def is_library(path: str) -> bool:
    """Whether a file belongs to the interpreter. Installed packages do not."""
    inside = path.startswith((*_libraries, "<frozen "))
    return inside and "/site-packages/" not in path and "/dist-packages/" not in path


def _is_importing(file: str) -> bool:
    return file.startswith("<frozen importlib") or file.endswith("/importlib/__init__.py")


def _watch_imports() -> None:
    loaders = (
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (_Source, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )

    def find(path: str) -> _Finder:
        if is_library(f"{os.path.abspath(path)}/") or not os.path.isdir(path):
            raise ImportError
        return _Finder(path, *loaders)

    sys.path_hooks.insert(0, find)
    for path in sys.path:  # now, so that these looks are none of the hook's
        if not is_library(f"{path}/"):
            sys.path_importer_cache[path] = _Finder(path, *loaders) if os.path.isdir(path) else None


def _mapped() -> set[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return {line.rstrip("\n").split(maxsplit=5)[5] for line in file if line.count("/")}


def main(hook: str, given: str, made: str, *libraries: str) -> None:
    """Apply the hook."""
    with open(given, "rb") as file:
        data = file.read()
    global _libraries  # noqa: PLW0603 - one run a process
    _libraries = tuple(f"{folder}/" for folder in libraries)
    _watch_imports()
    module = ModuleType("cubinet_hook")
    module.__file__ = hook
    sys.modules["cubinet_hook"] = module
    links = {os.path.realpath(f"include/{label}"): f"include/{label}" for label in os.listdir("include")}
    before = _mapped()
    os.access(BEGIN, os.F_OK)
    with open(hook, "rb") as file:
        code = compile(file.read(), hook, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - that is what a hook is for
    edit = getattr(module, "edit", None)
    if not callable(edit):
        sys.exit(f"{hook} has no function edit(data)")
    result = edit(data)
    for path in sorted(_mapped() - before):  # the loader of shared objects reads them unrecorded
        place = next((place for place in links if path.startswith(f"{place}/")), "")
        if place or not path.startswith((*_FOREIGN, *_libraries, f"{sys.base_prefix}/lib")):
            open(links.get(place, "") + path.removeprefix(place), "rb").close()
    os.access(END, os.F_OK)
    if not isinstance(result, bytes):
        sys.exit(f"{hook}: edit returned {type(result).__name__}, not bytes")
    with open(made, "wb") as file:
        file.write(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
