"""Everything Cubinet raises.

A message has one shape: what was being done, to what, what was found, what to do. The constructor
arguments are those facts in that order, so an error survives pickling and comes back whole from a
worker process. A lookup that finds nothing is no error: it returns `None`.
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "CompileTimeoutError",
    "ConfigError",
    "CubinetError",
    "DriverError",
    "FormatError",
    "GateError",
    "IntegrityError",
    "LoadError",
    "LockTimeoutError",
    "NoDeviceError",
    "ObjectError",
    "PluginError",
    "ReadOnlyError",
    "RemoteDeniedError",
    "RemoteError",
    "RemoteMisconfiguredError",
    "RemoteUnavailableError",
    "StoreError",
    "ToolchainNotFoundError",
    "TrustError",
    "UnsupportedTargetError",
]


class CubinetError(Exception):
    """Base of every error Cubinet raises on purpose.

    Args:
        action: what was being done, as an infinitive without "to" ("read blob").
        subject: what it was done to, empty if the action says it already.
        finding: what was found instead.
        remedy: what the reader can do, empty if nothing.
    """

    def __init__(self, action: str, subject: object, finding: str, remedy: str = "", *more: object) -> None:
        super().__init__(action, subject, finding, remedy, *more)
        self.action, self.subject, self.finding, self.remedy = action, subject, finding, remedy

    def __str__(self) -> str:
        what = f"cannot {self.action}" + (f" {self.subject}" if str(self.subject) else "")
        return f"{what}: {self.finding}" + (f"; {self.remedy}" if self.remedy else "")


class ConfigError(CubinetError, ValueError):
    """A setting, option, name or combination of them that cannot be meant."""


class PluginError(ConfigError):
    """An entry point that does not load, or a name that no entry point has."""


class StoreError(CubinetError):
    """The store itself is at fault."""


class IntegrityError(StoreError):
    """Bytes do not match their digest: `where`, `expected`, `actual`."""

    def __init__(self, where: str, expected: str, actual: str) -> None:
        super().__init__("read", where, f"expected {expected}, found {actual}", "run cubinet verify")
        self.args = (where, expected, actual)
        self.where, self.expected, self.actual = where, expected, actual


class FormatError(StoreError):
    """A file this release cannot read: damaged, or in a newer format, which is then left alone."""


class ReadOnlyError(StoreError):
    """A write to a layer that takes none."""


class LockTimeoutError(StoreError, TimeoutError):
    """A lock was held by somebody else for longer than the caller would wait."""


class TrustError(StoreError):
    """A record that a layer's policy does not let in: unsigned, signed by nobody trusted, changed, or revoked."""


class RemoteError(CubinetError, OSError):
    """A remote did not do what it was asked: `remote` is its address without secrets.

    Attributes:
        transient: whether the same call may succeed later without anybody doing anything.
    """

    transient = False

    def __init__(self, action: str, remote: str, finding: str, remedy: str = "") -> None:
        super().__init__(action, remote, finding, remedy)
        self.args = (action, remote, finding, remedy)
        self.remote, self.errno, self.strerror = remote, None, finding


class RemoteUnavailableError(RemoteError):
    """It did not answer in time, or with 5xx, or was throttled, or the connection broke."""

    transient = True


class RemoteDeniedError(RemoteError):
    """No credentials, expired ones, or ones that may not do this (403)."""


class RemoteMisconfiguredError(RemoteError):
    """No such bucket, the wrong region, an endpoint that is no object store, a package that is not installed."""


class ObjectError(CubinetError):
    """A file that is no compiled object of a known kind, or a damaged one."""


class CompileError(CubinetError):
    """The compiler refused the source, or could not run.

    Attributes:
        log: what the compiler printed, with the caller's file names.
        command: the argument list that ran, empty if none did.
        toolchain: name and version of the compiler.
        deterministic: whether the same input is certain to fail again. Only such a failure is
            remembered: for the life of the process, and for a minute on the local disk.
        observations: what the compiler had looked at, if that was recorded; stays in the process.
    """

    observations: tuple[object, ...] = ()

    def __init__(  # noqa: PLR0917 - facts come by position so that they pickle
        self,
        subject: str,
        finding: str,
        remedy: str = "",
        log: str = "",
        command: tuple[str, ...] = (),
        toolchain: str = "",
        deterministic: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        super().__init__("compile", subject, finding, remedy)
        self.args = (subject, finding, remedy, log, command, toolchain, deterministic)
        self.log, self.command, self.toolchain, self.deterministic = log, command, toolchain, deterministic


class GateError(CompileError):
    """The object is there, but it has what the variant says it must not: spills, local memory."""


class CompileTimeoutError(CompileError, TimeoutError):
    """The compiler ran longer than the time limit and was killed with all its children."""


class ToolchainNotFoundError(CompileError):
    """No compiler at any of the places where one was looked for: `steps` lists them in order."""

    def __init__(self, compiler: str, steps: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"with {compiler}", "no compiler found (" + "; ".join(steps) + ")", remedy)
        self.args = (compiler, steps, remedy)
        self.steps = steps


class LoadError(CubinetError):
    """An artifact that could not become a launchable kernel, or a launch that could not be made.

    Attributes:
        target: what the artifact was compiled for, as `cuda:sm_90a`; empty if that is not the matter.
        device: what is at hand, in words; empty if that is not the matter.
    """

    def __init__(  # noqa: PLR0917 - facts come by position so that they pickle
        self, action: str, subject: str, finding: str, remedy: str = "", target: str = "", device: str = ""
    ) -> None:
        super().__init__(action, subject, finding, remedy)
        self.args = (action, subject, finding, remedy, target, device)
        self.target, self.device = target, device


class NoDeviceError(LoadError):
    """No driver, or no device, on this machine."""


class UnsupportedTargetError(LoadError):
    """The artifact was compiled for another device than the one at hand."""


class DriverError(LoadError):
    """The vendor's driver or runtime refused: `code` and `name` are its own."""

    def __init__(  # noqa: PLR0917
        self,
        action: str,
        subject: str,
        finding: str,
        remedy: str = "",
        target: str = "",
        device: str = "",
        code: int = 0,
        name: str = "",
    ) -> None:
        super().__init__(action, subject, finding, remedy, target, device)
        self.args = (action, subject, finding, remedy, target, device, code, name)
        self.code, self.name = code, name
