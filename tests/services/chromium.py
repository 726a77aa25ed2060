"""Chromium without a window, driven over a pipe by its own protocol: pages, keys, pictures."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

import pytest

# Without the network of a browser that updates itself and asks what is new.
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


def binary() -> str:
    """Return the program; Debian's package is installed if that is missing, and nothing else can be done."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, "timeout": 500}
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(install, env=environment, check=False, **quiet).returncode:  # type: ignore[call-overload]
            subprocess.run(["apt-get", "update", "-q"], check=True, **quiet)  # type: ignore[call-overload]
            subprocess.run(install, env=environment, check=True, **quiet)  # type: ignore[call-overload]
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no Chromium, and no right to install the package chromium")
    return found


class Chromium:
    """A browser with one page."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="chromium-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads its commands from descriptor 3, and answers on 4.
        script = f'exec 3<&{to_read} 4>&{to_write}; exec "$0" "$@"'
        options = [*_QUIET, f"--user-data-dir={self._folder}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, binary(), *options],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._answers: Queue[dict[str, Any]] = Queue()
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self._session: str | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        rest = b""
        while data := os.read(self._read, 1 << 20):
            *whole, rest = (rest + data).split(b"\0")
            for one in whole:
                self._answers.put(json.loads(one))
        os.close(self._read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except Empty:
            raise AssertionError("Chromium does not answer") from None
        if "method" in answer:
            self._events.append(answer)
        return answer

    def open(self, url: str) -> None:
        """Open a page, and wait until it has loaded."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for_load()

    def wait_for_load(self) -> None:
        """Wait until the page has loaded that was asked for last."""
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._next(60)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true in the page."""
        waiting = (
            "new Promise((done, fail) => {{ const end = Date.now() + 60000; const look = () => {{ let v; "
            "try {{ v = {0}; }} catch (e) {{ v = null; }} if (v) done(true); else if (Date.now() > end) fail({1}); "
            "else setTimeout(look, 50); }}; look(); }})"
        )
        self.evaluate(waiting.format(script, json.dumps(f"waited in vain for {script}")))

    def errors(self) -> list[str]:
        """Return what the page's console says: scripts that failed, and what a policy refused."""
        logged = [e["params"]["entry"] for e in self._events if e["method"] == "Log.entryAdded"]
        thrown = [str(e["params"]) for e in self._events if e["method"] == "Runtime.exceptionThrown"]
        return [f"{one['source']}: {one['text']}" for one in logged if one["level"] == "error"] + thrown

    def requested(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        return [e["params"]["request"]["url"] for e in self._events if e["method"] == "Network.requestWillBeSent"]

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def show(self, *, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        """Set the size of the window, and whether the system is light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Keep a picture of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
