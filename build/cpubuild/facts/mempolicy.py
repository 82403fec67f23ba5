"""Ask the kernel for get_mempolicy and mbind and print the outcome; run as a program of its own.

Seccomp may answer such a call with an error, or end the process: only a child can find out.
Arguments: the numbers of the two system calls. Output: two words, ``ok`` or an errno name each.
"""

import ctypes
import errno
import mmap
import sys


def outcome(libc: ctypes.CDLL, number: int, *arguments: object) -> str:
    """Make one system call and name how it ended."""
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *arguments) == 0:
        return "ok"
    code = ctypes.get_errno()
    return errno.errorcode.get(code, str(code))


def main(get_mempolicy: int, mbind: int) -> None:
    """Ask for the policy of this thread, then bind one fresh page to the default policy."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    mode = ctypes.c_int()
    null, zero = ctypes.c_void_p(None), ctypes.c_ulong(0)
    first = outcome(libc, get_mempolicy, ctypes.byref(mode), null, zero, null, zero)
    sys.stdout.write(first + "\n")
    sys.stdout.flush()
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    size = ctypes.c_ulong(mmap.PAGESIZE)
    second = outcome(
        libc, mbind, ctypes.c_void_p(address), size, ctypes.c_int(0), null, zero, ctypes.c_uint(0)
    )
    sys.stdout.write(second + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
