"""Whether processes of this host can talk to each other over loopback, found out by doing it."""

from __future__ import annotations

import socket

ADDRESSES = (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
SECONDS = 2.0


def probe() -> tuple[tuple[str, str], ...]:
    """Each loopback address with "ok", or with why no connection to it came about."""
    return tuple((address, talk(address, family)) for address, family in ADDRESSES)


def talk(address: str, family: socket.AddressFamily) -> str:
    """Listen on a free port of ``address`` and connect to it; "ok", else the reason."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.settimeout(SECONDS)
            server.bind((address, 0))
            server.listen(1)
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.settimeout(SECONDS)
                client.connect(server.getsockname())
                server.accept()[0].close()
    except OSError as error:
        return error.strerror or str(error)
    return "ok"
