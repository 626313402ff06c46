"""The clients of @a2a-js/sdk 0.3.14 and 1.3.0, each in a Node process (see ../js/bridge.mjs).

The first argument is v03 or v10; the others are those of all adapters. ATTACHE_PEERS is the directory of the packages.
"""

import asyncio
import base64
import itertools
import json
import os
import pathlib
import sys

import scenario

from scenario import AgentMessage, Chunk, Part, PushConfig, Refused, Status, Task

HERE = pathlib.Path(__file__).resolve().parent
LINE = 1 << 24


class Client(scenario.Client):
    errors = {name: f'{name}Error' for name in (
        'TaskNotFound', 'TaskNotCancelable', 'UnsupportedOperation', 'PushNotificationNotSupported')}

    def __init__(self, binding, version, process):
        self.process, self.numbers, self.waiting = process, itertools.count(), {}
        self.reader = asyncio.create_task(self.read())
        self.flags_final = SDK == 'v03'
        self.finished_can_be_subscribed = (binding, version) == ('GRPC', '0.3')
        if version == '0.3':
            self.list = None
            # From protobuf its 0.3 reads neither the name of a file nor the append flag of a chunk.
            if binding != 'JSONRPC':
                self.reads_append, self.reads_of_files = False, ('media_type',)

    async def read(self):
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            await self.waiting[answer['id']].put(answer)
        for queue in self.waiting.values():
            await queue.put({'refused': 'Node ended'})

    def ask(self, call, args):
        number = next(self.numbers)
        self.waiting[number] = asyncio.Queue()
        self.tell({'id': number, 'call': call, 'args': args})
        return number

    def tell(self, line):
        self.process.stdin.write(json.dumps(line).encode() + b'\n')

    async def call(self, name, *args):
        answer = await self.waiting[self.ask(name, args)].get()
        if 'refused' in answer:
            raise Refused(answer['refused'])
        return answer['value']

    async def events(self, name, *args):
        number = self.ask(name, args)
        try:
            while 'end' not in (answer := await self.waiting[number].get()):
                if 'refused' in answer:
                    raise Refused(answer['refused'])
                yield event_of(answer['event'])
        finally:
            self.tell({'cut': number})

    async def close(self):
        self.process.stdin.close()
        await self.process.wait()

    async def card(self):
        return await self.call('card')

    async def send(self, text, task=None, context=None, file=None):
        file = file and vars(file) | {'file': base64.b64encode(file.file).decode()}
        return event_of(await self.call('send', text, task, context, file))

    def stream(self, text, task=None, context=None):
        return self.events('stream', text, task, context)

    async def get(self, task):
        return event_of(await self.call('get', task))

    async def cancel(self, task):
        return event_of(await self.call('cancel', task))

    def subscribe(self, task):
        return self.events('subscribe', task)

    async def list(self, context, size, token):
        tasks, token, total = await self.call('list', context, size, token)
        return [event_of(task) for task in tasks], token, total

    async def set_push_config(self, hook):
        return PushConfig(**await self.call('set_push_config', vars(hook)))

    async def get_push_config(self, task, name):
        return PushConfig(**await self.call('get_push_config', task, name))

    async def list_push_configs(self, task):
        return [PushConfig(**hook) for hook in await self.call('list_push_configs', task)]

    async def delete_push_config(self, task, name):
        await self.call('delete_push_config', task, name)


def event_of(event):
    kind = event.pop('kind')
    if kind == 'task':
        event['artifacts'] = [(name, parts_of(parts)) for name, parts in event['artifacts']]
    elif kind != 'status':
        event['parts'] = parts_of(event['parts'])
    return {'task': Task, 'message': AgentMessage, 'status': Status, 'chunk': Chunk}[kind](**event)


def parts_of(parts):
    return [Part(**part | {'file': base64.b64decode(part['file'], validate=True)} if 'file' in part else part)
            for part in parts]


async def connect(binding, version, url):
    script = HERE.parent / 'js' / f'{SDK}.mjs'
    packages = pathlib.Path(os.environ['ATTACHE_PEERS'], 'js').resolve()
    process = await asyncio.create_subprocess_exec(
        'node', script, packages, binding, version, url, limit=LINE,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    scenario.same(json.loads(await process.stdout.readline()), {'ready': True})
    return Client(binding, version, process)


if __name__ == '__main__':
    SDK = sys.argv.pop(1)
    scenario.main(connect)
