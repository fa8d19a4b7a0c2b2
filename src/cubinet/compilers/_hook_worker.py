"""Runs a post-hook in a process of its own: `_hook_worker.py HOOK IN OUT`. Standard library only.

The hook is a Python file with a function `edit(data: bytes) -> bytes`.
"""

import os
import runpy
import sys

BEGIN, END = "/cubinet/begin", "/cubinet/end"


def main(hook: str, given: str, made: str) -> None:
    """Apply the hook; look for names that no file has, so that the log shows where its looks begin and end."""
    with open(given, "rb") as file:
        data = file.read()
    os.access(BEGIN, os.F_OK)
    edit = runpy.run_path(hook).get("edit")
    if not callable(edit):
        sys.exit(f"{hook} has no function edit(data)")
    result = edit(data)
    os.access(END, os.F_OK)
    if not isinstance(result, bytes):
        sys.exit(f"{hook}: edit returned {type(result).__name__}, not bytes")
    with open(made, "wb") as file:
        file.write(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
