"""What is in a compiled object, read without a device, a driver or vendor tools.

`sniff` tells a kind, `inspect` reads any of them, `check` is the gate a compiler's output passes
before it is published. Standard library only; `zstandard` is imported when a fatbin needs it.
"""

from __future__ import annotations

from cubinet.objects.checking import check
from cubinet.objects.info import Image, ObjectInfo
from cubinet.objects.kinds import sniff
from cubinet.objects.names import demangle, names_entry
from cubinet.objects.reader import inspect

__all__ = ["Image", "ObjectInfo", "check", "demangle", "inspect", "names_entry", "sniff"]
