"""A real Chromium, driven over its own debugging protocol: pages opened, clicked, typed into, looked at."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 30.0
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " "), "Backspace": (8, "")}
"""Keys that are no letters: their codes, and what they type."""


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._session = ""
        self.troubles: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a protocol call; what the page reports meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_str(json.dumps(message))
        while True:
            answer = json.loads((await self._socket.receive(PATIENCE_S)).data)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.troubles.append(json.dumps(answer["params"]["exceptionDetails"])[:500])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    async def open(self, url: str, width: int, height: int) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        await self.call("Runtime.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.run(script)):
                await asyncio.sleep(0.05)
        return found

    async def sees(self, text: str) -> None:
        await self.until(f"!!document.body?.innerText.includes({json.dumps(text)})")

    async def click(self, text: str, within: str = "body") -> None:
        """Click the button or link with this text, once it is there."""
        find = (
            f"[...(document.querySelector({json.dumps(within)})?.querySelectorAll('button, a') ?? [])]"
            f".find((each) => each.innerText.trim() === {json.dumps(text)} && !each.disabled)"
        )
        await self.until(f"!!{find} && ({find}.click(), true)")

    async def fill(self, name: str, value: str) -> None:
        await self.until(f"!!document.querySelector('dialog [name={name}]')")
        await self.run(f"document.querySelector('dialog [name={name}]').value = {json.dumps(value)}")

    async def key(self, key: str, *, shift: bool = False) -> None:
        """Press a key as somebody at the keyboard would: the browser's own handling included."""
        code, text = KEYS.get(key) or (ord(key.upper()) if key.isalnum() else 0, key)
        press = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **press)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **press)

    async def type(self, text: str) -> None:
        for each in text:
            await self.key(each)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def browsing(program: str, profile: Path, url: str, width: int = 1280, height: int = 900) -> AsyncIterator[Page]:
    """A page at `url` in a browser of its own."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}")
    process = await asyncio.create_subprocess_exec(
        program, *flags, "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while b"DevTools listening on" not in (line := await process.stderr.readline()):
                assert line, "the browser ended before it listened"
        address = line.decode().rpartition(" ")[2].strip()
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            page = Page(socket)
            await page.open(url, width, height)
            yield page
    finally:
        process.kill()
        await process.wait()
