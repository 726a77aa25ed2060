"""The most memory that this process has held at once."""

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the peak of this program alone.

    `ru_maxrss` of Linux is also that of the parent at the time of the fork: a small program that a large test session
    starts would be as large as the session.
    """
    if _STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
