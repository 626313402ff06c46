"""Plain curl: raw requests and responses in both versions and both JSON bindings."""

import asyncio
import base64
import json
import uuid

import scenario

from scenario import AgentMessage, Chunk, Part, PushConfig, Refused, Status, Task, check, same

CODES = {  # JSON-RPC, the reason and the HTTP status in 1.0, the HTTP status in 0.3
    'TaskNotFound': (-32001, 'TASK_NOT_FOUND', 404, 404),
    'TaskNotCancelable': (-32002, 'TASK_NOT_CANCELABLE', 400, 409),
    'PushNotificationNotSupported': (-32003, 'PUSH_NOTIFICATION_NOT_SUPPORTED', 400, 501),
    'UnsupportedOperation': (-32004, 'UNSUPPORTED_OPERATION', 400, 501),
}


class Curl(scenario.Client):
    """The curl process, and the parts that both bindings share."""

    def __init__(self, url, form):
        self.url, self.form = url, form
        self.flags_final = form.flags_final

    async def close(self):
        pass

    async def run(self, *args):
        process = await asyncio.create_subprocess_exec(
            'curl', '--silent', '--show-error', '--max-time', '60', '--write-out', '\n%{http_code} %{content_type}', *args,
            stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        same(process.returncode, 0)
        body, _, status = output.decode().rpartition('\n')
        status, _, media_type = status.partition(' ')
        if status != '204':
            same(media_type, 'application/json')
        return int(status), json.loads(body) if body else None

    async def frames(self, *args):
        """Yields the frames of a stream as dicts of fields, or the body of a response that is not a stream."""
        process = await asyncio.create_subprocess_exec(
            'curl', '--silent', '--show-error', '--no-buffer', '--include', '--max-time', '60', *args,
            stdout=asyncio.subprocess.PIPE, limit=1 << 24)
        try:
            head = (await process.stdout.readuntil(b'\r\n\r\n')).decode().lower()
            status = int(head.split()[1])
            if 'content-type: text/event-stream' not in head:
                body = json.loads(await process.stdout.read())
                await process.wait()
                yield status, body
                return
            same(status, 200)
            frame = {}
            while line := (await process.stdout.readline()).decode():
                line = line.rstrip('\n')
                if line.startswith(':'):
                    continue
                if line:
                    name, _, value = line.partition(': ')
                    check(name not in frame, f'{name} twice in a frame')
                    frame[name] = value
                elif frame:
                    yield status, frame
                    frame = {}
            same((frame, await process.wait()), ({}, 0))
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def card(self):
        status, card = await self.run(self.url + '.well-known/agent-card.json')
        same(status, 200)
        return {
            'name': card['name'], 'description': card['description'], 'streaming': card['capabilities']['streaming'],
            'push': card['capabilities'].get('pushNotifications', False),
            'skills': [skill['id'] for skill in card['skills']],
        }

    async def stream(self, text, task=None, context=None):
        async for _, event in self.streamed(text, task, context):
            yield event

    async def subscribe(self, task):
        async for _, event in self.subscribed(task):
            yield event


class JsonRpc(Curl):
    def __init__(self, url, form):
        super().__init__(url, form)
        self.errors = {name: codes[0] for name, codes in CODES.items()}
        if form.version != '1.0':
            self.list = None

    def args(self, method, params, *more):
        body = {'jsonrpc': '2.0', 'id': method, 'method': self.form.methods[method], 'params': params}
        return (self.url, '-H', 'Content-Type: application/json', *self.form.header, *more, '-d', json.dumps(body))

    async def call(self, method, params):
        status, answer = await self.run(*self.args(method, params))
        same(status, 200)
        return result(method, answer)

    async def events(self, method, params, *more):
        async for _, frame in self.frames(*self.args(method, params, *more)):
            answer = json.loads(frame['data']) if 'data' in frame else frame
            yield frame.get('id'), self.form.event(result(method, answer))

    def streamed(self, text, task, context):
        return self.events('stream', {'message': self.form.message(text, task, context)})

    def subscribed(self, task, *more):
        return self.events('subscribe', {'id': task}, *more)

    async def send(self, text, task=None, context=None, file=None):
        return self.form.event(await self.call('send', {'message': self.form.message(text, task, context, file)}))

    async def get(self, task):
        return self.form.task(await self.call('get', {'id': task}))

    async def cancel(self, task):
        return self.form.task(await self.call('cancel', {'id': task}))

    async def list(self, context, size, token):
        page = await self.call('list', {'contextId': context, 'pageSize': size, 'pageToken': token})
        return [self.form.task(task) for task in page['tasks']], page['nextPageToken'], page['totalSize']

    async def set_push_config(self, hook):
        return self.form.hook(await self.call('set_push_config', self.form.config(hook)))

    async def get_push_config(self, task, name):
        return self.form.hook(await self.call('get_push_config', self.form.config_id(task, name)))

    async def list_push_configs(self, task):
        configs = await self.call('list_push_configs', self.form.config_id(task))
        return [self.form.hook(config) for config in self.form.configs(configs)]

    async def delete_push_config(self, task, name):
        same(await self.call('delete_push_config', self.form.config_id(task, name)), None)


class Rest(Curl):
    def __init__(self, url, form):
        super().__init__(url, form)
        self.errors = {
            name: (codes[2], codes[1]) if form.version == '1.0' else (codes[3], codes[0]) for name, codes in CODES.items()}
        if form.version != '1.0':
            self.list = None

    def args(self, method, path, body=None, *more):
        data = () if body is None else ('-H', 'Content-Type: application/json', '-d', json.dumps(body))
        return ('-X', method, self.url + self.form.prefix + path, *self.form.header, *more, *data)

    async def call(self, method, path, body=None):
        return self.checked(*await self.run(*self.args(method, path, body)))

    def checked(self, status, answer):
        if status >= 400:
            error = answer['error']
            same(error['code'], status)
            raise Refused((status, error['details'][0]['reason'] if self.form.version == '1.0' else answer['code']))
        check(status in (200, 201, 204), status)
        return answer

    async def events(self, *args):
        async for status, frame in self.frames(*args):
            self.checked(status, frame)
            yield frame.get('id'), self.form.event(json.loads(frame['data']))

    def streamed(self, text, task, context):
        return self.events(*self.args('POST', 'message:stream', self.form.request(text, task, context)))

    def subscribed(self, task, *more):
        return self.events(*self.args('GET', f'tasks/{task}:subscribe', None, *more))

    async def send(self, text, task=None, context=None, file=None):
        return self.form.event(await self.call('POST', 'message:send', self.form.request(text, task, context, file)))

    async def get(self, task):
        return self.form.task(await self.call('GET', f'tasks/{task}'))

    async def cancel(self, task):
        return self.form.task(await self.call('POST', f'tasks/{task}:cancel', {}))

    async def list(self, context, size, token):
        context = context.replace(' ', '%20')
        page = await self.call('GET', f'tasks?contextId={context}&pageSize={size}&pageToken={token}')
        return [self.form.task(task) for task in page['tasks']], page['nextPageToken'], page['totalSize']

    async def set_push_config(self, hook):
        path = f'tasks/{hook.task}/pushNotificationConfigs'
        return self.form.hook(await self.call('POST', path, self.form.config(hook)))

    async def get_push_config(self, task, name):
        return self.form.hook(await self.call('GET', f'tasks/{task}/pushNotificationConfigs/{name}'))

    async def list_push_configs(self, task):
        return [self.form.hook(config)
                for config in (await self.call('GET', f'tasks/{task}/pushNotificationConfigs'))['configs']]

    async def delete_push_config(self, task, name):
        await self.call('DELETE', f'tasks/{task}/pushNotificationConfigs/{name}')


def result(method, answer):
    same((answer['jsonrpc'], answer['id']), ('2.0', method))
    if 'error' in answer:
        raise Refused(answer['error']['code'])
    return answer['result']


class V10:
    """JSON of 1.0, for both bindings."""

    version, prefix, flags_final = '1.0', '', False
    header = ('-H', 'A2A-Version: 1.0')
    methods = {
        'send': 'SendMessage', 'stream': 'SendStreamingMessage', 'get': 'GetTask', 'cancel': 'CancelTask',
        'list': 'ListTasks', 'subscribe': 'SubscribeToTask', 'set_push_config': 'CreateTaskPushNotificationConfig',
        'get_push_config': 'GetTaskPushNotificationConfig', 'list_push_configs': 'ListTaskPushNotificationConfigs',
        'delete_push_config': 'DeleteTaskPushNotificationConfig',
    }
    parts_key = 'parts'

    def message(self, text, task, context, file=None):
        parts = [{'text': text}] + ([self.file(file)] if file else [])
        return {'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', self.parts_key: parts} | ids(task, context)

    def file(self, file):
        return {'raw': encoded(file), 'filename': file.name, 'mediaType': file.media_type}

    def request(self, text, task, context, file=None):
        return {'message': self.message(text, task, context, file)}

    def event(self, event):
        [(kind, value)] = event.items()
        return {'task': self.task, 'message': self.agent_message, 'statusUpdate': self.status, 'artifactUpdate': self.chunk}[kind](value)

    def agent_message(self, message):
        return AgentMessage([self.part(part) for part in message[self.parts_key]])

    def task(self, task):
        return Task(
            task['id'], task['contextId'], self.state(task['status']), self.words(task['status']),
            [(artifact['name'], [self.part(part) for part in artifact['parts']]) for artifact in task.get('artifacts', [])],
            [scenario.text(self.agent_message(message).parts) for message in task.get('history', [])],
        )

    def status(self, update):
        return Status(update['taskId'], self.state(update['status']), self.words(update['status']),
                      update.get('final', False) if self.flags_final else update.get('final'))

    def chunk(self, update):
        artifact = update['artifact']
        return Chunk(update['taskId'], artifact['artifactId'], artifact.get('name'),
                     [self.part(part) for part in artifact['parts']],
                     update.get('append', False), update.get('lastChunk', False))

    def words(self, status):
        message = status.get(self.status_message)
        return scenario.text(self.agent_message(message).parts) if message else ''

    status_message = 'message'

    def state(self, status):
        return status['state'].removeprefix('TASK_STATE_').lower().replace('_', '-')

    def part(self, part):
        if 'raw' in part:
            return Part(file=base64.b64decode(part['raw'], validate=True), name=part['filename'], media_type=part['mediaType'])
        return Part(**part)

    def config(self, hook):
        return {'taskId': hook.task, 'id': hook.id, 'url': hook.url, 'token': hook.token}

    def config_id(self, task, name=None):
        return {'taskId': task} | ({'id': name} if name else {})

    def configs(self, answer):
        return answer['configs']

    def hook(self, config):
        return PushConfig(config['taskId'], config['id'], config['url'], config['token'])


class V03(V10):
    """JSON of 0.3 over JSON-RPC."""

    version, flags_final, header = '0.3', True, ()
    methods = {
        'send': 'message/send', 'stream': 'message/stream', 'get': 'tasks/get', 'cancel': 'tasks/cancel',
        'subscribe': 'tasks/resubscribe', 'set_push_config': 'tasks/pushNotificationConfig/set',
        'get_push_config': 'tasks/pushNotificationConfig/get', 'list_push_configs': 'tasks/pushNotificationConfig/list',
        'delete_push_config': 'tasks/pushNotificationConfig/delete',
    }

    def message(self, text, task, context, file=None):
        parts = [{'kind': 'text', 'text': text}] + ([self.file(file)] if file else [])
        return {'kind': 'message', 'messageId': str(uuid.uuid4()), 'role': 'user', 'parts': parts} | ids(task, context)

    def file(self, file):
        return {'kind': 'file', 'file': {'bytes': encoded(file), 'name': file.name, 'mimeType': file.media_type}}

    def event(self, event):
        return {'task': self.task, 'message': self.agent_message, 'status-update': self.status,
                'artifact-update': self.chunk}[event['kind']](event)

    def task(self, task):
        same(task['kind'], 'task')
        return super().task(task)

    def state(self, status):
        return status['state']

    def part(self, part):
        match part.pop('kind'):
            case 'file':
                file = part['file']
                return Part(file=base64.b64decode(file['bytes'], validate=True), name=file['name'], media_type=file['mimeType'])
            case _:
                return Part(**part)

    def config(self, hook):
        return {'taskId': hook.task, 'pushNotificationConfig': {'id': hook.id, 'url': hook.url, 'token': hook.token}}

    def config_id(self, task, name=None):
        return {'id': task} | ({'pushNotificationConfigId': name} if name else {})

    def configs(self, answer):
        return answer

    def hook(self, config):
        inner = config['pushNotificationConfig']
        return PushConfig(config['taskId'], inner['id'], inner['url'], inner['token'])


class V03Rest(V10):
    """JSON of 0.3 over HTTP: ProtoJSON."""

    version, prefix, flags_final, header = '0.3', 'v1/', True, ()
    parts_key, status_message = 'content', 'message'

    def file(self, file):
        return {'file': {'fileWithBytes': encoded(file), 'name': file.name, 'mimeType': file.media_type}}

    def request(self, text, task, context, file=None):
        return {'request': self.message(text, task, context, file)}

    def state(self, status):
        return super().state(status).replace('cancelled', 'canceled')

    def part(self, part):
        if 'file' in part:
            file = part['file']
            return Part(file=base64.b64decode(file['fileWithBytes'], validate=True), name=file['name'],
                        media_type=file['mimeType'])
        return Part(data=part['data']['data']) if 'data' in part else Part(**part)

    def config(self, hook):
        name = f'tasks/{hook.task}/pushNotificationConfigs/{hook.id}'
        config = {'id': hook.id, 'url': hook.url, 'token': hook.token}
        return {'parent': f'tasks/{hook.task}', 'configId': hook.id, 'config': {'name': name, 'pushNotificationConfig': config}}

    def hook(self, config):
        _, task, _, name = config['name'].split('/')
        inner = config['pushNotificationConfig']
        same(inner['id'], name)
        return PushConfig(task, name, inner['url'], inner['token'])


def encoded(file):
    return base64.b64encode(file.file).decode()


def ids(task, context):
    return ({'taskId': task} if task else {}) | ({'contextId': context} if context else {})


async def resume_behind_the_last_event(client):
    """Resumes with Last-Event-ID, which no SDK sends: exactly the later events arrive."""
    first, at, task = client.streamed('slow 4', None, None), None, None
    async for at, event in first:
        task = task or event
        if getattr(event, 'status_text', '') == '1 of 4 seconds':
            break
    await first.aclose()
    events = [event async for event in client.subscribed(task.id, '-H', f'Last-Event-ID: {at}')]
    numbers = [int(number) for number, _ in events]
    check(int(at) < numbers[0] and numbers == sorted(set(numbers)), numbers)
    events = [event for _, event in events]
    same([event.status_text for event in events if isinstance(event, Status)], ['2 of 4 seconds', '3 of 4 seconds', ''])
    check(not any(isinstance(event, Task) for event in events), events)
    same(scenario.joined(events), {'slow': 'done'})
    same(scenario.final_status(events), (task.id, 'completed'))


async def connect(binding, version, url):
    if binding == 'JSONRPC':
        return JsonRpc(url, V10() if version == '1.0' else V03())
    return Rest(url, V10() if version == '1.0' else V03Rest())


if __name__ == '__main__':
    scenario.CHECKS.append(resume_behind_the_last_event)
    scenario.main(connect)
