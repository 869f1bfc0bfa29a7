"""The published Python client: every call of it that works against its own daemon.

    python client.py URL TOKEN ROOT

It quotes nothing, so names are plain; its `read` calls what its SSH library does not have, and its MCP
client is for an older library than there is.
"""

import asyncio
import dataclasses
import sys
from urllib.parse import urlsplit

from agent_backend import (
    BackendError,
    BackendPoolManager,
    ConnectionStatus,
    ErrorCode,
    PoolManagerConfig,
    RemoteFilesystemBackend,
    RemoteFilesystemBackendConfig,
)
from agent_backend.types import ExecOptions, ReconnectionConfig

URL, TOKEN, ROOT = sys.argv[1:]
PLACE = urlsplit(URL)
CONFIG = RemoteFilesystemBackendConfig(
    root_dir=ROOT,
    host=PLACE.hostname,
    port=PLACE.port,
    mcp_port=PLACE.port,
    auth_token=TOKEN,
    prevent_dangerous=False,
)


def is_equal(found, wanted, what):
    assert found == wanted, f"{what}: {found!r} is not {wanted!r}"


async def fails(call, code, says, what):
    try:
        found = await call
    except BackendError as error:
        is_equal(error.code, code, what)
        assert says in f"{error} {error.operation}", f"{what}: {error!r}"
    else:
        raise AssertionError(f"{what} answered {found!r}")


async def files(backend):
    await backend.write("a/b/text.txt", "zwölf Boxkämpfer 🥊\r\n")
    is_equal(await backend.exec("cat a/b/text.txt"), "zwölf Boxkämpfer 🥊", "what was written")
    big = bytes(range(256)) * 20_000
    await backend.write("big.bin", big)
    stat = await backend.stat("big.bin")
    is_equal((stat.is_file, stat.is_directory, stat.size), (True, False, len(big)), "stat")
    await backend.mkdir("deep/er")
    await backend.mkdir("deep/er")
    await backend.mkdir("plain", recursive=False)
    assert (await backend.stat("deep/er")).is_directory
    listed = {".", "..", "a", "big.bin", "deep", "plain", "there.txt"}
    is_equal(set(await backend.readdir(".")) | {".", ".."}, listed, "readdir")
    await backend.touch("touched")
    is_equal((await backend.stat("touched")).size, 0, "touch")
    is_equal(await backend.exists("touched"), True, "exists")
    is_equal(await backend.exists("nothing"), False, "exists, of nothing")
    await backend.rename("touched", "deep/renamed")
    is_equal(await backend.exists("deep/renamed"), True, "rename")
    await backend.rm("deep/renamed")
    await backend.rm("deep", recursive=True)
    await backend.rm("a", recursive=True, force=True)
    await backend.rm("nothing", force=True)
    for name in ["deep", "a"]:
        is_equal(await backend.exists(name), False, f"{name} is gone")
    await fails(backend.stat("nothing"), ErrorCode.READ_FAILED, "nothing", "stat of nothing")
    await fails(backend.readdir("nothing"), ErrorCode.LS_FAILED, "nothing", "readdir of nothing")
    await fails(backend.rm("nothing"), ErrorCode.WRITE_FAILED, "No such file", "rm of nothing")
    numbers = range(100)
    await asyncio.gather(*(backend.write(f"once/{number}", str(number)) for number in numbers))
    is_equal(await backend.exec("ls once | wc -l"), "100", "100 files at once")


async def commands(backend):
    is_equal(await backend.exec("pwd"), ROOT, "commands begin in the root")
    is_equal(await backend.exec("printenv HOME", ExecOptions(env={"A": "b"})), ROOT, "the home")
    is_equal(await backend.exec("cat"), "", "a command that reads its input")
    is_equal(await backend.exec("printf x", ExecOptions(encoding="buffer")), b"x", "bytes")
    is_equal(len(await backend.exec("yes | head -n 500000")), 999_999, "1 MB of output")
    for command, says in [
        ("exit 3", "exit code 3"),
        ("no-such-program", "exit code 127"),
        ("sudo ls", "exit code 126"),
        ("rm -rf /", "exit code 126"),
    ]:
        await fails(backend.exec(command), ErrorCode.EXEC_FAILED, says, command)
    said = await asyncio.gather(*(backend.exec(f"echo {number}") for number in range(50)))
    is_equal(said, [str(number) for number in range(50)], "50 commands at once")


async def scopes(backend):
    alice = backend.scope("users/alice")
    await alice.write("notes/a.txt", "alice's")
    is_equal(await alice.exec("pwd"), f"{ROOT}/users/alice", "commands begin in the scope")
    is_equal(await alice.exec("cat notes/a.txt"), "alice's", "and see its files")
    is_equal(await backend.exists("users/alice/notes/a.txt"), True, "the same from above")
    nested = alice.scope("notes")
    await nested.rename("a.txt", "b.txt")
    is_equal([name for name in await nested.readdir(".") if name[0] != "."], ["b.txt"], "nested")
    await alice.destroy()


async def pool():
    factory = lambda **options: RemoteFilesystemBackend(CONFIG)
    manager = BackendPoolManager(PoolManagerConfig(backend_factory=factory))
    kept = []
    for key in ["a", "b", "a"]:

        async def work(backend):
            kept.append(backend)
            return await backend.exec(f"echo {key}")

        is_equal(await manager.with_backend(work, key=key), key, "a pooled connection")
    assert kept[0] is kept[2] and kept[0] is not kept[1], "one connection for each key"
    await manager.destroy_all()


async def refused():
    config = dataclasses.replace(
        CONFIG, auth_token="wrong", reconnection=ReconnectionConfig(initial_delay_ms=1)
    )
    backend = RemoteFilesystemBackend(config)
    await fails(backend.exec("true"), ErrorCode.AUTH_FAILED, "4001", "a wrong token")
    is_equal(backend.status, ConnectionStatus.DISCONNECTED, "after a wrong token")
    assert backend._reconnect_task is None, "it does not come again"


async def main():
    backend = RemoteFilesystemBackend(CONFIG)
    await backend.connect()
    await files(backend)
    await commands(backend)
    await scopes(backend)
    await backend.destroy()
    await pool()
    await refused()
    print("python")


asyncio.run(main())
