"""A container, as a program: its first process in mount and process namespaces of its own, and this one, which waits for it and
ends as it ended (above 128: by a signal).

The first process builds the file system that the argument describes, drops the privileges that the container must not have, and
becomes its command. A setup failure is reported on standard error and ends it with the status 128, as a runtime does. All of it
ends with the process that started this, whenever that is: the kernel kills this process and then the first one with its whole
namespace. Only a command that changes its own user escapes, since the kernel then forgets to kill it.
"""

import ctypes
import json
import os
import pathlib
import select
import signal
import socket
import stat
import sys

CANNOT_START = 128
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 0x00020000, 0x04000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
SCRATCH_BYTES = "256m"
DEVICES = ("null", "zero", "full", "random", "urandom")
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind=None, flags=0, options=None):
    words = [None if it is None else os.fsencode(it) for it in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), None if options is None else options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"can't mount {source} on {target}: {os.strerror(number)}")


def bind(source, target, read_only):
    """What is open as `source` inside; where it goes is made. Only after the change of root: a link of the image, such as
    /var/run, would lead out of it."""
    target = pathlib.Path(target)
    if stat.S_ISDIR(os.fstat(source).st_mode):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        # One that covers a read-only file of the image can't be touched.
        if not target.exists():
            target.touch()
    mount(f"/proc/self/fd/{source}", target, flags=MS_BIND | MS_REC)
    if read_only:
        mount(None, target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.close(source)


def enter(config):
    """Makes the container's root and enters it: what it writes is in memory and goes with it, below are the image's
    layers."""
    scratch = pathlib.Path(config["scratch"])
    mount("tmpfs", scratch, "tmpfs", options=f"size={SCRATCH_BYTES},mode=755")
    upper, work, root = (scratch / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir()
    mount("overlay", root, "overlay", options=f"lowerdir={':'.join(config['layers'])},upperdir={upper},workdir={work}")
    binds = [(f"/dev/{name}", f"/dev/{name}", False) for name in DEVICES] + [("/sys", "/sys", True)]
    binds += [(it["source"], it["target"], it["read_only"]) for it in config["binds"]]
    opened = [(os.open(source, os.O_PATH), target, read_only) for source, target, read_only in binds]
    os.chroot(root)
    os.chdir("/")
    for name in ("proc", "dev"):
        os.makedirs(f"/{name}", exist_ok=True)
    mount("proc", "/proc", "proc")
    mount("tmpfs", "/dev", "tmpfs", options="size=1m,mode=755")
    os.symlink("/proc/self/fd", "/dev/fd")
    os.mkdir("/dev/shm")
    os.chmod("/dev/shm", 0o1777)
    for it in opened:
        bind(*it)
    if config["read_only"]:
        mount(None, "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def end_with_parent():
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't end with who started it")


def unshare(hostname):
    if libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"can't make namespaces, which needs root: {os.strerror(number)}")
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    # By which it finds its own address in its /etc/hosts.
    socket.sethostname(hostname)


def main():
    config = json.loads(pathlib.Path(sys.argv[1]).read_text())
    try:
        end_with_parent()
        # Who was gone before that is not noticed by the kernel.
        if os.getppid() != config["parent"]:
            raise OSError("who started it has ended")
        unshare(config["hostname"])
    except OSError as error:
        print(f"the container can't be started: {error}", file=sys.stderr)
        sys.exit(CANNOT_START)
    # A process cannot watch a parent outside of its namespace; the closed pipe shows that it ended.
    alive, ours = os.pipe()
    # The first process of the new namespace is our child.
    child = os.fork()
    if child == 0:
        os.close(ours)
        become(config, alive)
    os.close(alive)
    _, how = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(how)
    os._exit(code if code >= 0 else 128 - code)


def become(config, alive):
    try:
        end_with_parent()
        if has_ended(alive):
            os._exit(CANNOT_START)
        enter(config)
        os.chdir(config["workdir"])
        os.setgroups(config["groups"])
        os.setgid(config["gid"])
        os.setuid(config["uid"])
        end_with_parent()
        if has_ended(alive):
            os._exit(CANNOT_START)
        if config["no_new_privileges"]:
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # Python ignores these two, and so would the command.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execvpe(config["argv"][0], config["argv"], config["env"])
    except OSError as error:
        print(f"the container can't be started: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT_START)


def has_ended(other_end):
    poll = select.poll()
    poll.register(other_end, select.POLLHUP)
    return bool(poll.poll(0))


if __name__ == "__main__":
    main()
