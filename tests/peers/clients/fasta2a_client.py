"""The client of fasta2a 2.1.1: send, stream and get over JSON-RPC. It can neither cancel nor subscribe."""

import base64
import uuid

import scenario

from fasta2a.client import A2AClient
from scenario import AgentMessage, Chunk, Part, Refused, Status, Task


class Client(scenario.Client):
    errors = {'TaskNotFound': -32001, 'UnsupportedOperation': -32004}
    card = None

    def __init__(self, url):
        # It refuses cards whose skills have no modes, which the protocol allows.
        self.client = A2AClient(url)

    async def close(self):
        await self.client.http_client.aclose()

    async def send(self, text, task=None, context=None, file=None):
        return event_of(result(await self.client.send_message(message(text, task, context, file))))

    async def stream(self, text, task=None, context=None):
        answers = self.client.stream_message(message(text, task, context))
        try:
            async for answer in answers:
                yield event_of(result(answer))
        finally:
            await answers.aclose()

    async def get(self, task):
        return task_of(result(await self.client.get_task(task)))


def message(text, task, context, file=None):
    new = {'role': 'user', 'message_id': str(uuid.uuid4()), 'parts': [{'text': text}]}
    if file:
        content = base64.b64encode(file.file).decode()
        new['parts'].append({'raw': content, 'filename': file.name, 'media_type': file.media_type})
    if task:
        new['task_id'] = task
    if context:
        new['context_id'] = context
    return new


def result(answer):
    if 'error' in answer:
        raise Refused(answer['error']['code'])
    return answer['result']


def event_of(event):
    if task := event.get('task'):
        return task_of(task)
    if message := event.get('message'):
        return AgentMessage([part_of(part) for part in message['parts']])
    if update := event.get('status_update'):
        return Status(update['task_id'], update['status']['state'], status_text(update['status']))
    update = event['artifact_update']
    artifact = update['artifact']
    parts = [part_of(part) for part in artifact['parts']]
    flags = update.get('append', False), update.get('last_chunk', False)
    return Chunk(update['task_id'], artifact['artifact_id'], artifact.get('name'), parts, *flags)


def task_of(task):
    artifacts = [(artifact.get('name'), [part_of(part) for part in artifact['parts']])
                 for artifact in task.get('artifacts', [])]
    history = [text_of(message) for message in task.get('history', [])]
    return Task(task['id'], task['context_id'], task['status']['state'], status_text(task['status']), artifacts, history)


def status_text(status):
    return text_of(status['message']) if 'message' in status else ''


def text_of(message):
    return ''.join(part.get('text', '') for part in message['parts'])


def part_of(part):
    if 'text' in part:
        return Part(text=part['text'])
    if 'data' in part:
        return Part(data=part['data'])
    content = base64.b64decode(part['raw'], validate=True)
    return Part(file=content, name=part['filename'], media_type=part['media_type'])


async def connect(_binding, _version, url):
    return Client(url)


if __name__ == '__main__':
    scenario.main(connect)
