"""The client of a2a-sdk 1.3.0: version 1.0 over its three bindings, and its fallback to 0.3."""

import uuid

from functools import wraps

import grpc
import httpx
import scenario

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict
from scenario import AgentMessage, Chunk, Part, PushConfig, Refused, Status, Task


def refusing(call):
    """Returns the error from its exception class; the SDK has one for every error."""
    @wraps(call)
    async def wrapper(*args, **named):
        try:
            return await call(*args, **named)
        except A2AError as error:
            raise Refused(type(error).__name__) from error
    return wrapper


class Client(scenario.Client):
    errors = {name: f'{name}Error' for name in (
        'TaskNotFound', 'TaskNotCancelable', 'UnsupportedOperation', 'PushNotificationNotSupported')}

    def __init__(self, binding, version, url, card):
        self.url = url
        if version == '0.3':
            # It falls back if the card offers no newer version.
            older = [interface for interface in card.supported_interfaces if interface.protocol_version == version]
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(older)
        self.waiting, self.streaming = (
            ClientFactory(ClientConfig(
                streaming=streaming, supported_protocol_bindings=[binding], grpc_channel_factory=grpc.aio.insecure_channel,
            )).create(card) for streaming in (False, True))
        if version == '0.3':
            self.list = None
            self.finished_can_be_subscribed = binding == 'GRPC'
            if binding == 'HTTP+JSON':  # the SDK says that its 0.3 over REST has neither
                self.list_push_configs = self.delete_push_config = None

    async def close(self):
        await self.waiting.close()
        await self.streaming.close()

    async def card(self):
        card = await card_at(self.url)
        return {
            'name': card.name, 'description': card.description, 'streaming': card.capabilities.streaming,
            'push': card.capabilities.push_notifications, 'skills': [skill.id for skill in card.skills],
        }

    @refusing
    async def send(self, text, task=None, context=None, file=None):
        [answer] = [event async for event in self.waiting.send_message(message(text, task, context, file))]
        return event_of(answer)

    async def stream(self, text, task=None, context=None):
        async for event in events(self.streaming.send_message(message(text, task, context))):
            yield event

    @refusing
    async def get(self, task):
        return task_of(await self.waiting.get_task(pb.GetTaskRequest(id=task)))

    @refusing
    async def cancel(self, task):
        return task_of(await self.waiting.cancel_task(pb.CancelTaskRequest(id=task)))

    async def subscribe(self, task):
        async for event in events(self.streaming.subscribe(pb.SubscribeToTaskRequest(id=task))):
            yield event

    async def list(self, context, size, token):
        request = pb.ListTasksRequest(context_id=context, page_size=size, page_token=token)
        page = await self.waiting.list_tasks(request)
        return [task_of(task) for task in page.tasks], page.next_page_token, page.total_size

    @refusing
    async def set_push_config(self, hook):
        config = pb.TaskPushNotificationConfig(task_id=hook.task, id=hook.id, url=hook.url, token=hook.token)
        return push_config_of(await self.waiting.create_task_push_notification_config(config))

    @refusing
    async def get_push_config(self, task, name):
        request = pb.GetTaskPushNotificationConfigRequest(task_id=task, id=name)
        return push_config_of(await self.waiting.get_task_push_notification_config(request))

    @refusing
    async def list_push_configs(self, task):
        request = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
        page = await self.waiting.list_task_push_notification_configs(request)
        return [push_config_of(config) for config in page.configs]

    @refusing
    async def delete_push_config(self, task, name):
        request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id=name)
        await self.waiting.delete_task_push_notification_config(request)


async def events(stream):
    try:
        async for event in stream:
            yield event_of(event)
    except A2AError as error:
        raise Refused(type(error).__name__) from error
    finally:
        await stream.aclose()


def message(text, task, context, file=None):
    parts = [pb.Part(text=text)]
    if file:
        parts.append(pb.Part(raw=file.file, filename=file.name, media_type=file.media_type))
    return pb.SendMessageRequest(message=pb.Message(
        message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=parts,
        task_id=task or '', context_id=context or '',
    ))


def event_of(event):
    match event.WhichOneof('payload'):
        case 'task':
            return task_of(event.task)
        case 'message':
            return AgentMessage(parts_of(event.message.parts))
        case 'status_update':
            update = event.status_update
            return Status(update.task_id, state_of(update.status), status_text(update.status))
        case 'artifact_update':
            update = event.artifact_update
            return Chunk(update.task_id, update.artifact.artifact_id, update.artifact.name,
                         parts_of(update.artifact.parts), update.append, update.last_chunk)


def task_of(task):
    return Task(
        task.id, task.context_id, state_of(task.status), status_text(task.status),
        [(artifact.name, parts_of(artifact.parts)) for artifact in task.artifacts],
        [scenario.text(parts_of(message.parts)) for message in task.history],
    )


def state_of(status):
    return pb.TaskState.Name(status.state).removeprefix('TASK_STATE_').lower().replace('_', '-')


def status_text(status):
    return scenario.text(parts_of(status.message.parts))


def parts_of(parts):
    return [part_of(part) for part in parts]


def part_of(part):
    match part.WhichOneof('content'):
        case 'text':
            return Part(text=part.text)
        case 'data':
            return Part(data=MessageToDict(part.data))
        case 'raw':
            return Part(file=part.raw, name=part.filename, media_type=part.media_type)


def push_config_of(config):
    return PushConfig(config.task_id, config.id, config.url, config.token)


async def card_at(url):
    async with httpx.AsyncClient() as http:
        return await A2ACardResolver(http, url).get_agent_card()


async def connect(binding, version, url):
    return Client(binding, version, url, await card_at(url))


if __name__ == '__main__':
    scenario.main(connect)
