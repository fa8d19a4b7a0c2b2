"""The server: where it may listen, and how it ends."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from cubinet.errors import ConfigError

__all__ = ["is_loopback", "listen", "serve"]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int, *, expose: bool) -> socket.socket:
    """A socket that listens. `expose`: others may reach it.

    Raises `ConfigError` for an address that others reach if they may not, and for a port that is taken.
    """
    if not is_loopback(host) and not expose:
        raise ConfigError(
            "serve at",
            host or "''",
            "others reach that address, and whoever does reads the whole index, without a password",
            "leave out --host, or say --expose if you mean it",
        )
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if not is_loopback(str(address[0])) and not expose:  # a name may lead anywhere
            raise ConfigError(
                "serve at", host, f"that is {address[0]}, which others reach", "say --expose if you mean it"
            )
        server = socket.socket(family, kind, proto)
    except OSError as exc:
        raise ConfigError("serve at", host, exc.strerror or str(exc), "check --host") from exc
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(128)
    except OSError as exc:
        server.close()
        remedy = "name another --port, or 0 for any that is free"
        raise ConfigError("serve at", f"{host}:{port}", exc.strerror or str(exc), remedy) from exc
    return server


def serve(app: Any, server: socket.socket, ready: Callable[[], object] = lambda: None) -> None:
    """Answer until SIGINT or SIGTERM. `ready` is called when the first request can come."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none", lifespan="on",
        timeout_graceful_shutdown=3,
    )  # fmt: skip
    with _ended_by_signal(), contextlib.suppress(KeyboardInterrupt):
        Server(config).run(sockets=[server])


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Uvicorn ends on a signal and then sends it once more: that must not kill us before the copy is removed."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
