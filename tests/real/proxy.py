"""A TCP proxy on loopback whose connections a test can cut, freeze and slow down."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 65536


class Proxy:
    """Forwards everything to one server, from a thread of its own. Use `proxied`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        """Seconds by which each piece is late."""
        self.port = 0

    def cut(self) -> None:
        """Reset every connection; new ones are served."""
        self._call(lambda: [writer.transport.abort() for writer in tuple(self._writers)])

    def freeze(self) -> None:
        """Forward nothing any more, and end nothing: a black hole."""
        self._call(self._flowing.clear)

    def thaw(self) -> None:
        self._call(self._flowing.set)

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """The same access, but through here."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path.write_text(json.dumps(config))
        return path

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await over.wait()
            for writer in tuple(self._writers):
                writer.transport.abort()

    def run(self, ready: threading.Event, over: asyncio.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.serve(ready, over))
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def _call(self, what: object) -> None:
        self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        finally:
            self._writers -= pair
            for each in pair:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await asyncio.sleep(self.delay)
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
            await self._flowing.wait()
            writer.write_eof()


@contextmanager
def proxied(server: str) -> Generator[Proxy]:
    """A proxy in front of `https://host:port`, for as long as the block lasts."""
    host, _, port = server.removeprefix("https://").partition(":")
    proxy = Proxy(host, int(port))
    ready, over = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=proxy.run, args=(ready, over), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield proxy
    finally:
        proxy._call(over.set)
        thread.join(30)
