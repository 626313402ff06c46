"""The client of selectools 1.3.0: send and get over JSON-RPC. It can neither name a task nor stream nor cancel."""

import base64

import scenario

from scenario import Part, Refused, Task
from selectools.a2a import A2AClient, A2AError


class Client(scenario.Client):
    errors = {'TaskNotFound': -32001}
    continues_tasks = sends_files = False
    reads_replies = False  # it reads every answer as a task

    def __init__(self, url):
        self.client = A2AClient(url)

    async def close(self):
        pass

    async def card(self):
        card = await self.client.discover()
        return {
            'name': card.name, 'description': card.description, 'streaming': card.capabilities['streaming'],
            'push': card.capabilities['pushNotifications'], 'skills': [skill.id for skill in card.skills],
        }

    async def send(self, text, context=None):
        return task_of(await self.client.send_task(text, context_id=context))

    async def get(self, task):
        try:
            return task_of(await self.client.get_task(task))
        except A2AError as error:
            raise Refused(error.code) from error


def task_of(task):
    """Converts what the client parsed. Only parts that it leaves alone come from the document."""
    artifacts = [(artifact['name'], [part_of(part) for part in artifact['parts']])
                 for artifact in task.raw.get('artifacts', [])]
    scenario.same(task.text, ''.join(part.text or '' for _, parts in artifacts for part in parts))
    history = [''.join(part['text'] for part in message['parts']) for message in task.raw['history']]
    return Task(task.id, task.context_id, task.state, task.error, artifacts, history)


def part_of(part):
    match part['kind']:
        case 'text':
            return Part(text=part['text'])
        case 'data':
            return Part(data=part['data'])
        case 'file':
            file = part['file']
            content = base64.b64decode(file['bytes'], validate=True)
            return Part(file=content, name=file['name'], media_type=file['mimeType'])


async def connect(_binding, _version, url):
    return Client(url)


if __name__ == '__main__':
    scenario.main(connect)
