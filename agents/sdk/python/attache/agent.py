"""Agents in Python for ``attache serve agent.py``. Needs Python 3.9 and no other package.

    from attache.agent import agent

    @agent
    async def count(turn):
        "Counts the words of a message"
        yield f"{len(turn.text.split())} words"

The function is an async generator, an async function, a generator or a function. Generators yield text, which streams;
functions return it. Generators and functions that are not async run in a thread, so they may block.
"""

import asyncio
import base64
import inspect
import json
import os
import runpy
import sys
import threading
import traceback
import types
from concurrent.futures import ThreadPoolExecutor

__all__ = ["agent", "Turn", "Failed", "Rejected"]

PROTOCOL = 1
_registered = None


class Failed(Exception):
    """Fails the task. The text is for the caller."""


class Rejected(Exception):
    """Declines the task. The text is for the caller."""


class _End:
    """Marker of the end of a turn, returned by ``turn.ask`` and ``turn.reply``. Later output is ignored."""


def agent(function=None, *, name=None, description=None, skills=()):
    """Makes a function the agent of this file. The docstring is the default description of its card."""

    def register(function):
        global _registered
        if _registered is not None:
            raise TypeError(f"a file has one @agent; {_registered[0].__name__} is one already")
        text = description or inspect.getdoc(function)
        card = {"name": name, "description": text, "skills": list(skills)}
        _registered = (function, {key: value for key, value in card.items() if value})
        return function

    return register if function is None else register(function)


class Turn:
    """One message of a task."""

    def __init__(self, line, worker):
        self._worker = worker
        self._id = line["turn"]
        self._has_ended = False
        self._cancelled = threading.Event()
        #: Text of the message. Files are described.
        self.text = line["text"]
        #: The message in the JSON form of A2A 1.0.
        self.message = line["message"]
        #: The task with its history, in the JSON form of A2A 1.0.
        self.task = line["task"]
        #: Id of the task.
        self.task_id = line["task"]["id"]
        #: Id of the conversation. It differs between callers.
        self.context_id = line["contextId"]
        #: The authenticated caller.
        self.caller = line["caller"]
        #: Tenant of the call, or "".
        self.tenant = line["tenant"]
        #: Attempt number, starting at 1. More than 1 after a restart of the server.
        self.attempt = line["attempt"]
        #: Value given to ``ask`` as ``remember`` if this message answers that question, else None.
        self.memory = line.get("memory")
        #: Trace context for outgoing calls, as in the header of the same name.
        self.traceparent = line.get("traceparent")

    @property
    def cancelled(self):
        """Whether the caller has canceled the task. Async functions also receive asyncio.CancelledError."""
        return self._cancelled.is_set()

    def write(self, text):
        """Streams text. The same as to yield it."""
        self._send({"text": text})

    def progress(self, message):
        """Sets the status message of the working task."""
        self._send({"message": message})

    def artifact(self, name, *, text=None, data=None, file=None, filename=None, media_type=None):
        """Adds an artifact: text, data (a JSON value) or file (bytes)."""
        if text is not None:
            part = {"text": text}
        elif file is not None:
            part = {"raw": base64.b64encode(file).decode(), "filename": filename or name}
        else:
            part = {"data": data}
        if media_type:
            part["mediaType"] = media_type
        self._send({"artifact": {"name": name, "parts": [part]}})

    def metadata(self, **members):
        """Adds to the metadata of the task."""
        self._send({"metadata": members})

    def ask(self, question, *, remember=None, request=None):
        """Ends the turn with a question. The answer is the next turn: it runs the function again."""
        line = {"question": question}
        if remember is not None:
            line["remember"] = remember
        if request is not None:
            line["request"] = request
        return self._end(line)

    def reply(self, text):
        """Completes the task with this final message."""
        return self._end({"reply": text})

    def _send(self, line):
        if not self._has_ended:
            self._worker.write({"turn": self._id, **line})

    def _end(self, line):
        self._send(line)
        self._has_ended = True
        return _End()

    def _emit(self, value):
        """Handles a yielded or returned value. Returns whether the turn has ended."""
        if value is not None and not isinstance(value, _End):
            self.write(value if isinstance(value, str) else json.dumps(value))
        return self._has_ended


class _Worker:
    """The process: reads lines from stdin, runs turns, writes lines to stdout."""

    def __init__(self, function, card):
        self._function = function
        self._card = card
        self._turns = {}
        self._lock = threading.Lock()
        # Output of the agent's code must not mix with the protocol: print() goes to stderr, which the server logs.
        self._stdout = os.dup(1)
        os.dup2(2, 1)

    def write(self, line):
        """Writes a line. Threads may call it at the same time."""
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        with self._lock:
            while data:
                data = data[os.write(self._stdout, data) :]

    async def run(self):
        loop = asyncio.get_running_loop()
        stdin = asyncio.StreamReader(limit=1 << 30)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
        self.write({"hello": {"protocol": PROTOCOL, **self._card}})
        while line := await stdin.readline():
            line = json.loads(line)
            if "turn" in line:
                turn = Turn(line, self)
                task = loop.create_task(self._run_turn(turn))
                self._turns[turn._id] = (turn, task)
                task.add_done_callback(lambda task, turn=turn: self._finish(turn, task))
            elif "cancel" in line and line["cancel"] in self._turns:
                turn, task = self._turns[line["cancel"]]
                turn._cancelled.set()
                task.cancel()
            elif "ping" in line:
                self.write({"pong": line["ping"]})
            elif "hello" in line:
                self._threads = ThreadPoolExecutor(line["hello"]["maxTurns"], "turn")
        # The server has closed stdin: its turns have ended. Threads may block, so they are not joined.
        os._exit(0)

    async def _run_turn(self, turn):
        try:
            await self._call(turn)
            turn._end({"state": "completed"})
        except Rejected as error:
            turn._end({"state": "rejected", "message": str(error)})
        except Failed as error:
            turn._end({"state": "failed", "message": str(error)})
        except Exception as error:
            traceback.print_exc()
            # Its text may hold secrets. The log has it.
            turn._end({"state": "failed", "message": f"the agent failed: {type(error).__name__}"})

    def _finish(self, turn, task):
        """Ends a turn. A task that is cancelled before its first step runs no code of its own."""
        if task.cancelled():
            turn._end({"state": "failed", "message": "canceled"})
        del self._turns[turn._id]

    async def _call(self, turn):
        function = self._function
        if inspect.isasyncgenfunction(function):
            generator = function(turn)
            try:
                async for value in generator:
                    if turn._emit(value):
                        break
            finally:
                await generator.aclose()
        elif inspect.iscoroutinefunction(function):
            turn._emit(await function(turn))
        else:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._call_blocking, turn)

    def _call_blocking(self, turn):
        result = self._function(turn)
        if not inspect.isgenerator(result):
            turn._emit(result)
            return
        for value in result:
            if turn._emit(value) or turn.cancelled:
                result.close()
                return


def main(path):
    """Runs the agent of a file until the server closes stdin."""
    sys.argv[:] = [path]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")
    if _registered is None:
        sys.exit(f"{path} has no agent; write @agent above a function")
    asyncio.run(_Worker(*_registered).run())


if __name__ == "attache.bootstrap":
    # The server sends this source. The file imports it as attache.agent, whatever is installed.
    _package = sys.modules.setdefault("attache", types.ModuleType("attache"))
    _package.__path__ = getattr(_package, "__path__", [])
    _module = types.ModuleType("attache.agent")
    _module.__dict__.update({key: value for key, value in globals().items() if key != "__name__"})
    sys.modules["attache.agent"] = _package.agent = _module
    main(sys.argv[1])
elif __name__ == "__main__":
    # python -m attache.agent FILE: the file must import this module, not a second copy of it.
    from attache.agent import main as _main

    _main(sys.argv[1])
