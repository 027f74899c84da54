"""What a worker of a job does when it starts."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from typing import Any

PR_SET_PDEATHSIG = 1


def dask_setup(worker: Any) -> None:
    """Leave the keyboard to the coordinating process, which stops the workers in good order; and do not outlive it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if worker.nanny and sys.platform == "linux":  # (a worker that is stopped would not see that its nanny is gone)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
