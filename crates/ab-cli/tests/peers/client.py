"""The official Python client: every call of calls.json, then progress and cancellation.

    python client.py legacy --stdio PROGRAM ARGUMENT...
    python client.py auto --http URL TOKEN

The first argument is the era of the protocol that it speaks.
"""

import json
import sys
from pathlib import Path

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

MODE, KIND, *PLACE = sys.argv[1:]
CALLS = json.loads(Path(__file__).with_name("calls.json").read_text())["calls"]


def server():
    if KIND == "--stdio":
        command, *args = PLACE
        return StdioServerParameters(command=command, args=args)
    url, token = PLACE
    headers = {"Authorization": f"Bearer {token}"}
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=90))


async def make(client, call, kept):
    def known(value):
        return kept[value[1:]] if isinstance(value, str) and value[:1] == "$" else value

    arguments = {name: known(value) for name, value in call["arguments"].items()}
    result = await client.call_tool(call["tool"], arguments)
    told = f"{call}\nanswered {result}"
    block = result.content[0]
    assert bool(result.is_error) == ("refused" in call), told
    if call.get("refused"):
        assert result.meta["agent-backend/error"]["code"] == call["refused"], told
    if "block" in call:
        assert block.type == call["block"], told
    if "text" in call:
        assert block.text == call["text"], told
    for part in call.get("says", []):
        assert part in block.text, f"{part} not in {told}"
    for name, value in call.get("value", {}).items():
        assert result.structured_content[name] == value, told
    for name, field in call.get("keep", {}).items():
        kept[name] = result.structured_content[field]


async def execute(client, command, **options):
    arguments = {"command": command, **options}
    return (await client.call_tool("exec", arguments)).structured_content


async def output(client, process, cursor):
    arguments = {"processId": process, "cursor": cursor, "wait": 60}
    return (await client.call_tool("process_output", arguments)).structured_content


async def progress(client):
    """The command ends when it is told to, and it is told when there was progress."""
    await execute(client, "mkfifo go")
    heard = []

    async with anyio.create_task_group() as tasks:

        async def on_progress(done, total, message):
            heard.append((done, message))
            if len(heard) == 1:
                tasks.start_soon(execute, client, "echo on > go")

        command = {"command": "cat go"}
        result = await client.call_tool("exec", command, progress_callback=on_progress)
    assert result.structured_content["stdout"] == "on\n", result
    assert heard[0][0] > 0 and "bytes said" in heard[0][1], heard


async def hold(client):
    """A call that ends only with its caller's wish for it."""
    await execute(client, "exec 3> held; echo open >&3; sleep 1000", timeout=1000)


async def cancellation(client):
    """Both ends of the pipe are open before the call is cancelled; its other end says when it is gone."""
    await execute(client, "mkfifo held")
    process = (await execute(client, "cat held", background=True))["processId"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, client)
        opened = await output(client, process, 0)
        assert opened["content"] == "open\n", opened
        tasks.cancel_scope.cancel()
    gone = await output(client, process, opened["nextCursor"])
    assert gone["running"] is False, gone


async def main():
    async with Client(server(), mode=MODE) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        called = {call["tool"] for call in CALLS}
        assert tools == called, f"listed and not called, or the reverse: {tools ^ called}"
        kept = {}
        for call in CALLS:
            await make(client, call, kept)
        try:
            await client.call_tool("no_such_tool", {})
            raise AssertionError("an unknown tool was called")
        except MCPError as error:
            assert "no_such_tool" in str(error), error
        await progress(client)
        await cancellation(client)
        print(f"every tool, {client.protocol_version}")


anyio.run(main)
