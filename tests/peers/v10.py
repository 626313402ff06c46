"""SdkProcess of protocol 1.0: reads and writes wire documents with the official Python SDK a2a-sdk 1.3.0.

Request:  {"type": name, "form": "json" | "proto", "payload": a JSON value, or hex for proto}
Answer:   {"ok": true, "json": ..., "proto": hex, "missing": [...]} or {"ok": false, "error": text}

Type is any message of lf.a2a.v1. Unknown members, snake_case names, repeated members and unknown field
numbers are refused. "json" is written without members that hold their default ("defaults": true in the
request writes those too), "proto" is the deterministic encoding. "missing" names, in proto spelling, the
REQUIRED fields that are unset or empty; it is absent when there are none.

Special types, form json only:
  UnionCard     a card of any version, read as the SDK's card resolver reads it; answered like AgentCard.
  JSONRPCError  {code, message, data}: the error member of a JSON-RPC response.
  RESTError     {status, body}: an HTTP+JSON error response.
  GRPCError     {code, message, details}: a gRPC status, details being grpc-status-details-bin in hex.
The last three are given to the SDK's client and answered with the exception that it raises, as
{"class": name, "message": text, "data": value or null}. A2AClientError means that the error was not recognized.
"""

import asyncio
import importlib.metadata

import httpx

from a2a.client.card_resolver import parse_agent_card
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.types import a2a_pb2
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields

import sdk_process


def raised_over_http(transport, status, body):
    """Returns the exception that GetTask raises for this response."""

    async def call():
        server = httpx.MockTransport(lambda _: httpx.Response(status, json=body))
        async with httpx.AsyncClient(transport=server) as client:
            client_side = transport(client, a2a_pb2.AgentCard(), 'http://agent.test')
            await client_side.get_task(a2a_pb2.GetTaskRequest(id='t'))

    return raised(lambda: asyncio.run(call()))


def raised_over_grpc(code, message, details=None):
    import grpc

    from a2a.client.transports.grpc import _map_grpc_error

    status = {status.value[0]: status for status in grpc.StatusCode}[code]
    trailer = grpc.aio.Metadata()
    if details is not None:
        trailer.add('grpc-status-details-bin', bytes.fromhex(details))
    return raised(lambda: _map_grpc_error(grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailer, message)))


def raised(call):
    try:
        call()
    except Exception as fault:
        if not type(fault).__module__.startswith('a2a.'):
            raise
        data = getattr(fault, 'data', None)
        return {'json': {'class': type(fault).__name__, 'message': str(fault), 'data': data}}
    raise ValueError('the SDK takes this for a success')


def answer(request):
    kind, form, payload = request['type'], request['form'], request['payload']
    if form not in ('json', 'proto'):
        raise ValueError(f'no form {form}')
    if form == 'json':
        if kind == 'JSONRPCError':
            return raised_over_http(JsonRpcTransport, 200, {'jsonrpc': '2.0', 'id': 1, 'error': payload})
        if kind == 'RESTError':
            return raised_over_http(RestTransport, payload['status'], payload['body'])
        if kind == 'GRPCError':
            return raised_over_grpc(**payload)
        if kind == 'UnionCard':
            return document(parse_agent_card(payload), request)
    cls = sdk_process.message_class(a2a_pb2, kind)
    read = sdk_process.read_json if form == 'json' else sdk_process.read_proto
    return document(read(cls, payload), request)


def document(message, request):
    reply = sdk_process.written(message, request)
    try:
        validate_proto_required_fields(message)
    except InvalidParamsError as fault:
        reply['missing'] = [error['field'] for error in fault.data['errors']]
    return reply


if __name__ == '__main__':
    sdk_process.serve(importlib.metadata.version('a2a-sdk'), answer)
