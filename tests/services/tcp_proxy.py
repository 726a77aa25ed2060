"""A TCP proxy in front of a service, whatever protocol it speaks: counts answers, and drops one of them.

    with TcpProxy("127.0.0.1", 9083) as proxy:
        proxy.arm(3)                # the third answer from now on is dropped, and its connection cut
        ...
        assert proxy.has_hit

An answer begins with the first bytes that the service sends after the client has sent some: what was asked has arrived
there. In contrast to `http_proxy` nothing is understood of what passes.
"""

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.services.launch import HOST


class TcpProxy:
    """Listens on the loopback interface and hands everything on to one service.

    Attributes:
        port: where it listens.
        answers: how many there were since it was armed last, the dropped one included.
        has_hit: whether the answer that was to be dropped has come.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._number: int | None = None
        self._on_drop: Callable[[], None] | None = None
        self.answers = 0
        self.has_hit = False
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def arm(self, number: int | None, on_drop: Callable[[], None] | None = None) -> None:
        """Drop the n-th answer from now on (None: none of them), once; `on_drop` is called first."""
        with self._lock:
            self._number, self._on_drop = number, on_drop
            self.answers, self.has_hit = 0, False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        has_asked = False
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                data = server.recv(1 << 16)
                if not data:
                    return
                if has_asked and self._is_to_drop():
                    return
                has_asked = False
                client.sendall(data)
            if client in ready:
                data = client.recv(1 << 16)
                if not data:
                    return
                has_asked = True
                server.sendall(data)

    def _is_to_drop(self) -> bool:
        with self._lock:
            self.answers += 1
            if self.has_hit or self.answers != self._number:
                return False
            self.has_hit, on_drop = True, self._on_drop
        if on_drop is not None:
            on_drop()
        return True
