# SPDX-License-Identifier: Apache-2.0
"""The process that talks to the GPU: reads requests from standard input, answers on standard output.

A lost context ends it after the answer; the parent starts another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO, Any

from porter.verify.gpu.driver import Driver, DriverError, Unavailable
from porter.verify.gpu.frames import FrameError, read_frame, write_frame

Answer = tuple[dict[str, Any], bytes]


class Server:
    """Answers requests with a driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.modules: dict[int, Any] = {}
        self.operations: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "info": lambda head, data: (self.driver.info(), b""),
            "allocate": lambda head, data: ({"address": self.driver.allocate(head["size"])}, b""),
            "release": self._release,
            "write": self._write,
            "read": lambda head, data: ({}, self.driver.read(head["address"], head["size"])),
            "fill": self._fill,
            "load": self._load,
            "variable": self._variable,
            "tensor_map": lambda head, data: ({}, self.driver.tensor_map(head["map"])),
            "launch": self._launch,
        }

    def answer(self, head: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes, bool]:
        """(head, bytes, whether to go on)."""
        try:
            result, payload = self.operations[head["op"]](head, data)
            return {"ok": True, **result}, payload, True
        except DriverError as error:
            body = {"ok": False, "call": error.call, "error": error.name, "text": str(error), "fatal": error.fatal}
            return body, self.driver.report() if head["op"] == "launch" else b"", not error.fatal

    def _release(self, head: dict[str, Any], data: bytes) -> Answer:
        for module in self.modules.values():
            self.driver.unload(module)
        self.modules.clear()
        self.driver.release_all()
        return {}, b""

    def _write(self, head: dict[str, Any], data: bytes) -> Answer:
        self.driver.write(head["address"], data)
        return {}, b""

    def _fill(self, head: dict[str, Any], data: bytes) -> Answer:
        self.driver.fill(head["address"], head["value"], head["size"])
        return {}, b""

    def _load(self, head: dict[str, Any], data: bytes) -> Answer:
        number = len(self.modules) + 1
        self.modules[number] = self.driver.load(data)
        return {"module": number}, b""

    def _variable(self, head: dict[str, Any], data: bytes) -> Answer:
        address, size = self.driver.variable(self.modules[head["module"]], head["name"])
        return {"address": address, "size": size}, b""

    def _launch(self, head: dict[str, Any], data: bytes) -> Answer:
        parameters, at = [], 0
        for size in head["parameters"]:
            parameters.append(data[at : at + size])
            at += size
        self.driver.clear_report()
        milliseconds = self.driver.launch(
            self.modules[head["module"]], head["entry"], head["grid"], head["block"], head["cluster"],
            head["shared"], parameters,
        )  # fmt: skip
        return {"milliseconds": milliseconds}, self.driver.report()


def serve(requests: IO[bytes], answers: IO[bytes], make: Callable[[], Driver] = Driver) -> int:
    """Answer until the requests end; the exit status of the process."""
    try:
        server = Server(make())
    except Unavailable as reason:
        write_frame(answers, {"ok": False, "unavailable": str(reason)})
        return 0
    except DriverError as error:
        write_frame(answers, {"ok": False, "unavailable": f"{error.call}: {error}"})
        return 0
    write_frame(answers, {"ok": True, **server.driver.info()})
    while True:
        try:
            head, data = read_frame(requests)
        except FrameError:
            return 0
        result, payload, go_on = server.answer(head, data)
        write_frame(answers, result, payload)
        if not go_on:
            return 3


def main() -> None:
    # Whatever libraries print must not get between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    status = serve(sys.stdin.buffer, answers)
    # A lost context may hang in the driver's own cleanup.
    answers.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
