"""Which CANN toolkit: where it is looked for, what identifies it, where its headers are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from cubinet.compilers._memo import Memo, stamps_of
from cubinet.errors import ToolchainNotFoundError
from cubinet.fingerprint import digest_of, encode
from cubinet.model import Digest, Program, Toolchain
from cubinet.protocols import Step
from cubinet.registry import Workshop

__all__ = ["ROOTS", "Facts", "facts", "find_toolkit"]

ROOTS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
"""Where the vendor's installer puts it."""

VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_REMEDY = "install the CANN toolkit and source its set_env.sh, or set ASCEND_HOME_PATH"
_TOOLS = ("bisheng", "ld.lld")
_PLACES = (
    "bin", "{host}/bin", "{host}/ccec_compiler/bin", "compiler/ccec_compiler/bin", "tools/bisheng_compiler/bin",
    "{host}/tools/bisheng_compiler/bin",
)  # fmt: skip
_INCLUDES = (
    ("{host}/asc/include/adv_api",),
    ("compiler/tikcpp/tikcfw", "compiler/tikcpp/tikcfw/impl", "compiler/tikcpp/tikcfw/interface"),
)
"""What DeepJIT gives for CANN 9, then what earlier releases have in its place."""

_VERSIONS = ("{host}/ascend_toolkit_install.info", "compiler/version.info", "version.info")
_VERSION_LINE = re.compile(r"^(version|innerversion|timestamp)=([^\n]*)$", re.MULTILINE | re.IGNORECASE)


class Facts(msgspec.Struct, frozen=True):
    """What is known of one toolkit.

    `banner` is the first line of `bisheng --version`, the only one that is the same in two places; its time is all
    that differs between releases. `programs` are (role, path, hex digest), with texts that identify the toolkit
    among them, which have no path. `version` is the toolkit's, or the banner; `includes` are below `root`.
    """

    root: str
    bisheng: str
    linker: str
    banner: str
    version: str
    told: bool
    programs: list[tuple[str, str, str]]
    places: dict[str, str]
    includes: list[str]
    watched: list[str]
    stamps: list[list[int]]

    def toolchain(self) -> Toolchain:
        """The toolchain these facts describe."""
        programs = tuple(Program(role, path, Digest(digest)) for role, path, digest in self.programs)
        return Toolchain("bisheng", self.version, digest_of(encode((p.role, p.digest.raw) for p in programs)), programs)

    def files(self) -> set[str]:
        """The programs that run."""
        return {path for _, path, _ in self.programs if path}

    def owns(self, path: str) -> str | None:
        """The name of a file of the toolkit, as `toolkit:bin/bisheng`; `None` for any other file."""
        for label, place in self.places.items():
            if path.startswith(f"{place}/"):
                return f"{label}:{path[len(place) + 1 :]}"
        return None


def find_toolkit(workshop: Workshop, roots: Sequence[str] = ROOTS) -> tuple[str, list[Step]]:
    """The toolkit to use, and every place that was asked. Raises `ToolchainNotFoundError`.

    DeepJIT's order: `ASCEND_HOME_PATH`, `ASCEND_TOOLKIT_HOME`, the vendor's default folders. A variable that is set
    must be right; a default folder that lacks the compiler is passed over.
    """
    steps: list[Step] = []
    for variable in VARIABLES:
        value = workshop.environ.get(variable, "")
        if not value:
            steps.append(Step(variable, "not set"))
            continue
        missing = _missing(value)
        steps.append(Step(variable, f"{value}: {missing}" if missing else value, chosen=not missing))
        if missing:
            raise ToolchainNotFoundError("bisheng", _texts(steps), f"correct {variable}")
        return os.path.abspath(value), steps
    for root in roots:
        missing = _missing(root)
        steps.append(Step("default folder", f"{root}: {missing}" if missing else root, chosen=not missing))
        if not missing:
            return root, steps
    raise ToolchainNotFoundError("bisheng", _texts(steps), _REMEDY)


def _texts(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(f"{step.rule}: {step.found}" for step in steps)


def _missing(root: str) -> str:
    if not os.path.isdir(root):
        return "no such folder"
    lacking = [name for name in _TOOLS if not _tool(root, name)]
    return f"no {' and no '.join(lacking)} in it" if lacking else ""


def _hosts(root: str) -> list[str]:
    """The folders of host architectures in a toolkit, this machine's first."""
    try:
        found = sorted(name for name in os.listdir(root) if name.endswith("-linux"))
    except OSError:
        return []
    own = f"{platform.machine()}-linux"
    return sorted(found, key=lambda name: name != own)


def _expanded(root: str, pattern: str) -> Iterator[str]:
    for host in _hosts(root) if "{host}" in pattern else [""]:
        yield f"{root}/{pattern.replace('{host}', host)}"


def _tool(root: str, name: str) -> str:
    for pattern in _PLACES:
        for folder in _expanded(root, pattern):
            path = f"{folder}/{name}"
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return ""


def facts(memo: Memo[Facts], root: str) -> Facts:
    """What is known of a toolkit, from memory while no file changed. Raises `ToolchainNotFoundError`."""
    key = blake3(root.encode("utf-8", "surrogateescape")).hexdigest(16)
    return memo.get(f"bisheng-{key}", lambda: _learn(root))


def _learn(root: str) -> Facts:
    bisheng, linker = _tool(root, "bisheng"), _tool(root, "ld.lld")
    infos = [path for pattern in _VERSIONS for path in _expanded(root, pattern) if os.path.isfile(path)]
    named = {root, bisheng, linker, os.path.dirname(bisheng), os.path.dirname(linker), *infos}
    watched = sorted(named | set(map(os.path.realpath, named)))
    stamps = stamps_of([os.stat(path) for path in watched])  # first: what changes from now on is noticed
    banner, linker_banner, told = _first_line(bisheng), _first_line(linker), _told(infos)
    real = os.path.realpath(root)
    places = {"toolkit": real}
    for path in map(os.path.realpath, (bisheng, linker)):
        if not any(path.startswith(f"{place}/") for place in places.values()):  # links lead out of the root
            places[f"toolkit{len(places)}"] = os.path.dirname(os.path.dirname(path))
    includes: list[str] = []
    for group in _INCLUDES:
        for pattern in group:
            found = next((path for path in _expanded(real, pattern) if os.path.isdir(path)), "")
            includes += [found[len(real) + 1 :]] if found else []
        if includes:
            break
    programs = []
    for role, path in (("bisheng", bisheng), ("ld.lld", linker)):
        where = os.path.realpath(path)
        programs.append((role, where, blake3().update_mmap(where).hexdigest()))
    version = told.get("version", "")
    texts = {"banner": banner, "ld.lld banner": linker_banner, "version": version} | {
        f"toolkit {name}": value for name, value in told.items() if name != "version"
    }
    programs += (
        (role, "", blake3(text.encode("utf-8", "surrogateescape")).hexdigest()) for role, text in texts.items()
    )
    return Facts(
        real, bisheng, linker, banner, version or banner, bool(version), programs, places, includes, watched, stamps
    )


def _told(infos: Sequence[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for path in infos:
        text = Path(path).read_text("utf-8", "replace")
        for name, value in _VERSION_LINE.findall(text):
            told.setdefault(name.lower(), value.strip())
    return told


def _first_line(program: str) -> str:
    from cubinet.compilers._worker import private_folder, run

    with private_folder() as work:
        environ = {"PATH": f"{os.path.dirname(program)}:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": work, "HOME": work}
        try:
            done = run([program, "--version"], folder=work, environ=environ, timeout=60)
        except OSError as exc:
            raise ToolchainNotFoundError("bisheng", (f"{program}: {exc.strerror}",), _REMEDY) from exc
    lines = done.output.decode(errors="replace").strip().splitlines()
    if done.status or not lines:
        said = lines[0] if lines else f"status {done.status}"
        raise ToolchainNotFoundError("bisheng", (f"{program} --version: {said}",), _REMEDY)
    return lines[0].strip()
