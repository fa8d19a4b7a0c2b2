"""A real compiler of a tiny language, in the process: for tests of stores that have no toolkit.

It reads the source and the files it includes, looks for them where a C compiler would, and reports every look,
the vain ones too. A line is one of:

- `#include "x"` or `#include <x>`: the file's text, looked for among the headers in memory, in the source's folder
  (quotes only) and in the roots;
- `#probe "x"`: `1` or `0`, whether there is such a file in a root;
- `kernel NAME`: a kernel;
- `#error TEXT`: an error that comes again; `#flaky TEXT`: one that may not;
- `#uncacheable TEXT`: a result that must not be kept, for this reason;
- anything else: text that is copied. A line that begins with another `#` or with `!` is a syntax error.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cubinet.errors import CompileError, CompileTimeoutError, ConfigError
from cubinet.fingerprint import digest_of
from cubinet.model import Digest, Kernel, Observation, Program, Root, Seen, Toolchain, Variant
from cubinet.protocols import Compiled, Request, Step

__all__ = ["FakeCompiler"]

_INCLUDE = re.compile(r'#include (?:"([^"]+)"|<([^>]+)>)')
_PROBE = re.compile(r'#probe "([^"]+)"')


@dataclass(slots=True)
class FakeCompiler:
    """Picklable, as long as `during` is; safe in threads.

    Args:
        runs: a file that gets one line for each run, from whichever process.
        seconds: how long a run takes.
        version: version of the toolchain, and its identity.
        during: called in the middle of a run, when all files have been read.
        noise: bytes that differ from run to run in the result, as nondeterministic compilers make them.
    """

    runs: str = ""
    seconds: float = 0.0
    version: str = "1.0"
    during: Callable[[], object] | None = None
    noise: Callable[[], bytes] = bytes
    name: str = "fake"

    def toolchain(self) -> Toolchain:
        """One program, whose content is its version."""
        identity = digest_of(f"fake {self.version}".encode())
        return Toolchain(self.name, self.version, identity, (Program("fake", "", identity),))

    def steps(self) -> Sequence[Step]:
        """It is always here."""
        return (Step("built in", "fake", chosen=True),)

    def pin(self) -> object:
        """It is always here."""
        raise ConfigError("pin toolchain", self.name, "it is always here")

    def normalize(self, variant: Variant) -> Request:
        """Settle a variant: `-I<folder>` is a root; `-random` is not cacheable; `-g` binds; `-native` is refused."""
        roots = [Root("src", variant.source_folder, "quote")] if variant.source_folder else []
        roots += variant.roots
        arguments, uncacheable, bound = [], "", ""
        for option in variant.options:
            if option == "-native":
                raise ConfigError("use option", option, "it means something else on each machine")
            if option.startswith("-I"):
                roots.append(Root(f"i{len(roots)}", option[2:]))
            elif option == "-random":
                uncacheable = "-random is random"
            else:
                arguments.append(option)
            if option == "-g":
                bound = "\0".join(f"{root.label}={root.path}" for root in roots)
        places = {root.label: root.path for root in roots}
        return Request(
            variant,
            self.toolchain(),
            tuple(arguments),
            (("LC_ALL", "C"),),
            tuple(roots),
            places,
            uncacheable=uncacheable,
            bound=bound,
        )

    def refresh(self) -> None:
        """Nothing is remembered."""

    def compile(self, request: Request, *, timeout: float | None = None) -> Compiled:
        """Expand the source; see the module for the language."""
        start = time.perf_counter()
        if self.runs:
            with open(self.runs, "ab", buffering=0) as file:
                file.write(f"{os.getpid()} {request.variant.name!r}\n".encode())
        run = _Run(request, self)
        run.expand(request.variant.source, "", 0)
        if self.during is not None:
            self.during()
        time.sleep(self.seconds if timeout is None else min(self.seconds, timeout))
        if timeout is not None and timeout < self.seconds:
            raise CompileTimeoutError(run.subject, f"fake was killed after {timeout:g} s")
        run.check_entries()
        head = " ".join((request.variant.kind, *request.arguments, request.variant.target.arch, self.version))
        return Compiled(
            "\n".join([head, *run.lines, ""]).encode("utf-8", "surrogateescape") + self.noise(),
            f"fake: {len(run.lines)} lines".encode(),
            tuple(run.kernels),
            run.observations(),
            ("fake", *request.arguments, f"src/{request.variant.source_name}"),
            time.perf_counter() - start,
            uncacheable=request.uncacheable or run.uncacheable or run.changed(),
            local_only="-g writes the paths of this machine into it" if request.bound else "",
            messages=f"fake: {len(run.lines)} lines",
        )


@dataclass(slots=True)
class _Run:
    request: Request
    compiler: FakeCompiler
    lines: list[str] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    seen: dict[str, tuple[Seen, Digest | None]] = field(default_factory=dict)
    uncacheable: str = ""

    @property
    def subject(self) -> str:
        return self.request.variant.name or self.request.variant.source_name

    def expand(self, text: str, where: str, depth: int) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            word, _, rest = line.strip().partition(" ")
            if match := _INCLUDE.fullmatch(line.strip()):
                self._include(match[1] or match[2], quoted=bool(match[1]), depth=depth)
            elif match := _PROBE.fullmatch(line.strip()):
                self.lines.append(str(int(self._look(match[1], quoted=True, probe=True) is not None)))
            elif word == "kernel":
                self.kernels.append(Kernel(rest, rest, regs=len(rest)))
                self.lines.append(f"kernel {rest}")
            elif word == "#uncacheable":
                self.uncacheable = rest
            elif word == "#flaky":
                raise self._error(rest, deterministic=False)
            elif word == "#error" or word.startswith(("#", "!")):
                message = rest if word == "#error" else f"not understood: {line.strip()}"
                raise self._error(message, f"{where or self.request.variant.source_name}:{number}: error: {message}")
            else:
                self.lines.append(line)

    def check_entries(self) -> None:
        """Every entry asked for must be there."""
        missing = sorted(set(self.request.variant.entries) - {kernel.name for kernel in self.kernels})
        if missing:
            raise self._error(f"no kernel {missing[0]}")

    def observations(self) -> tuple[Observation, ...]:
        """Everything looked at."""
        return tuple(Observation(name, seen, digest) for name, (seen, digest) in sorted(self.seen.items()))

    def changed(self) -> str:
        """The first file that is not what it was when it was read."""
        for name, (seen, digest) in self.seen.items():
            data = self._read(name)
            if (data is None) is not (seen is Seen.ABSENT) or (
                digest and data is not None and digest_of(data) != digest
            ):
                return f"{name} changed while compiling"
        return ""

    def _include(self, name: str, *, quoted: bool, depth: int) -> None:
        found = self._look(name, quoted=quoted)
        if found is None or depth > 50:
            raise self._error(f"{name}: no such file" if found is None else f"{name}: nested too deeply")
        self.expand(found[1].decode("utf-8", "surrogateescape"), found[0], depth + 1)

    def _look(self, name: str, *, quoted: bool, probe: bool = False) -> tuple[str, bytes] | None:
        in_memory = dict(self.request.variant.headers).get(name)
        if in_memory is not None:  # it is in the action: nothing to observe
            return name, in_memory.encode("utf-8", "surrogateescape")
        for root in self.request.roots:
            if root.kind in ("quote", "beside") and not quoted:
                continue
            full = f"{root.label}:{name}"
            data = self._read(full)
            if data is None:
                self.seen[full] = (Seen.ABSENT, None)
                continue
            if not probe:
                self.seen[full] = (Seen.READ, digest_of(data))
            else:
                self.seen.setdefault(full, (Seen.PRESENT, None))
            return full, data
        return None

    def _read(self, name: str) -> bytes | None:
        label, _, rest = name.partition(":")
        try:
            with open(f"{self.request.places[label]}/{rest}", "rb") as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def _error(self, finding: str, log: str = "", *, deterministic: bool = True) -> CompileError:
        places: Mapping[str, str] = self.request.places
        error = CompileError(
            self.subject,
            finding,
            "",
            log or f"error: {finding} (looked in {', '.join(places) or 'no folder'})",
            ("fake", *self.request.arguments),
            f"fake {self.compiler.version}",
            deterministic,
        )
        error.observations = self.observations()
        return error
