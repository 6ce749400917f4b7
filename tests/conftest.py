"""What holds for all tests."""

import gc
import os
import signal

# The models of the tests are so small that a second thread only gets in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every
# program that a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of cycles need walk it again and again."""
    gc.collect()
    gc.freeze()
