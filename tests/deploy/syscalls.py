"""Run a command under the system calls and address families that a unit allows: syscalls.py SETS FAMILIES WORD ...

What systemd's SystemCallFilter= and RestrictAddressFamilies= do, by the same library (libseccomp). Both are lists,
separated by commas; the caller has given up new privileges.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import socket
import subprocess
import sys

ALLOW, DENY, NO_FAMILY = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 97
EQUAL, GREATER = 4, 6


class Comparison(ctypes.Structure):
    """libseccomp's struct scmp_arg_cmp."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def members(sets: list[str]) -> set[str]:
    """Names of the system calls in systemd's sets."""
    out: set[str] = set()
    for name in sets:
        if name.startswith("@"):
            shown = subprocess.run(
                ["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True
            ).stdout
            lines = [line.strip() for line in shown.splitlines()[1:]]
            out |= members([line for line in lines if line and not line.startswith("#")])
        else:
            out.add(name)
    return out


def confine(sets: list[str], families: list[str]) -> None:
    """Refuse everything else to this process and its children, for good."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(DENY))

    def rule(action: int, call: int, *comparisons: Comparison) -> None:
        given = (Comparison * len(comparisons))(*comparisons)
        if library.seccomp_rule_add_array(context, ctypes.c_uint32(action), call, len(comparisons), given):
            raise OSError(f"no rule for system call {call}")

    for name in sorted(members(sets) - {"socket"}):
        call = library.seccomp_syscall_resolve_name(name.encode())
        if call >= 0:  # (others are of another architecture)
            rule(ALLOW, call)
    known = {int(getattr(socket, family)) for family in families}
    call = library.seccomp_syscall_resolve_name(b"socket")
    for family in range(max(known) + 1):
        rule(ALLOW if family in known else NO_FAMILY, call, Comparison(0, EQUAL, family, 0))
    rule(NO_FAMILY, call, Comparison(0, GREATER, max(known), 0))
    if library.seccomp_load(context):
        raise OSError("the filter cannot be loaded")


if __name__ == "__main__":
    confine(sys.argv[1].split(","), sys.argv[2].split(","))
    os.execv(sys.argv[3], sys.argv[3:])
