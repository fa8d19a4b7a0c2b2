"""`cubinet verify` and `doctor`: whether all is well."""

from __future__ import annotations

import os
import platform
import tempfile
from dataclasses import asdict, replace
from typing import Any

import click

from cubinet import __version__
from cubinet.cli._out import bar, print_json, working
from cubinet.config import Settings, config_path
from cubinet.errors import ConfigError, CubinetError, ToolchainNotFoundError
from cubinet.model import Target, Variant
from cubinet.store import Store

__all__ = ["doctor", "verify"]

_PACKAGES = ("blake3", "msgspec", "platformdirs", "click", "zstandard", "nvidia-cuda-nvcc", "nvidia-cuda-cccl")
_TRIAL = '#include <cuda_fp16.h>\nextern "C" __global__ void trial(__half* x) { x[threadIdx.x] = __float2half(1.f); }\n'


@click.command(name="verify")
@click.option("--recompile", type=click.IntRange(min=1), metavar="N", help="Compile a sample of N records again too.")
@click.option("-I", "includes", multiple=True, metavar="LABEL=DIR", help="Where a label is, for --recompile.")
@click.option("--remote", is_flag=False, flag_value="", metavar="[LAYER]", help="Verify a remote instead.")
@click.option("--repair", is_flag=True, help="With --remote: delete what is damaged, so that it is built again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(recompile: int | None, includes: tuple[str, ...], remote: str | None, *, repair: bool, as_json: bool) -> int:
    """Read every record and blob; move what is damaged to bad/.

    Exit status 1 if something was damaged, or came out differently. The next lookup rebuilds what is gone.
    """
    if remote is not None:
        from cubinet.cli.remote import verify_remote_command

        return verify_remote_command(remote or None, repair=repair, as_json=as_json)
    if repair:
        raise ConfigError("verify", "--repair", "a local layer is repaired anyway", "give --remote too")
    from cubinet.cli.compile import roots_of

    store = Store.from_env()
    folders = {root.label: root.path for root in roots_of(includes)}
    with bar("verifying") as progress:
        found = store.verify(progress)
    repeated = None
    if recompile:
        with bar("compiling again") as progress:
            repeated = store.recompile(recompile, folders, progress)
    good = found.clean and (repeated is None or repeated.good)
    if as_json:
        print_json(
            {**asdict(found), "clean": found.clean, "folder": store.folder}
            | {"recompiled": asdict(repeated) if repeated else None}
        )
        return 0 if good else 1
    click.echo(f"{store.folder}: {found.records} records, {found.blobs} blobs, {found.bytes} bytes")
    for problem in found.problems:
        click.echo(f"problem: {problem}")
    click.echo("clean" if found.clean else f"{len(found.problems)} problems; what was damaged is in bad/ now")
    if repeated:
        for word in ("same", "different", "skipped"):
            counts = getattr(repeated, word)
            if counts:
                click.echo(f"{word}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
        for note in repeated.notes:
            click.echo(f"  {note}")
    return 0 if good else 1


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(as_json: bool) -> int:  # noqa: FBT001
    """Check that it would all work here, by doing it.

    Exit status 1 if it would not.
    """
    with working("trying a compile"):
        report = _examine()
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0 if report["ok"] else 1


def _examine() -> dict[str, Any]:
    problems: list[str] = []
    report: dict[str, Any] = {
        "ok": False,
        "cubinet": __version__,
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "config": config_path(os.environ),
        "store": {"folder": None, "writable": None, "safe": None},
        "layers": [],
        "compiler": {"steps": [], "nvcc": None},
        "nvrtc": {"version": None, "why": "not tried"},
        "recorder": {"trusted": False, "why": "not tried"},
        "trial": None,
        "problems": problems,
        "notes": [],
    }
    try:
        settings = Settings.from_env()
        report["store"]["folder"] = settings.folder
        _examine_store(settings, report["store"], problems)
        with tempfile.TemporaryDirectory(prefix="cubinet-doctor-") as folder:
            _examine_compiler(Store(folder, settings=replace(settings, trust="open", layers=())), report, problems)
        _examine_layers(settings, report, problems)
    except CubinetError as exc:
        problems.append(str(exc))
    report["ok"] = not problems
    return report


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _examine_store(settings: Settings, report: dict[str, Any], problems: list[str]) -> None:
    from cubinet.store.local import LocalLayer

    try:
        Store(settings=settings)
        report["safe"] = True
    except CubinetError as exc:
        report["safe"] = False
        problems.append(str(exc))
        return
    why = LocalLayer(settings.folder).writable()
    report["writable"] = not why
    if why:
        problems.append(f"the store folder {settings.folder} cannot be written: {why}; nothing will be kept")


def _examine_layers(settings: Settings, report: dict[str, Any], problems: list[str]) -> None:
    from cubinet.store.explain_far import examine

    for layer in Store(settings=settings).far:
        found = examine(layer)
        report["layers"].append(asdict(found))
        if found.problem:
            problems.append(found.problem)
    unsure = [spec.url for spec in settings.far if spec.trust in ("", "signed")]
    if unsure:
        _examine_keys(settings, unsure[0], report["notes"])


def _examine_keys(settings: Settings, place: str, notes: list[str]) -> None:
    """A layer that asks for signatures is of no use without keys to check them with."""
    from cubinet.store.keys import ed25519, key_file, load_keyring

    path = key_file("trusted-keys", os.environ, settings.trusted_keys)
    try:
        if not load_keyring(path):
            notes.append(f"nothing in {place} is used, as no key is trusted: cubinet key trust, or say trust=open")
        ed25519()
    except CubinetError as exc:
        notes.append(str(exc))


def _examine_compiler(store: Store, report: dict[str, Any], problems: list[str]) -> None:
    adapter: Any = store.compiler("nvcc")
    try:
        report["compiler"]["steps"] = [asdict(step) for step in adapter.steps()]
        facts = adapter.facts()
    except ToolchainNotFoundError as exc:
        report["compiler"]["steps"] = report["compiler"]["steps"] or [
            {"rule": rule, "found": found, "chosen": False}
            for rule, _, found in (step.partition(": ") for step in exc.steps)
        ]
        pin = _pinned(store)
        if pin:
            report["compiler"]["steps"].append({"rule": "CUBINET_TOOLCHAIN", "found": pin, "chosen": True})
        else:
            problems.append(str(exc))
        return
    tools = facts.toolchain()
    report["compiler"]["nvcc"] = {
        "path": facts.nvcc,
        "host": facts.host,
        "version": facts.version,
        "identity": str(tools.identity),
        "programs": {program.role: program.path for program in tools.programs},
    }
    variant = Variant(_TRIAL, Target.parse(facts.default_arch), entries=("trial",), name="trial")
    try:
        made = store.get_or_compile(variant)
        report["trial"] = {"seconds": round(made.seconds, 3), "stored": made.cacheable, "reason": made.reason or None}
        if made.reason:
            problems.append(f"a trial compile was not stored: {made.reason}")
        elif store.find(variant) is None:
            problems.append("a trial compile was stored but not found again")
    except CubinetError as exc:
        problems.append(str(exc))
    report["nvrtc"] = _examine_nvrtc(store)
    recorder = adapter.recorder()
    report["recorder"] = {"trusted": not recorder.distrust, "why": recorder.distrust or None}


def _pinned(store: Store) -> str:
    """The toolchain of another machine that this one finds builds of; an empty text if there is none."""
    from cubinet.compilers._pin import find_pin
    from cubinet.registry import Workshop

    pin = find_pin(Workshop(store.settings, os.environ, None), "nvcc")
    return f"nvcc {pin.version}, which is not here: builds are found, none is compiled" if pin else ""


def _examine_nvrtc(store: Store) -> dict[str, Any]:
    """What is known of NVRTC; that it is missing is no problem, since nvcc does the main job."""
    try:
        tools = store.compiler("nvrtc").toolchain()
    except CubinetError as exc:
        return {"version": None, "why": str(exc)}
    libraries = [program.path for program in tools.programs]
    return {"version": tools.version, "identity": str(tools.identity), "libraries": libraries}


def _print(report: dict[str, Any]) -> None:
    packages = ", ".join(f"{name} {number}" for name, number in report["packages"].items())
    click.echo(f"cubinet   {report['cubinet']}, Python {report['python']}, {packages}")
    click.echo(f"settings  {report['config']}" + ("" if os.path.exists(report["config"]) else " (not there)"))
    store = report["store"]
    word = {True: "yes", False: "no", None: "unknown"}
    click.echo(f"store     {store['folder']}: safe {word[store['safe']]}, writable {word[store['writable']]}")
    for layer in report["layers"]:
        facts = {"answers": layer["answers"], "writable": layer["writable"], "exclusive": layer["exclusive"]}
        told = ", ".join(f"{name} {word[value]}" for name, value in facts.items() if value is not None)
        took = "" if layer["milliseconds"] is None else f"; a read {layer['milliseconds']} ms"
        click.echo(f"layer     {layer['layer']}: {layer['place']}: {told}{took}")
    for step in report["compiler"]["steps"]:
        click.echo(f"{'->' if step['chosen'] else '  '}        {step['rule']}: {step['found']}")
    nvcc = report["compiler"]["nvcc"]
    if nvcc:
        click.echo(f"nvcc      {nvcc['version']} at {nvcc['path']}, identity {nvcc['identity']}")
        click.echo(f"host      {nvcc['host']}")
    nvrtc = report["nvrtc"]
    click.echo(f"nvrtc     {nvrtc['version'] or nvrtc['why']}")
    recorder = report["recorder"]
    text = "trusted" if recorder["trusted"] else f"not trusted: {recorder['why']}"
    click.echo(f"recorder  {text}")
    if report["trial"]:
        click.echo(f"trial     compiled in {report['trial']['seconds']} s")
    for note in report["notes"]:
        click.echo(f"note:     {note}")
    for problem in report["problems"]:
        click.echo(f"problem:  {problem}")
    click.echo("all is well" if report["ok"] else "the main job would fail")
