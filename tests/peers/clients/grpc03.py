"""Plain gRPC of version 0.3: only the stubs and messages of a2a.v1."""

import uuid

import grpc
import httpx
import scenario

from a2a.client import A2ACardResolver
from a2a.grpc import a2a_pb2 as pb
from a2a.grpc.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import MessageToDict
from shared_models import CODES, card_of
from scenario import AgentMessage, Chunk, Part, PushConfig, Refused, Status, Task


class Client(scenario.Client):
    # The code, and the error name that 0.3 puts before the message.
    errors = {name: (codes[2], f'{name}Error') for name, codes in CODES.items()}
    flags_final = finished_can_be_subscribed = True

    def __init__(self, card, url):
        self.url = url
        [target] = [interface.url for interface in card.additional_interfaces if interface.transport == 'GRPC']
        # A name of its own: the server expects that the SDK is behind the default one, and sends base64 text as bytes.
        self.channel = grpc.aio.insecure_channel(target, [('grpc.primary_user_agent', 'stubs')])
        self.stub = A2AServiceStub(self.channel)

    async def close(self):
        await self.channel.close()

    async def card(self):
        return card_of(await card_at(self.url))

    async def call(self, name, request):
        try:
            return await getattr(self.stub, name)(request)
        except grpc.aio.AioRpcError as error:
            raise Refused(reason(error)) from error

    async def events(self, name, request):
        call = getattr(self.stub, name)(request)
        try:
            async for event in call:
                yield event_of(event)
        except grpc.aio.AioRpcError as error:
            raise Refused(reason(error)) from error
        finally:
            call.cancel()

    async def send(self, text, task=None, context=None, file=None):
        return event_of(await self.call('SendMessage', message(text, task, context, file)))

    def stream(self, text, task=None, context=None):
        return self.events('SendStreamingMessage', message(text, task, context))

    async def get(self, task):
        return task_of(await self.call('GetTask', pb.GetTaskRequest(name=f'tasks/{task}')))

    async def cancel(self, task):
        return task_of(await self.call('CancelTask', pb.CancelTaskRequest(name=f'tasks/{task}')))

    def subscribe(self, task):
        return self.events('TaskSubscription', pb.TaskSubscriptionRequest(name=f'tasks/{task}'))

    async def set_push_config(self, hook):
        config = pb.PushNotificationConfig(id=hook.id, url=hook.url, token=hook.token)
        request = pb.CreateTaskPushNotificationConfigRequest(
            parent=f'tasks/{hook.task}', config_id=hook.id,
            config=pb.TaskPushNotificationConfig(name=named(hook.task, hook.id), push_notification_config=config))
        return push_config_of(await self.call('CreateTaskPushNotificationConfig', request))

    async def get_push_config(self, task, name):
        request = pb.GetTaskPushNotificationConfigRequest(name=named(task, name))
        return push_config_of(await self.call('GetTaskPushNotificationConfig', request))

    async def list_push_configs(self, task):
        request = pb.ListTaskPushNotificationConfigRequest(parent=f'tasks/{task}')
        return [push_config_of(config) for config in (await self.call('ListTaskPushNotificationConfig', request)).configs]

    async def delete_push_config(self, task, name):
        request = pb.DeleteTaskPushNotificationConfigRequest(name=named(task, name))
        await self.call('DeleteTaskPushNotificationConfig', request)


def reason(error):
    return error.code().name, error.details().partition(': ')[0]


def named(task, name):
    return f'tasks/{task}/pushNotificationConfigs/{name}'


def message(text, task, context, file=None):
    parts = [pb.Part(text=text)]
    if file:
        parts.append(pb.Part(file=pb.FilePart(file_with_bytes=file.file, name=file.name, mime_type=file.media_type)))
    return pb.SendMessageRequest(
        request=pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, content=parts,
                           task_id=task or '', context_id=context or ''),
        configuration=pb.SendMessageConfiguration(blocking=True))


def event_of(event):
    match event.WhichOneof('payload'):
        case 'task':
            return task_of(event.task)
        case 'msg':
            return AgentMessage(parts_of(event.msg.content))
        case 'status_update':
            update = event.status_update
            return Status(update.task_id, state_of(update.status), status_text(update.status), update.final)
        case 'artifact_update':
            update = event.artifact_update
            return Chunk(update.task_id, update.artifact.artifact_id, update.artifact.name,
                         parts_of(update.artifact.parts), update.append, update.last_chunk)


def task_of(task):
    return Task(
        task.id, task.context_id, state_of(task.status), status_text(task.status),
        [(artifact.name, parts_of(artifact.parts)) for artifact in task.artifacts],
        [scenario.text(parts_of(message.content)) for message in task.history],
    )


def state_of(status):
    state = pb.TaskState.Name(status.state).removeprefix('TASK_STATE_').lower().replace('_', '-')
    return {'cancelled': 'canceled'}.get(state, state)


def status_text(status):
    return scenario.text(parts_of(status.update.content))


def parts_of(parts):
    return [part_of(part) for part in parts]


def part_of(part):
    match part.WhichOneof('part'):
        case 'text':
            return Part(text=part.text)
        case 'data':
            return Part(data=MessageToDict(part.data.data))
        case 'file':
            return Part(file=part.file.file_with_bytes, name=part.file.name, media_type=part.file.mime_type)


def push_config_of(config):
    _, task, _, name = config.name.split('/')
    inner = config.push_notification_config
    scenario.same(inner.id, name)
    return PushConfig(task, name, inner.url, inner.token)


async def card_at(url):
    async with httpx.AsyncClient() as http:
        return await A2ACardResolver(http, url).get_agent_card()


async def connect(_binding, _version, url):
    return Client(await card_at(url), url)


if __name__ == '__main__':
    scenario.main(connect)
