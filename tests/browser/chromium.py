"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp


class Page:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        """Errors and violations that the browser reported."""
        self.requests: list[dict[str, Any]] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            told = await self._socket.receive_json(timeout=30)
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    async def open(self, url: str) -> None:
        await self.send("Page.enable")
        await self.send("Runtime.enable")
        await self.send("Log.enable")
        await self.send("Network.enable")
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """Returns the value of an expression; of a promise, what it resolves to."""
        got = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    async def until(self, condition: str, tries: int = 200) -> None:
        for _ in range(tries):
            if await self.value(condition):
                return
            await asyncio.sleep(0.1)
        text = await self.value("document.body.innerText")
        raise AssertionError(f"never true: {condition}; the page says: {text}")

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def permit_clipboard(self, *, permitted: bool) -> None:
        for name in ("clipboard-read", "clipboard-write"):
            setting = "granted" if permitted else "denied"
            await self.send("Browser.setPermission", permission={"name": name}, setting=setting)

    async def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """`whole`: also what is below the window."""
        got = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(got["data"]))

    def _note(self, told: dict[str, Any]) -> None:
        match told.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]))
            case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                self.complaints.append(told["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"])
            case _:
                pass


@asynccontextmanager
async def browser(program: Path, folder: Path) -> AsyncGenerator[Page]:
    """Starts the browser and a page in it; ends it afterwards."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        "--no-sandbox",
        "--disable-gpu",
        "--ignore-certificate-errors",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = await answer.json()
            url = next(one["webSocketDebuggerUrl"] for one in pages if one["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _port(file: Path) -> int:
    for _ in range(300):
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.1)
    raise AssertionError("the browser did not start")
