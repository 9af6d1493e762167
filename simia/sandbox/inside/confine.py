"""Confine a worker process before it runs a pack's code: resource limits, and a filter of system calls (seccomp).

Bubblewrap isolates workers from the machine; this module isolates them from each other, since they share a sandbox and its user. Calls
that signal, trace or read other processes, and calls for sockets, new processes and threads, shared memory and namespaces, fail with
EPERM. A seccomp filter needs no privilege and no library: it is a short list of numbers.

A worker that is alone in its sandbox may start programs, signal them and open sockets (of families that its network namespace isolates);
calls with an effect outside its namespaces are still refused.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import platform
import resource
import struct
from collections.abc import Iterable, Sequence

NO_NEW_PRIVS, SECCOMP, DUMPABLE, FILTER = 38, 22, 4, 2
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
NO_SUCH = 0x00050000 | errno.ENOSYS
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06  # instructions of classic BPF

# name: (x86_64, aarch64); None: that machine has no such call
CALLS: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "kcmp": (312, 272), "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "execve": (59, 221),
    "execveat": (322, 281), "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "personality": (135, 92),
    "prlimit64": (302, 261), "setrlimit": (160, 164), "ioperm": (173, None), "iopl": (172, None), "syslog": (103, 116),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "process_mrelease": (448, 448), "io_setup": (206, 0), "io_submit": (209, 2),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
}  # fmt: skip
# Calls that the zygote needs: to fork workers, and for imports of libraries (an event loop's socket pair, asking a program its version).
ZYGOTE = {
    "kill", "fork", "vfork", "clone", "execve", "socketpair", "prlimit64", "setrlimit", "sched_setaffinity", "setpriority",
    "memfd_create",
}  # fmt: skip
# Calls that are refused even to a session that is alone in its sandbox.
EVER = {
    "userfaultfd", "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsmount",
    "mount_setattr", "bpf", "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key",
    "request_key", "init_module", "finit_module", "kexec_load", "personality", "ioperm", "iopl", "syslog",
    "migrate_pages", "move_pages", "process_mrelease", "kcmp", "ptrace", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev",
}  # fmt: skip
# Memory that belongs to no process and no file system of the sandbox, so the supervisor could not count it. A session that is alone gets
# ENOSYS ("no such call"), since programs then use another way.
UNCOUNTED = {"memfd_create", "memfd_secret", "shmget", "msgget", "semget"}
# Calls that use up a quota of the whole machine or of the host's user, or that show which visible files other processes use.
OF_THE_HOST = {
    "io_setup", "io_submit", "inotify_init", "inotify_init1", "inotify_add_watch", "fanotify_init", "fanotify_mark",
}  # fmt: skip
SOCKET, FAMILIES = (41, 198), (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink: a virtual machine's sockets know no namespace
UNIX = 1
# Streams and packets in order: a pair of datagram sockets can write to any address.
SOCKETPAIR, CONNECTED = ((53, 199), (1, 5))
CLONE3 = 435
# name: (x86_64, aarch64), and the second arguments that are refused: a descriptor's owner is signalled by the kernel,
# so who may name an owner and a signal can kill without `kill`.
OWNERS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "fcntl": ((72, 25), (8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    "ioctl": ((16, 29), (0x8901, 0x8902, 0x5452)),  # FIOSETOWN, SIOCSPGRP, FIOASYNC
}
# The same for leases on visible files, which block the host from writing to them, and for notifications of changes in a folder.
LEASES = {"fcntl": ((72, 25), (1024, 1026, 1040))}  # F_SETLEASE, F_NOTIFY, F_SETDELEG
PROCESSES, WHILE_LOADING = 4096, 64  # most processes of one sandbox: of all workers, and while a pack's code loads
SLACK = 256 << 20  # bytes of address space that JSON writers reserve at once; if refused, they crash instead of raising
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class Unconfined(Exception):  # noqa: N818 - a state of the machine
    """No seccomp filter is written for this machine, or the kernel refuses it."""


def set_worker_limits(*, memory: int, files: int, processes: int, cpu: int, size: int = 0) -> None:
    """Set hard limits of this process: memory in bytes beyond what it uses now, descriptors, threads and children, CPU seconds, bytes of
    a file. If it may start programs, its data is limited and not its address space, since some programs reserve gigabytes of that."""
    lower_limits(
        (resource.RLIMIT_DATA, memory + SLACK)
        if processes
        else (resource.RLIMIT_AS, measure_address_space() + memory + SLACK),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, size),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    )


def lower_limits(*limits: tuple[int, int]) -> None:
    """Set soft and hard limits to these values, or to the present hard limits if those are lower."""
    for which, value in limits:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def set_loading_limits(*, memory: int, cpu: int, size: int = 0) -> None:
    """Set the limits of the process that loads a pack's code: memory, CPU seconds, number of processes, bytes of a file."""
    lower_limits(
        (resource.RLIMIT_AS, measure_address_space() + memory) if not size else (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, size),
        (resource.RLIMIT_CORE, 0),
    )
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = PROCESSES if hard == resource.RLIM_INFINITY else min(PROCESSES, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (min(WHILE_LOADING, most), most))


def allow_workers() -> None:
    """After loading, raise the limit of processes to the hard limit, so that the zygote can fork workers."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))


def measure_address_space() -> int:
    """Return the size of this process's address space in bytes: the smallest limit under which one more page can be mapped.

    It is found by trying, since the sandbox has no /proc to read it from. An interpreter maps far more than it uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 46
    try:
        while high - low > 1 << 16:
            middle = (low + high) // 2
            resource.setrlimit(
                resource.RLIMIT_AS, (middle if hard == resource.RLIM_INFINITY else min(middle, hard), hard)
            )
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
                high = middle
            except (OSError, MemoryError):
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def hide_from_processes() -> None:
    """Forbid other processes of the same user to inspect this one and its future children."""
    ctypes.CDLL(None, use_errno=True).prctl(DUMPABLE, 0, 0, 0, 0)


def build_filter_program(*, loading: bool = False, alone: bool = False, unix: bool = True) -> bytes:
    """Build the filter as classic BPF: wrong machine → kill; a listed call → EPERM; clone3 → ENOSYS; anything else → allowed.

    `loading`: for the process that loads a pack, which must fork workers and end them. `alone`: for a session that is alone in its
    sandbox. `unix` False: refuse Unix sockets, for a session that sees folders or the network of the host.
    """
    found = MACHINES.get(platform.machine())
    if found is None:
        raise Unconfined(f"no system call filter is written for {platform.machine()}")
    column, audit = found
    rows = [row for name, row in CALLS.items() if (name in EVER if alone else not (loading and name in ZYGOTE))]
    numbers = sorted(number for row in rows if (number := row[column]) is not None)
    absent = sorted(number for name in UNCOUNTED | OF_THE_HOST if alone and (number := CALLS[name][column]) is not None)
    program = [
        encode_instruction(LOAD, 4),  # the machine
        encode_instruction(EQUAL, audit, 1, 0),
        encode_instruction(RETURN, KILL),
        encode_instruction(LOAD, 0),  # the call's number
        encode_instruction(AT_LEAST, 0x40000000, 0, 1),  # x32 calls have numbers of their own: refused as a whole
        encode_instruction(RETURN, REFUSE),
        *return_for([CLONE3], NO_SUCH),  # libraries fall back to clone, whose number is on the list
    ]
    if alone:
        families = FAMILIES if unix else [family for family in FAMILIES if family != UNIX]
        program += check_argument(SOCKET[column], 0, refuse_others(families))
    if not unix or (loading and not alone):
        kind = encode_instruction(AND, 0xF)  # the low bits of the second argument are the socket's type
        program += check_argument(SOCKETPAIR[column], 1, [kind, *refuse_others(CONNECTED)])
    for both, values in (*LEASES.values(), *(() if alone else OWNERS.values())):
        program += check_argument(both[column], 1, return_for(values, REFUSE))
    program += [*return_for(absent, NO_SUCH), *return_for(numbers, REFUSE), encode_instruction(RETURN, ALLOW)]
    return b"".join(program)


def encode_instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Encode an instruction. `yes`, `no`: how many instructions a comparison skips if it is true, and if it is false."""
    return struct.pack("=HBBI", code, yes, no, value)


def return_for(values: Iterable[int], action: int) -> list[bytes]:
    """End the filter with an action if the loaded value is one of these."""
    return [
        each
        for value in values
        for each in (encode_instruction(EQUAL, value, 0, 1), encode_instruction(RETURN, action))
    ]


def refuse_others(values: Sequence[int]) -> list[bytes]:
    """Refuse the call if the loaded value is none of these."""
    skips = [encode_instruction(EQUAL, value, len(values) - n) for n, value in enumerate(values)]
    return [*skips, encode_instruction(RETURN, REFUSE)]


def check_argument(number: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """Run checks on the low half of a call's argument, then load the call's number again. Other calls skip this part."""
    part = [encode_instruction(LOAD, 16 + 8 * argument), *checks, encode_instruction(LOAD, 0)]
    return [encode_instruction(EQUAL, number, 0, len(part)), *part]


def install_filter(program: bytes) -> None:
    """Install the filter for this process, for good. Raises `Unconfined` if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    held = Program(len(program) // 8, program)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.byref(held), 0, 0):
        raise Unconfined(f"the kernel refused the system call filter (errno {ctypes.get_errno()})")
