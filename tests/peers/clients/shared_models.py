"""Conversion of the models that a2a-sdk 0.2 and 0.3 share into values of the scenario."""

import base64
import uuid

import scenario

from a2a.types import FilePart, FileWithBytes, Message, PushNotificationConfig, Role, Task, TaskPushNotificationConfig
from a2a.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent, TextPart
from scenario import AgentMessage, Chunk, Part, PushConfig, Status

# Error codes of JSON-RPC, and of HTTP and gRPC in 0.3.
CODES = {
    'TaskNotFound': (-32001, 404, 'NOT_FOUND'),
    'TaskNotCancelable': (-32002, 409, 'FAILED_PRECONDITION'),
    'PushNotificationNotSupported': (-32003, 501, 'UNIMPLEMENTED'),
    'UnsupportedOperation': (-32004, 501, 'UNIMPLEMENTED'),
}


def errors(binding):
    place = ['JSONRPC', 'HTTP+JSON', 'GRPC'].index(binding)
    return {name: codes[place] for name, codes in CODES.items()}


def message(text, task, context, file=None):
    parts = [TextPart(text=text)]
    if file:
        content = base64.b64encode(file.file).decode()
        parts.append(FilePart(file=FileWithBytes(bytes=content, name=file.name, mime_type=file.media_type)))
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=parts, task_id=task, context_id=context)


def event_of(event):
    match event:
        case Task():
            return task_of(event)
        case Message():
            return AgentMessage(parts_of(event.parts))
        case TaskStatusUpdateEvent():
            return Status(event.task_id, event.status.state.value, status_text(event.status), event.final)
        case TaskArtifactUpdateEvent():
            artifact = event.artifact
            return Chunk(event.task_id, artifact.artifact_id, artifact.name, parts_of(artifact.parts),
                         bool(event.append), bool(event.last_chunk))


def task_of(task):
    return scenario.Task(
        task.id, task.context_id, task.status.state.value, status_text(task.status),
        [(artifact.name, parts_of(artifact.parts)) for artifact in task.artifacts or []],
        [scenario.text(parts_of(message.parts)) for message in task.history or []],
    )


def status_text(status):
    return scenario.text(parts_of(status.message.parts)) if status.message else ''


def parts_of(parts):
    return [part_of(part.root) for part in parts]


def part_of(part):
    match part.kind:
        case 'text':
            return Part(text=part.text)
        case 'data':
            return Part(data=part.data)
        case 'file':
            content = base64.b64decode(part.file.bytes, validate=True)
            return Part(file=content, name=part.file.name, media_type=part.file.mime_type)


def config(hook):
    return TaskPushNotificationConfig(
        task_id=hook.task, push_notification_config=PushNotificationConfig(id=hook.id, url=hook.url, token=hook.token))


def push_config_of(config):
    inner = config.push_notification_config
    return PushConfig(config.task_id, inner.id, inner.url, inner.token)


def card_of(card):
    return {
        'name': card.name, 'description': card.description, 'streaming': card.capabilities.streaming,
        'push': bool(card.capabilities.push_notifications), 'skills': [skill.id for skill in card.skills],
    }
