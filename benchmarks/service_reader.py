"""A process that reads flows over several connections at once, as many clients would: its order is JSON on stdin.

The requests are made beforehand and the answers are only measured by their length, so that the client takes little of
the processors that the service needs.
"""

import json
import random
import socket
import sys
import threading
import time
from typing import Final

_RECEIVED_MAX: Final = 1 << 16


def main() -> None:
    order = json.loads(sys.stdin.read())
    count, share = order["flows"], order["requests"] // order["connections"]
    failed: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            chance = random.Random(seed)
            numbers = [chance.randrange(1, count) for _ in range(share)]
            _read(order["port"], [f"group{number // order['group_flows']}/flow{number}" for number in numbers])
        except BaseException as error:  # noqa: BLE001  the main thread tells it
            failed.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(order["connections"])]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken_s = time.monotonic() - begun
    if failed:
        raise failed[0]
    print(json.dumps([{"per_s": share * len(threads) / taken_s, "client_cpu_s": time.process_time()}]))


def _read(port: int, keys: list[str]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for key in keys:
            connection.sendall(f"GET /api/v1/flows/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            _receive_answer(connection)


def _receive_answer(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data.decode(errors="replace"))
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    missing = int(length.partition(b":")[2]) - len(body)
    while missing > 0:
        missing -= len(_receive(connection))


def _receive(connection: socket.socket) -> bytes:
    if not (part := connection.recv(_RECEIVED_MAX)):
        raise RuntimeError("the service closed the connection")
    return part


if __name__ == "__main__":
    main()
