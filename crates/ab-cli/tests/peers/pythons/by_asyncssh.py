"""asyncssh: large files both ways with 128 requests at once, whole trees, commands, a terminal.

    python by_asyncssh.py HOST:PORT ROOT BESIDE
"""

import asyncio
import hashlib
import os
import sys
from pathlib import Path

import asyncssh

ADDRESS, ROOT, BESIDE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
HOST, PORT = ADDRESS.split(":")
LARGE = 64 * 1024 * 1024


def is_equal(found, wanted, what):
    assert found == wanted, f"{what}: {found!r} is not {wanted!r}"


async def fails(call, kind, what):
    try:
        found = await call
    except kind:
        return
    raise AssertionError(f"{what} answered {found!r}")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def large_files(sftp):
    here, there, back = BESIDE / "large", ROOT / "large", BESIDE / "back"
    for size, depth, block in [(LARGE, 128, -1), (LARGE // 4, 512, 16 * 1024)]:
        with open(here, "wb") as file:
            for _ in range(size // (1 << 20)):
                file.write(os.urandom(1 << 20))
        options = {"max_requests": depth, "block_size": block}
        await sftp.put(str(here), "large", **options)
        is_equal(digest(there), digest(here), f"put, {options}")
        await sftp.get("large", str(back), **options)
        is_equal(digest(back), digest(here), f"got, {options}")
        there.unlink()
        back.unlink()


async def trees(sftp):
    """A directory with all that is in it, there and back."""
    tree = BESIDE / "tree"
    for number in range(200):
        file = tree / f"branch-{number % 7}" / f"leaf {number} ü"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(number))
    await sftp.put(str(tree), "tree", recurse=True, preserve=True)
    await sftp.get("tree", str(BESIDE / "again"), recurse=True, preserve=True)
    for known in tree.rglob("*"):
        again = BESIDE / "again" / known.relative_to(tree)
        assert again.exists(), f"{again} did not come back"
        if known.is_file():
            is_equal(again.read_text(), known.read_text(), f"{known}")
    is_equal(len(await sftp.glob("tree/*/leaf*")), 200, "glob")
    await sftp.rmtree("tree")
    is_equal(await sftp.exists("tree"), False, "rmtree")


async def files(sftp):
    await sftp.makedirs("a/b/c", exist_ok=True)
    await sftp.makedirs("a/b/c", exist_ok=True)
    is_equal(await sftp.isdir("a/b/c"), True, "makedirs")
    async with sftp.open("a/text", "w") as file:
        await file.write("zwölf")
    is_equal((await sftp.stat("a/text")).size, 6, "stat")
    await sftp.rename("a/text", "a/other")
    await sftp.posix_rename("a/other", "there.txt")
    async with sftp.open("there.txt") as file:
        is_equal(await file.read(), "zwölf", "after two renames")
    await sftp.symlink("there.txt", "link")
    is_equal(await sftp.readlink("link"), "there.txt", "a link")
    is_equal(await sftp.realpath("sub/../link"), "/there.txt", "a path in full, without links")
    await sftp.truncate("there.txt", 1)
    is_equal(await sftp.getsize("there.txt"), 1, "truncate")
    space = await sftp.statvfs("/")
    assert space.blocks > 0 and space.bsize > 0, f"{space}"
    names = {name for name in await sftp.listdir("/") if name not in {".", ".."}}
    is_equal(names, {"a", "link", "sub", "there.txt"}, "listing")
    await fails(sftp.stat("nothing"), asyncssh.SFTPNoSuchFile, "stat of nothing")
    await fails(sftp.mkdir("a"), asyncssh.SFTPFailure, "mkdir of what is there")
    await fails(sftp.open("/../../outside", "w"), asyncssh.SFTPError, "a file outside")


async def at_once(connection, sftp):
    """More requests than a server works on together, and answers in any order."""

    async def work(number):
        async with sftp.open(f"once-{number}", "wb") as file:
            await file.write(b"%d" % number)
        return (await sftp.stat(f"once-{number}")).size

    sizes = await asyncio.gather(*(work(number) for number in range(500)))
    is_equal(sum(sizes), 10 + 180 + 1_200, "500 files at once")

    async def command(number):
        return (await connection.run(f"exit {number}")).exit_status

    codes = await asyncio.gather(*(command(number) for number in range(60)))
    is_equal(codes, list(range(60)), "60 commands at once")


async def commands(connection):
    ran = await connection.run("echo out; echo err >&2; exit 7")
    is_equal((ran.exit_status, ran.stdout, ran.stderr), (7, "out\n", "err\n"), "a command")
    ran = await connection.run("wc -c", input="x" * 3_000_000)
    is_equal(ran.stdout.strip(), "3000000", "3 MB of input")
    ran = await connection.run("head -c 8000000 /dev/zero", encoding=None)
    is_equal(len(ran.stdout), 8_000_000, "8 MB of output")
    ran = await connection.run("kill -TERM $$")
    # Walls that are made of processes tell of a signal by status.
    assert ran.returncode in (-15, 143), f"a death by signal: {ran.returncode}"
    ran = await connection.run("tty && stty size", term_type="xterm", term_size=(91, 37))
    assert ran.stdout.split()[-2:] == ["37", "91"], f"a terminal: {ran.stdout!r}"
    # A shell that waits is woken by a signal; one that reads is not.
    line = "trap 'echo caught; exit 5' TERM; sleep 1000 & echo ready; wait"
    async with connection.create_process(line) as process:
        is_equal(await process.stdout.readline(), "ready\n", "a process")
        process.send_signal("TERM")
        is_equal((await process.wait()).exit_status, 5, "a signal that is caught")


async def main():
    await fails(connect("wrong"), asyncssh.PermissionDenied, "a wrong password")
    async with await connect("secret") as connection:
        async with connection.start_sftp_client() as sftp:
            await files(sftp)
            await large_files(sftp)
            await trees(sftp)
            await at_once(connection, sftp)
        await commands(connection)
    print("asyncssh")


def connect(password):
    # The host key was made a moment ago.
    options = {"known_hosts": None, "client_keys": None, "agent_path": None, "config": None}
    return asyncssh.connect(HOST, int(PORT), username="agent", password=password, **options)


asyncio.run(main())
