"""A real browser for tests: headless Chromium over the DevTools protocol, through two pipes. No driver, no library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import time
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next((p for n in names if (p := shutil.which(n))), None)


class Chromium:
    """One browser with one tab."""

    def __init__(self, profile: pathlib.Path) -> None:
        program = find_chromium()
        assert program is not None
        child_in, self._to = (_high(fd) for fd in os.pipe())
        self._from, child_out = (_high(fd) for fd in os.pipe())
        null = os.open(os.devnull, os.O_RDWR)
        # The protocol wants the pipes to be file descriptors 3 and 4 of the browser.
        actions = [
            (os.POSIX_SPAWN_DUP2, a, b) for a, b in ((null, 0), (null, 1), (null, 2), (child_in, 3), (child_out, 4))
        ]
        args = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._pid = os.posix_spawn(program, args, dict(os.environ), file_actions=actions, setpgroup=0)
        for fd in (child_in, child_out, null):
            os.close(fd)
        self._buffer, self._id, self._session = b"", 0, ""
        self.errors: list[str] = []  # exceptions and console errors of the page
        self.requests: list[str] = []  # every address the page asked for
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, timeout_s: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser did not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("the browser is gone")
            self._buffer += data
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, p: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(p["exceptionDetails"].get("exception", {}).get("description", p)))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.errors.append(str(p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.errors.append(p["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])

    def open(self, page: pathlib.Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait for it; errors and requests start from nothing."""
        self.open_url(page.resolve().as_uri(), width, height, dark)

    def open_url(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The same for any address."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 30
        while self.js("document.readyState + location.protocol") != f"complete{url.split(':')[0]}:":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.02)

    def js(self, expression: str) -> Any:
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", expression))
        return r["result"].get("value")

    def hover(self, selector: str, across: float = 0.5) -> None:
        """Move the real pointer onto an element."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.js(f"{find}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.js(
            f"(() => {{ const r = {find}.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
        )
        x, y = box[0] + box[2] * across, box[1] + box[3] / 2
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        code = {
            "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35,
            "Escape": 27, "Enter": 13, " ": 32,
        }[key]  # fmt: skip
        # A key with a text is pressed as people do: the browser then sends keypress, too, which activates buttons.
        text = {"Enter": {"text": "\r"}}.get(key, {})
        for kind, more in (("keyDown", text) if text else ("rawKeyDown", {}), ("keyUp", {})):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code="Space" if key == " " else key,
                windowsVirtualKeyCode=code,
                **more,
            )

    def screenshot(self, path: pathlib.Path, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser, its helpers with it: they are a process group of their own."""
        os.close(self._to)
        os.close(self._from)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _high(fd: int) -> int:
    """The same pipe under a number that cannot collide with 3 and 4."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return high
