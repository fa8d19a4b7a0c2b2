"""The fenced blocks of a page, and a reader at a terminal who types them in order.

`python` blocks run in one namespace for the whole page, `console` blocks in one folder with one
environment. What a block shows as output (the lines after a `$` command, or the `output` block after a
`python` block) must have the shape of what comes: numbers, digests and widths of columns may differ, words may not; `…`
stands for anything, on a line of its own for any lines. A command may fail only if `$ echo $?` after it
says with which status. `<!-- not run: why -->` before a block leaves it out, `<!-- file: name -->` puts it into a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
HOME = "/home/you/kernels"
"""What the pages call the reader's folder."""

_FENCE = re.compile(r"^(?P<ticks>`{3,}|:{3,})(?P<info>[^`]*)$")
_NOTE = re.compile(r"^<!-- (not run|file): (\S.*) -->$")
_HEX = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,64}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_UNIT = re.compile(r"\b0 (?:ms|s)\b")
_LIMIT_SECONDS = 120

_DRIVER = """
import json, sys, traceback
space = {"__name__": "__main__"}
mark, out = sys.argv[1], sys.stdout
for line in sys.stdin:
    text, name, first = json.loads(line)
    status = 0
    try:
        exec(compile("\\n" * first + text, name, "exec"), space)
    except BaseException:
        traceback.print_exc(file=out)
        status = 1
    print(f"\\n{mark}{status}", file=out, flush=True)
"""
_MARK = "-- end of block, status "


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, text, line in the page, why it is not run, what file it is."""

    language: str
    text: str
    line: int
    skip: str = ""
    file: str = ""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, directives (`{note}`) left out."""
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    before, at = "", 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            before = lines[at].strip() or before
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == fence["ticks"])
        language = fence["info"].strip()
        note = _NOTE.match(before)
        why, file = ((note[2], "") if note[1] == "not run" else ("", note[2])) if note else ("", "")
        if not language.startswith("{"):
            found.append(Block(language, "\n".join(lines[at + 1 : end]) + "\n", at + 1, why, file))
        before, at = "", end + 1
    return found


def shape(text: str, folder: str) -> list[str]:
    """The lines of an output without what differs between machines."""
    text = _HEX.sub("h", text.replace(folder, HOME))
    lines = (" ".join(_UNIT.sub("0 s", _NUMBER.sub("0", line)).split()) for line in text.splitlines())
    return [line for line in lines if line]


def same_shape(expected: list[str], actual: list[str]) -> bool:
    """Whether all expected lines are there, `…` standing for anything."""
    if not expected:
        return not actual
    if expected[0] == "…":
        return any(same_shape(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    pattern = ".*".join(map(re.escape, expected[0].split("…")))
    return bool(actual and re.fullmatch(pattern, actual[0])) and same_shape(expected[1:], actual[1:])


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a `console` block, each with the output shown below it."""
    command, output = "", ""
    for line in text.splitlines():
        if command.endswith("\\"):
            command = command[:-1] + line.removeprefix("> ").strip()
        elif line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], ""
        else:
            output += line + "\n"
    if command:
        yield command, output


class Reader:
    """Somebody who follows a page in a fresh folder.

    Args:
        folder: where; `examples` of the checkout is copied there by the caller.
        environ: the whole environment.
    """

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ, self.status = folder, environ, 0
        self._here = str(folder)
        self._notes = folder.with_name(f"{folder.name}.after")  # beside the folder: nothing in it but the reader's own
        self._python: subprocess.Popen[str] | None = None

    def follow(self, page: Path) -> None:
        """Run all blocks of a page in order. Raises `AssertionError` at the first surprise."""
        found = blocks(page)
        for block, after in zip(found, [*found[1:], None], strict=True):
            where = f"{page.relative_to(ROOT)}:{block.line}"
            if block.skip:
                continue
            if block.file:
                (self.folder / block.file).write_text(block.text)
            elif block.language == "console":
                for command, output in commands(block.text):
                    self._type(command, output, where)
            elif block.language == "python":
                shown = after.text if after and after.language == "output" else None
                self._execute(block, shown, where)

    def _type(self, command: str, expected: str, where: str) -> None:
        if command == "echo $?":
            assert self.status == int(expected), f"{where}: the status before was {self.status}"
            self.status = 0
            return
        assert not self.status, f"{where}: the command before {command!r} ended with status {self.status}"
        script = f"{command}\nstatus=$?\n(pwd; env -0) > '{self._notes}'; exit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        self._here, _, variables = self._notes.read_text().partition("\n")
        self.environ = dict(variable.split("=", 1) for variable in variables.split("\0") if "=" in variable)
        self.status = done.returncode
        self._compare(expected, done.stdout, f"{where}: {command}")

    def _execute(self, block: Block, shown: str | None, where: str) -> None:
        python = self._start()
        assert python.stdin is not None
        assert python.stdout is not None
        python.stdin.write(json.dumps([block.text, where, 0]) + "\n")
        python.stdin.flush()
        printed, status = _until_mark(python.stdout)
        assert status == 0, f"{where}:\n{printed}"
        silent = not printed.strip() or where.startswith("README")  # which is for people in a hurry
        assert shown is not None or silent, f"{where} prints something the page does not show:\n{printed}"
        self._compare(shown or "", printed, where)

    def _compare(self, expected: str, actual: str, where: str) -> None:
        want, have = shape(expected, str(self.folder)), shape(actual, str(self.folder))
        if want:
            assert same_shape(want, have), f"{where}\n--- the page\n{expected}\n--- came\n{actual}"

    def _start(self) -> subprocess.Popen[str]:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", _DRIVER, _MARK],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return self._python

    def close(self) -> None:
        """End the Python session."""
        if self._python is not None:
            self._python.communicate(timeout=_LIMIT_SECONDS)


def _until_mark(stream: IO[str]) -> tuple[str, int]:
    printed = ""
    for line in stream:
        if line.startswith(_MARK):
            return printed, int(line.removeprefix(_MARK))
        printed += line
    return printed, -1


def reader_environ(folder: Path) -> dict[str, str]:
    """An environment as a newcomer has it: this Python's commands first, nothing set for Cubinet."""
    foreign = (
        "NVCC",
        "CUBINET_",
        "XDG_",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "SOURCE_DATE_EPOCH",
        "LD_PRELOAD",
        "PYTHONPATH",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    scripts = sysconfig.get_path("scripts")
    return kept | {
        "PATH": f"{scripts}:{kept.get('PATH', os.defpath)}",
        "HOME": f"{folder}/home",
        "CUBINET_DIR": f"{folder}/store",
    }
