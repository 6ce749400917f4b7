"""Records one run, from the issue to the commit, as a person sees it: asciinema's format 2.

``PYTHONPATH=.:src python tests/workbench/recording.py OUT.cast [HOME]``: a shell on a terminal of
its own, real keys, real programs and the times at which they spoke. Only the model's words are
scripted. Needs the package index; ``HOME`` becomes the person's home directory.
"""

import codecs
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from test_real_repositories import CASES, told, unpacked

from tests.chat_server import Server, completion

COLUMNS, ROWS = 100, 40
KEY_SECONDS = 0.04  # between two keys
MOST_SECONDS = 1200.0  # for anything to be said
ASKED = "leave it undecided: "
ISSUE = "FIFOCache throws out the entry that came last"
SOLVE = f'tadpole solve "{ISSUE}" --model openai:scripted --test "pytest tests/test_fifo.py"'
APPLY = "tadpole apply --branch fix/fifo"
LOG = "git --no-pager log -2 fix/fifo"


class Terminal:
    """A shell on a terminal, everything that appears on it, and when."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.text = ""
        self._seen, self._begun = 0, time.monotonic()
        self._pid, self._leader = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                data = os.read(self._leader, 1 << 16)
            except OSError:  # the shell has ended
                return
            if text := decoder.decode(data):
                self.events.append((round(time.monotonic() - self._begun, 3), "o", text))
                self.text += text

    def until(self, words: str) -> None:
        """Wait until ``words`` appear after what was last waited for."""
        late = time.monotonic() + MOST_SECONDS
        while (at := self.text.find(words, self._seen)) < 0:
            if time.monotonic() > late:
                raise TimeoutError(f"{words!r} did not appear:\n{self.text[-2000:]}")
            time.sleep(0.02)
        self._seen = at + len(words)

    def type(self, words: str, pause: float = 0.6) -> None:
        """Press the keys of ``words`` and return, after a look at what is there."""
        time.sleep(pause)
        for key in f"{words}\r":
            os.write(self._leader, key.encode())
            time.sleep(KEY_SECONDS)

    def end(self) -> None:
        """The shell has no more to do."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._listener.join(5.0)
        os.close(self._leader)


def environment(home: Path, address: str) -> dict[str, str]:
    """What the shell sees: nothing of the caller's but the programs and the sources."""
    keys = home / ".inputrc"
    keys.write_text("set enable-bracketed-paste off\n")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "HOME": str(home),
        "USER": "somebody",
        "LOGNAME": "somebody",
        "INPUTRC": str(keys),
        "PS1": "$ ",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": address,
    }


def record(home: Path) -> Terminal:
    """The run, once, in a repository below ``home``."""
    case = CASES[-1]
    fetched = home / "fetched"
    fetched.mkdir()
    root = unpacked(case, fetched).rename(home / "cachetools")
    python = root / ".venv/bin/python"
    subprocess.run(["/usr/bin/python3", "-m", "venv", root / ".venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "pytest"], check=True)
    server = Server()
    wrong, right = (text.splitlines()[0] for text in (case.wrong, case.right))
    test = "python -m pytest -q -p no:cacheprovider tests/test_fifo.py 2>/dev/null | tail -3"
    server.script = [
        told("Bash", command=f"grep -n 'class FIFOCache' {case.file}"),
        told("Edit", file_path=case.file, old_string=wrong, new_string=right),
        told("Bash", command=test),
        completion("popitem() took the newest entry; it takes the oldest one now."),
    ]
    terminal = Terminal(root, environment(home, server.url))
    try:
        terminal.until("$ ")
        terminal.type(SOLVE)
        terminal.until(ASKED)
        terminal.type("a", pause=4.0)
        for command in (APPLY, LOG):
            terminal.until("\n$ ")
            terminal.type(command)
        terminal.until("\n$ ")
    finally:
        terminal.end()
        server.shutdown()
        server.server_close()
    return terminal


def main(out: str, home: str = "") -> None:
    """Record to ``out``."""
    place = Path(home or tempfile.mkdtemp(prefix="recording-"))
    place.mkdir(exist_ok=True)
    try:
        terminal = record(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    title = "tadpole solve, review and apply"
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title}
    lines = [json.dumps(head), *(json.dumps(event) for event in terminal.events)]
    Path(out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
