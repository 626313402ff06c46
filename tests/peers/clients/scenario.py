"""The checks for all clients. An adapter implements the operations of one client with the plain values below.

usage of an adapter: <adapter>.py <binding> <version> <url of the demo> <url of an agent with push, `ask` and `drip`>

All checks run concurrently. Prints one line per check. Exits with 1 if a check failed.
"""

import asyncio
import base64
import json
import os
import re
import signal
import sys
import traceback
import urllib.request

from dataclasses import dataclass, field

DEADLINE, ALL = 60, 120  # seconds
COMMANDS = ['help', 'stream', 'slow', 'ask', 'auth-elsewhere', 'auth', 'reject', 'fail-inside', 'fail', 'panic', 'file',
         'data', 'reply', 'tool', 'echo']
TIDES = b'harbour,high water\nNorth,06:12\nSouth,06:47\n'
TIDE = {'harbour': 'North', 'high_water': '06:12', 'metres': 3.4}
WEBHOOK = 'http://127.0.0.1:9/a2a?x=1'
UPLOAD = bytes(range(256)) + b'\r\n'


@dataclass
class Part:
    text: str = None
    data: object = None
    file: bytes = None
    name: str = None
    media_type: str = None


@dataclass
class AgentMessage:
    """Message of the agent without a task."""

    parts: list


@dataclass
class Task:
    id: str
    context: str
    state: str  # as in 0.3: 'input-required'
    status_text: str = ''  # the text of the status
    artifacts: list = field(default_factory=list)  # (name, parts)
    history: list = field(default_factory=list)  # texts


@dataclass
class Status:
    task: str
    state: str
    status_text: str = ''
    final: object = None  # 1.0 has none


@dataclass
class Chunk:
    task: str
    artifact: str
    name: str
    parts: list
    append: bool
    last: bool


@dataclass
class PushConfig:
    task: str
    id: str
    url: str
    token: str


class Refused(Exception):
    """Error response of the server; `what` is the reason as far as the client exposes it."""

    def __init__(self, what):
        super().__init__(what)
        self.what = what


class Client:
    """Base class of adapters. An operation is None if the client does not have it."""

    errors = {}  # the reason that the client exposes, by the name of the error
    subscribe_errors = None  # the same for refused subscriptions, if it differs
    finished_can_be_subscribed = False  # 0.3 over gRPC returns the task and ends the stream
    flags_final = False  # whether the client exposes the flag of 0.3 on the last status of a stream
    # False or shorter if the client has a defect.
    reads_append = reads_replies = True
    reads_of_files = ('name', 'media_type')
    unknown_states = ()
    continues_tasks = True  # whether a message can name its task
    sends_files = True
    stream = cancel = None
    list = subscribe = set_push_config = get_push_config = list_push_configs = delete_push_config = None


# The checks. Those named push_… get the client of the agent with push, all others that of the demo.


async def discover(client):
    if client.card is None:
        return 'not there'
    card = await client.card()
    same(card['name'], 'Attache demo')
    same(card['description'], 'A demo agent that shows everything an agent can do')
    same(card['streaming'], True)
    same(card['push'], True)
    same(card['skills'], COMMANDS)


async def send(client):
    task = await client.send('hello, wörld 🌍')
    same((task.state, texts(task)), ('completed', [('echo', 'hello, wörld 🌍')]))
    same(task.history, ['hello, wörld 🌍'])
    same(await client.get(task.id), task)
    check(task.id and task.context and task.id != task.context, task)
    other = await client.send('again', context=task.context)
    same((other.state, other.context), ('completed', task.context))
    check(other.id != task.id, other)


async def reply(client):
    if client.reads_replies:
        same(await client.send('reply'), AgentMessage([Part(text='a plain message, and no task')]))
    if client.stream is None:
        return 'not there' if not client.reads_replies else None
    same([event async for event in client.stream('reply')], [AgentMessage([Part(text='a plain message, and no task')])])


async def states(client):
    for word, state, pattern in [
        ('reject', 'rejected', 'I would rather not'),
        ('fail', 'failed', 'it did not work, as you asked'),
        ('fail inside', 'failed', r'Agent execution failed \(\w+\)'),
        ('panic', 'failed', r'Agent execution failed \(\w+\)'),
        ('auth', 'auth-required', 'I need to know that it is you; any answer will do'),
    ]:
        task = await client.send(word)
        same((word, task.state), (word, 'unknown' if state in client.unknown_states else state))
        check(re.fullmatch(pattern, task.status_text), task)


async def parts(client):
    task = await client.send('file')
    [(artifact, [part]), _] = task.artifacts
    same((artifact, part.file), ('tides.csv', TIDES))
    for field in client.reads_of_files:
        same(getattr(part, field), {'name': 'tides.csv', 'media_type': 'text/csv'}[field])
    task = await client.send('data')
    same(task.artifacts[0], ('tide', [Part(data=TIDE)]))


async def upload(client):
    """A file arrives at the agent with the same bytes, and comes back with them."""
    if not client.sends_files:
        return 'not there'
    sent = Part(file=UPLOAD, name='all.bin', media_type='application/octet-stream')
    task = await client.send('keep this', file=sent)
    same(task.state, 'completed')
    [received] = [part for _, parts in task.artifacts for part in parts if part.file is not None]
    same(received.file, UPLOAD)
    for field in client.reads_of_files:
        same(getattr(received, field), getattr(sent, field))
    stored = await asyncio.to_thread(stored_files, client.server, task.id)
    same(stored, [UPLOAD])


def stored_files(url, task):
    """Returns the files in the artifacts of a task, as a client of 1.0 reads them."""
    call = {'jsonrpc': '2.0', 'id': 1, 'method': 'GetTask', 'params': {'id': task}}
    headers = {'Content-Type': 'application/json', 'A2A-Version': '1.0'}
    request = urllib.request.Request(url, json.dumps(call).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        artifacts = json.load(answer)['result']['artifacts']
    return [base64.b64decode(part['raw'], validate=True)
            for artifact in artifacts for part in artifact['parts'] if 'raw' in part]


async def ask(client):
    task = await client.send('ask')
    same((task.state, task.status_text), ('input-required', 'What is your name?'))
    if not client.continues_tasks:
        return
    done = await client.send('Ada', task=task.id, context=task.context)
    same((done.id, done.context, done.state), (task.id, task.context, 'completed'))
    same(texts(done), [('greeting', 'Hello, Ada!')])
    same(done.history, ['ask', 'What is your name?', 'Ada'])
    same(await client.get(task.id), done)
    if client.stream is None:
        return
    # again as streams, which end when the task needs an answer
    events = [event async for event in client.stream('ask')]
    check(isinstance(events[0], Task), events)
    last = events[-1]
    same((last.state, last.status_text), ('input-required', 'What is your name?'))
    same(last.final, True if client.flags_final else None)
    task = events[0]
    events = [event async for event in client.stream('Bob', task=task.id, context=task.context)]
    same(joined(events), {'greeting': 'Hello, Bob!'})
    same(final_status(events), (task.id, 'completed'))


async def stream(client):
    if client.stream is None:
        return 'not there'
    events = [event async for event in client.stream('stream 50 20')]
    task = events[0]
    check(isinstance(task, Task) and task.state in ('submitted', 'working') and not task.artifacts, task)
    chunks = [event for event in events if isinstance(event, Chunk)]
    same([len(text(chunk.parts)) for chunk in chunks], [20] * 50 + [0])  # an empty one says that it was the last
    same([chunk.append for chunk in chunks], [False] + [client.reads_append] * 50)
    same([chunk.last for chunk in chunks], [False] * 50 + [True])
    same({(chunk.task, chunk.artifact) for chunk in chunks}, {(task.id, chunks[0].artifact)})
    for number, chunk in enumerate(chunks[:-1], 1):
        check(text(chunk.parts).startswith(f'chunk {number} of 50 '), chunk)
    same(final_status(events), (task.id, 'completed'))
    finals = [event.final for event in events if isinstance(event, Status)]
    same(finals, [False] * (len(finals) - 1) + [True] if client.flags_final else [None] * len(finals))
    now = await client.get(task.id)
    same((now.context, now.state), (task.context, 'completed'))
    same(texts(now), [('stream', joined(events)['stream'])])


async def cancel(client):
    if client.cancel is None:
        return 'not there'
    events, canceled = [], None
    async for event in client.stream('slow 30'):
        events.append(event)
        if canceled is None and getattr(event, 'status_text', '') == 'this takes a while':
            canceled = await client.cancel(events[0].id)
    task = events[0]
    same((canceled.id, canceled.context, canceled.state), (task.id, task.context, 'canceled'))
    same(canceled.history[-1], 'stopping, as I was told')
    same((events[-2].state, events[-2].status_text), ('working', 'stopping, as I was told'))
    same(final_status(events), (task.id, 'canceled'))
    same(await client.get(task.id), canceled)
    await refused(client, 'TaskNotCancelable', client.cancel(task.id))


async def resubscribe(client):
    """Disconnects in the middle of a stream, resubscribes, and misses no event."""
    if client.subscribe is None:
        return 'not there'
    first = client.stream('slow 5')
    task = None
    async for event in first:
        task = task or event
        if getattr(event, 'status_text', '') == '1 of 5 seconds':
            break
    await first.aclose()
    events = [event async for event in client.subscribe(task.id)]
    now = events[0]
    check(isinstance(now, Task), now)
    same((now.id, now.context, now.state), (task.id, task.context, 'working'))
    seconds = int(re.fullmatch('([1-4]) of 5 seconds', now.status_text)[1])
    texts_seen = [event.status_text for event in events[1:] if isinstance(event, Status) and event.status_text]
    same(texts_seen, [f'{n} of 5 seconds' for n in range(seconds + 1, 5)])
    same(joined(events), {'slow': 'done'})
    same(final_status(events), (task.id, 'completed'))
    done = await client.get(task.id)
    same((done.state, texts(done)), ('completed', [('slow', 'done')]))


async def push_resubscribe_to_chunks(client):
    """The same in the middle of an artifact: the task and the later chunks make the whole artifact."""
    if client.subscribe is None:
        return 'not there'
    first = client.stream('drip')
    seen = 0
    async for event in first:
        seen += isinstance(event, Chunk)
        if isinstance(event, Task):
            task = event
        if seen == 5:
            break
    await first.aclose()
    events = [event async for event in client.subscribe(task.id)]
    same((events[0].id, len(events[0].artifacts)), (task.id, 1))
    check(events[0].state in ('submitted', 'working'), events[0])
    rest = [event for event in events if isinstance(event, Chunk)]
    check(0 < len(rest) <= 41 - seen and {chunk.append for chunk in rest} == {client.reads_append}, rest[0])
    whole = ''.join((f'chunk {n} of 40 ' * 2)[:12] for n in range(1, 41))
    same(text(events[0].artifacts[0][1]) + ''.join(text(chunk.parts) for chunk in rest), whole)
    same(final_status(events), (task.id, 'completed'))
    same(texts(await client.get(task.id)), [('drip', whole)])


async def unknown(client):
    gone = '00000000-0000-4000-8000-000000000000'
    await refused(client, 'TaskNotFound', client.get(gone))
    if client.cancel:
        await refused(client, 'TaskNotFound', client.cancel(gone))
    if client.continues_tasks:
        await refused(client, 'TaskNotFound', client.send('hi', task=gone))
    if client.continues_tasks and client.stream:
        await refused(client, 'TaskNotFound', collect(client.stream('hi', task=gone)))
    if client.subscribe:
        await not_subscribed(client, 'TaskNotFound', gone)


async def finished(client):
    task = await client.send('done')
    if client.continues_tasks:
        await refused(client, 'UnsupportedOperation', client.send('more', task=task.id))
    if client.continues_tasks and client.stream:
        await refused(client, 'UnsupportedOperation', collect(client.stream('more', task=task.id)))
    if client.cancel:
        await refused(client, 'TaskNotCancelable', client.cancel(task.id))
    if client.finished_can_be_subscribed:
        same(await collect(client.subscribe(task.id)), [task])
    elif client.subscribe:
        await not_subscribed(client, 'UnsupportedOperation', task.id)
    same(await client.get(task.id), task)


async def lists(client):
    if client.list is None:
        return 'not there'
    first = await client.send('one')
    ids = [first.id] + [(await client.send(word, context=first.context)).id for word in ('two', 'three')]
    tasks, token, total = await client.list(first.context, 2, '')
    same(([task.id for task in tasks], total), ([ids[2], ids[1]], 3))
    same([task.state for task in tasks], ['completed'] * 2)
    check(token, 'there is a second page')
    tasks, token, total = await client.list(first.context, 2, token)
    same(([task.id for task in tasks], token, total), ([ids[0]], '', 3))
    same(await client.list('no such context', 2, ''), ([], '', 0))


async def push_configs(client):
    if client.set_push_config is None:
        return 'not there'
    same((await client.card())['push'], True)
    task = await client.send('ask')
    mine = PushConfig(task.id, 'mine', WEBHOOK, 's3cret')
    same(await client.set_push_config(mine), mine)
    same(await client.get_push_config(task.id, 'mine'), mine)
    other = PushConfig(task.id, 'other', WEBHOOK + '&y=2', 't')
    same(await client.set_push_config(other), other)
    if client.list_push_configs:
        same(sorted(await client.list_push_configs(task.id), key=lambda hook: hook.id), [mine, other])
    if client.delete_push_config:
        await client.delete_push_config(task.id, 'mine')
        await refused(client, 'TaskNotFound', client.get_push_config(task.id, 'mine'))
        if client.list_push_configs:
            same(await client.list_push_configs(task.id), [other])
    gone = '00000000-0000-4000-8000-000000000000'
    await refused(client, 'TaskNotFound', client.set_push_config(PushConfig(gone, 'mine', WEBHOOK, 't')))


async def command_stream(client):
    """Lines of a command become chunks of one artifact."""
    events = [event async for event in client.stream('count to three')]
    check(isinstance(events[0], Task), events)
    same(joined(events), {'output': 'one two three '})
    same(final_status(events), (events[0].id, 'completed'))
    same(texts(await client.get(events[0].id)), [('output', 'one two three ')])


async def command_cancel(client):
    """A cancel stops an endless command."""
    events, canceled = [], None
    async for event in client.stream('sleep'):
        events.append(event)
        if canceled is None and getattr(event, 'status_text', '') == 'this takes a while':
            canceled = await client.cancel(events[0].id)
    same((canceled.id, canceled.state), (events[0].id, 'canceled'))
    same(final_status(events), (events[0].id, 'canceled'))
    await refused(client, 'TaskNotCancelable', client.cancel(events[0].id))


CHECKS = [discover, send, reply, states, parts, upload, ask, stream, cancel, resubscribe, push_resubscribe_to_chunks, unknown,
          finished, lists, push_configs]
# Checks for a command agent: see tests/peers/command.py.
COMMAND_CHECKS = [send, ask, command_stream, command_cancel, unknown, finished, lists]


# Assertions.


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f'got    {got!r}\nwanted {wanted!r}')


async def refused(client, error, call, errors=None):
    try:
        got = await call
    except Refused as refusal:
        same((error, refusal.what), (error, (errors or client.errors)[error]))
        return
    raise AssertionError(f'{error} wanted, got {got!r}')


async def not_subscribed(client, error, task):
    await refused(client, error, collect(client.subscribe(task)), client.subscribe_errors)


async def collect(events):
    return [event async for event in events]


def text(parts):
    return ''.join(part.text or '' for part in parts)


def texts(task):
    return [(name, text(parts)) for name, parts in task.artifacts]


def joined(events):
    """Returns the texts of the artifacts that the chunks of a stream make, by name."""
    whole = {}
    for event in events:
        if isinstance(event, Chunk):
            whole.setdefault(event.artifact, [event.name, ''])[1] += text(event.parts)
    return dict(whole.values())


def final_status(events):
    """Checks that only the last event is a final status, and returns its task and state."""
    ended = [event for event in events if isinstance(event, Status) and event.state in ('completed', 'canceled')]
    same(ended, events[-1:])
    return ended[0].task, ended[0].state


# Entry point of an adapter.


async def run_checks(connect):
    binding, version, demo, push = sys.argv[1:]
    checks = COMMAND_CHECKS if os.environ.get('ATTACHE_CHECKS') == 'command' else CHECKS
    clients = [await connect(binding, version, url) for url in (demo, push)]
    for client, url in zip(clients, (demo, push)):
        client.server = url
    results = await asyncio.gather(*(
        run_check(name, clients[name.__name__.startswith('push_')]) for name in checks
    ))
    for client in clients:
        await client.close()
    return all(results)


async def run_check(name, client):
    try:
        note = await asyncio.wait_for(name(client), DEADLINE)
    except Exception:
        print(f'FAILED {name.__name__}', traceback.format_exc(), sep='\n')
        return False
    print(f'{name.__name__}: {note or "ok"}')
    return True


def main(connect):
    signal.alarm(ALL)
    sys.exit(0 if asyncio.run(run_checks(connect)) else 1)
