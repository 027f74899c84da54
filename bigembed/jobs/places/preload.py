"""What a worker of a job does when it starts."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from typing import Any

PR_SET_PDEATHSIG = 1
ERRORS = "BIGEMBED_WORKER_ERRORS"
"""Variable of the environment: the file that takes what a worker prints on standard error."""


def dask_setup(worker: Any) -> None:
    """Leave the keyboard to the coordinating process, which stops the workers in good order, and do not outlive it.

    What a worker prints as it dies (a traceback of the interpreter, say) does not go to the user of the job.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if worker.nanny and sys.platform == "linux":  # (a worker that is stopped would not see that its nanny is gone)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if file := os.environ.get(ERRORS):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
