"""A driver of verl must not outlive who started it: the next start would run beside it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tadpole.engines.verl import parent

SRC = str(Path(parent.__file__).parents[3])
DRIVER = (
    "import os, sys, time; from tadpole.engines.verl.parent import end_with; "
    "end_with(int(sys.argv[2])); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
)
# Started as the stage does it: by the runner of processes, from a thread, in a session of its own.
STARTER = (
    "import os, sys; from tadpole import process; "
    "process.run([sys.executable, '-c', *sys.argv[1:], str(os.getpid())], timeout=60)"
)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_driver_ends_with_who_started_it(tmp_path):
    said = tmp_path / "pid"
    env = {**os.environ, "PYTHONPATH": SRC}
    starter = subprocess.Popen([sys.executable, "-c", STARTER, DRIVER, str(said)], env=env)
    deadline = time.monotonic() + 60
    while not (said.exists() and said.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(said.read_text())
    assert running(pid)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(pid)


def test_a_driver_whose_parent_is_gone_does_not_begin(tmp_path):
    late = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "pid"), "1"],
        env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, check=False,
    )  # fmt: skip
    assert late.returncode == 1 and b"is gone" in late.stderr
    assert not (tmp_path / "pid").exists()
