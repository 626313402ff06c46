"""Shared by the servers in Python: ports, the line with their URL, and shutdown."""

import asyncio
import os
import socket
import sys
import threading

import uvicorn


def bind():
    """Returns a listening socket on a free port, and its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def end_with_stdin():
    """Ends the process when stdin is closed, also by the end of the parent process."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()


async def serve(app, listener, url, grpc_server=None):
    """Serves until stdin is closed."""
    end_with_stdin()
    if grpc_server:
        await grpc_server.start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    ready = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    print(f"Listening on {url}", flush=True)
    await ready


async def work(text, updater, part):
    """Echoes the message. `slow` never ends, `drip` streams slowly, `ask` asks a question."""
    await updater.start_work()
    if text == "slow":
        await asyncio.Event().wait()
    if text == "ask":
        await updater.requires_input()
        return
    if text == "drip":
        for n in range(20):
            await updater.add_artifact([part(f"{n} ")], artifact_id="drip", append=n > 0, last_chunk=n == 19)
            await asyncio.sleep(0.1)
    else:
        await updater.add_artifact([part(text)], name="echo")
    await updater.complete()
