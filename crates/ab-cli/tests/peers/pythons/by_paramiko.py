"""paramiko: large files both ways, every call about files, commands, and many requests at once.

    python by_paramiko.py HOST:PORT ROOT BESIDE
"""

import hashlib
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

ADDRESS, ROOT, BESIDE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
HOST, PORT = ADDRESS.split(":")
LARGE = 64 * 1024 * 1024
# What it would use by itself is slow where the daemon is not optimised.
SLOW = {"ciphers": ["aes128-ctr", "aes192-ctr", "aes256-ctr"]}


def is_equal(found, wanted, what):
    assert found == wanted, f"{what}: {found!r} is not {wanted!r}"


def fails(call, kind, what):
    try:
        found = call()
    except kind:
        return
    raise AssertionError(f"{what} answered {found!r}")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def large_files(sftp):
    """`get` asks for the whole file at once, in parts of 32 KiB; `put` waits for no answer."""
    here, there, back = BESIDE / "large", ROOT / "large", BESIDE / "back"
    with open(here, "wb") as file:
        for _ in range(LARGE // (1 << 20)):
            file.write(os.urandom(1 << 20))
    is_equal(sftp.put(str(here), "large").st_size, LARGE, "the size that was put")
    is_equal(digest(there), digest(here), "a large file that was put")
    sftp.get("large", str(back))
    is_equal(digest(back), digest(here), "a large file that was got")


def pieces(sftp):
    """Parts of a file, here and there."""
    with sftp.open("large", "rb") as file, open(BESIDE / "large", "rb") as known:
        wanted = [(number * 1_000_003 % LARGE, 70_000) for number in range(100)]
        for (offset, length), found in zip(wanted, file.readv(wanted), strict=True):
            known.seek(offset)
            assert found == known.read(length), f"{length} bytes at {offset}"
    with sftp.open("parts", "w") as file:
        file.set_pipelined(True)
        for number in range(2_000):
            file.write(f"{number:07}\n")
    expected = "".join(f"{number:07}\n" for number in range(2_000))
    is_equal((ROOT / "parts").read_text(), expected, "2000 writes without waiting")
    with sftp.open("parts", "r+") as file:
        file.seek(8)
        file.write("middle!")
        file.seek(-8, file.SEEK_END)
        is_equal(file.read(), b"0001999\n", "the end of a file")
    with sftp.open("parts", "a") as file:
        file.write("end\n")
    changed = (ROOT / "parts").read_text()
    is_equal(changed[8:16] + changed[-4:], "middle!\nend\n", "changes in place")
    fails(lambda: sftp.open("parts", "x"), OSError, "a new file that is there")


def files(sftp):
    is_equal(sorted(sftp.listdir("sub")), ["file"], "listing")
    attributes = {entry.filename: entry for entry in sftp.listdir_iter(".", read_aheads=20)}
    assert stat.S_ISDIR(attributes["sub"].st_mode), "a directory in a listing"
    is_equal(attributes["there.txt"].st_size, 5, "a size in a listing")
    sftp.mkdir("made")
    assert stat.S_ISDIR(sftp.stat("made").st_mode)
    fails(lambda: sftp.mkdir("made"), OSError, "mkdir of what is there")
    for number in range(300):
        sftp.open(f"made/{number}", "w").close()
    is_equal(len(sftp.listdir("made")), 300, "a long listing")
    is_equal(len(list(sftp.listdir_iter("made", read_aheads=50))), 300, "one read ahead")
    sftp.rename("made/0", "made/zero")
    sftp.posix_rename("made/zero", "made/1")
    is_equal(sftp.stat("made/1").st_size, 0, "after a rename")
    fails(lambda: sftp.stat("made/zero"), FileNotFoundError, "the old name")
    sftp.chmod("there.txt", 0o600)
    is_equal(stat.S_IMODE(sftp.stat("there.txt").st_mode), 0o600, "the mode")
    sftp.utime("there.txt", (1_000_000_000, 1_000_000_001))
    is_equal(sftp.stat("there.txt").st_mtime, 1_000_000_001, "the time")
    sftp.truncate("there.txt", 2)
    is_equal(sftp.stat("there.txt").st_size, 2, "the size after a cut")
    sftp.symlink("there.txt", "link")
    is_equal(sftp.readlink("link"), "there.txt", "a link")
    assert stat.S_ISLNK(sftp.lstat("link").st_mode) and stat.S_ISREG(sftp.stat("link").st_mode)
    sftp.chdir("sub")
    is_equal(sftp.open("file").read(), b"x", "a path from where one is")
    sftp.chdir("/")
    is_equal(sftp.normalize("sub/../there.txt"), "/there.txt", "a path in full")
    sftp.remove("link")
    for name in sftp.listdir("made"):
        sftp.remove(f"made/{name}")
    sftp.rmdir("made")
    fails(lambda: sftp.listdir("made"), FileNotFoundError, "a directory that is gone")
    fails(lambda: sftp.open("../outside", "w"), OSError, "a file outside")


def run(client, command, given=b""):
    into, out, err = client.exec_command(command)
    into.write(given)
    into.channel.shutdown_write()
    said, wrong = out.read(), err.read()
    return out.channel.recv_exit_status(), said, wrong


def commands(client):
    is_equal(run(client, "echo out; echo err >&2; exit 7"), (7, b"out\n", b"err\n"), "a command")
    is_equal(run(client, "true"), (0, b"", b""), "success")
    is_equal(run(client, "wc -c", b"x" * 1_000_000), (0, b"1000000\n", b""), "1 MB of input")
    code, said, _ = run(client, "head -c 3000000 /dev/zero")
    is_equal((code, len(said)), (0, 3_000_000), "3 MB of output")
    is_equal(run(client, "sudo ls")[0], 126, "a command that is refused")
    with ThreadPoolExecutor(16) as workers:
        codes = workers.map(lambda number: run(client, f"exit {number}")[0], range(64))
        is_equal(list(codes), list(range(64)), "64 commands, 16 at a time")


def at_once(client):
    """Threads that share one connection, each with a session of its own."""

    def work(number):
        with client.open_sftp() as sftp:
            for part in range(20):
                with sftp.open(f"thread-{number}", "a") as file:
                    file.write(f"{part}\n")
            with sftp.open(f"thread-{number}") as file:
                return file.read()

    expected = "".join(f"{part}\n" for part in range(20)).encode()
    with ThreadPoolExecutor(8) as workers:
        assert set(workers.map(work, range(8))) == {expected}


with paramiko.SSHClient() as client:
    # The key was made a moment ago.
    client.set_missing_host_key_policy(paramiko.MissingHostKeyPolicy())
    who = {"username": "agent", "allow_agent": False, "look_for_keys": False}
    try:
        client.connect(HOST, int(PORT), password="wrong", **who)
        raise AssertionError("a wrong password was taken")
    except paramiko.AuthenticationException:
        pass
    client.connect(HOST, int(PORT), password="secret", disabled_algorithms=SLOW, **who)
    with client.open_sftp() as sftp:
        large_files(sftp)
        pieces(sftp)
    client.connect(HOST, int(PORT), password="secret", **who)
    with client.open_sftp() as sftp:
        files(sftp)
    commands(client)
    at_once(client)
print("paramiko")
