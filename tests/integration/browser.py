"""Headless Chromium over its debugging pipe: load a page, look at it, ask it; no driver, no network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """One page in a Chromium of its own, offline; collects what it requests and what it complains of."""

    def __init__(self, program: str, profile: Path) -> None:
        down, up = os.pipe(), os.pipe()
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        # Chromium reads commands from descriptor 3 and writes answers to 4; a shell puts the pipes there.
        ends = f'exec "$0" "$@" about:blank 3<&{down[0]} 4>&{up[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", ends, program, *flags], pass_fds=(down[0], up[1]), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(down[0])
        os.close(up[1])
        self._send, self._read, self._rest, self._number = down[1], up[0], b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.call("Network.emulateNetworkConditions", **offline)

    _session = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser is gone"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def open(self, page: Path, scheme: str = "light", width: int = 1400, height: int = 1000, scale: float = 1) -> None:
        """Load a file at a width and in a colour scheme; returns when it is loaded."""
        self.events.clear()
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        shape = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **shape)
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page (evaluated from outside; the page itself has no scripts)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, whole: bool = True) -> bytes:
        """A PNG of the whole page, or of the window."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def requests(self) -> list[str]:
        """URLs that the page asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        logged = [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return logged + [json.dumps(e["params"]) for e in self.events if e.get("method") in kinds]

    def close(self) -> None:
        """End the browser."""
        os.close(self._send)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
