"""The other end of a connection of the server."""

import asyncio
import re

STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3})", re.MULTILINE)


class Client(asyncio.Transport):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 4711)})
        self.received = bytearray()
        self.is_open = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.received += data

    def writelines(self, list_of_data: object) -> None:
        for data in list_of_data:  # type: ignore[attr-defined]
            self.write(data)

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        self.is_open = False

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    @property
    def statuses(self) -> list[int]:
        return [int(code) for code in STATUS.findall(bytes(self.received))]
