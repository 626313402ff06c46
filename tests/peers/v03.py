"""SdkProcess of protocol 0.3: reads and writes wire documents with the official Python SDK a2a-sdk 0.3.26.

Request:  {"type": name, "form": "json" | "restjson" | "proto", "payload": a JSON value, or hex for proto}
Answer:   {"ok": true, "json": ..., "proto": hex} or {"ok": false, "error": text}

json      the JSON-RPC form. Type is any model of a2a.types: the objects (Task, Message, ...), the params
          (MessageSendParams, TaskQueryParams, ...) and whole JSON-RPC bodies (SendMessageRequest,
          SendMessageResponse, SendStreamingMessageResponse, JSONRPCErrorResponse, ...). Unknown and repeated
          members, snake_case names, values of another JSON type and members that are null are refused.
          "proto" is the output of the SDK's converter, and is absent if the SDK has none.
restjson  ProtoJSON of a2a.v1, the HTTP+JSON form. Type is any message of a2a.v1.
proto     bytes of a2a.v1 in hex. Same types; unknown field numbers are refused.
          Both of these answer with the ProtoJSON and the deterministic encoding; "defaults": true in the
          request also writes members that hold their default.
The type UnionCard (form json) is a card of any version, read leniently as the SDK's card resolver does.
"""

import importlib.metadata
import json

from a2a import types
from a2a.grpc import a2a_pb2
from a2a.utils.proto_utils import ToProto
from pydantic import BaseModel, ValidationError

import sdk_process


def send_params(params):  # as the SDK's gRPC client puts the request together
    return a2a_pb2.SendMessageRequest(
        request=ToProto.message(params.message),
        configuration=ToProto.message_send_configuration(params.configuration),
        metadata=ToProto.metadata(params.metadata),
    )


def result(convert):
    """Converts the result of a JSON-RPC response. An error has no protobuf form."""
    return lambda body: convert(body.root.result) if hasattr(body.root, 'result') else None


TO_PROTO = {
    'AgentCard': ToProto.agent_card,
    'Artifact': ToProto.artifact,
    'Message': ToProto.message,
    'MessageSendConfiguration': ToProto.message_send_configuration,
    'MessageSendParams': send_params,
    'Part': ToProto.part,
    'PushNotificationConfig': ToProto.push_notification_config,
    'SecurityScheme': ToProto.security_scheme,
    'SendMessageResponse': result(ToProto.task_or_message),
    'SendStreamingMessageResponse': result(ToProto.stream_response),
    'Task': ToProto.task,
    'TaskArtifactUpdateEvent': ToProto.task_artifact_update_event,
    'TaskPushNotificationConfig': ToProto.task_push_notification_config,
    'TaskStatus': ToProto.task_status,
    'TaskStatusUpdateEvent': ToProto.task_status_update_event,
}


def read_model(kind, payload):
    if kind == 'UnionCard':
        return types.AgentCard.model_validate(payload)
    cls = getattr(types, kind, None)
    if not (isinstance(cls, type) and issubclass(cls, BaseModel)):
        raise ValueError(f'no model {kind}')
    try:
        return cls.model_validate_json(
            json.dumps(payload), strict=True, extra='forbid', by_alias=True, by_name=False
        )
    except ValidationError as fault:
        errors = ('.'.join(map(str, error['loc'])) + ': ' + error['msg'] for error in fault.errors())
        raise ValueError('; '.join(errors)) from None


def check_survival(given, kept, path, envelope):
    """Checks that every member is written again. The id and result of a JSON-RPC body may be null."""
    if isinstance(given, dict):
        for name, item in given.items():
            if isinstance(kept, dict) and name in kept:
                check_survival(item, kept[name], f'{path}.{name}', False)
            elif not (envelope and item is None and name in ('id', 'result')):
                raise ValueError(f'{path}.{name}: ' + ('null' if item is None else 'lost'))
    elif isinstance(given, list):
        for number, item in enumerate(given):
            check_survival(item, kept[number], f'{path}.{number}', False)


def to_proto(kind, model):
    try:
        message = TO_PROTO[kind](model)
        return {} if message is None else {'proto': message.SerializeToString(deterministic=True).hex()}
    except Exception:  # no converter, or a value it cannot take: the JSON stands on its own
        return {}


def answer(request):
    kind, form, payload = request['type'], request['form'], request['payload']
    if form == 'json':
        model = read_model(kind, payload)
        kept = model.model_dump(mode='json', by_alias=True, exclude_none=True)
        if kind == 'UnionCard':
            kind = 'AgentCard'
        else:
            check_survival(payload, kept, kind, 'jsonrpc' in kept)
        return {'json': kept} | to_proto(kind, model)
    if form not in ('restjson', 'proto'):
        raise ValueError(f'no form {form}')
    read = sdk_process.read_json if form == 'restjson' else sdk_process.read_proto
    return sdk_process.written(read(sdk_process.message_class(a2a_pb2, kind), payload), request)


if __name__ == '__main__':
    sdk_process.serve(importlib.metadata.version('a2a-sdk'), answer)
