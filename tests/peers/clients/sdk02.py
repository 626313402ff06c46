"""The client of a2a-sdk 0.2.16: JSON-RPC, and gRPC with a given stub. It cannot resubscribe."""

import uuid

import grpc
import httpx
import scenario

from a2a import types
from a2a.client import A2ACardResolver, A2AClient
from a2a.client.grpc_client import A2AGrpcClient
from a2a.grpc.a2a_pb2_grpc import A2AServiceStub
from shared_models import card_of, config, errors, event_of, push_config_of, message
from scenario import Refused


class JsonRpc(scenario.Client):
    flags_final = True
    errors = errors('JSONRPC')

    def __init__(self, http, card, url):
        self.http, self.url = http, url
        self.client = A2AClient(http, agent_card=card)

    async def close(self):
        await self.http.aclose()

    async def card(self):
        return card_of(await A2ACardResolver(self.http, self.url).get_agent_card())

    async def send(self, text, task=None, context=None, file=None):
        params = types.MessageSendParams(message=message(text, task, context, file))
        return event_of(result(await self.client.send_message(types.SendMessageRequest(id=fresh(), params=params))))

    async def stream(self, text, task=None, context=None):
        params = types.MessageSendParams(message=message(text, task, context))
        answers = self.client.send_message_streaming(types.SendStreamingMessageRequest(id=fresh(), params=params))
        try:
            async for answer in answers:
                yield event_of(result(answer))
        finally:
            await answers.aclose()

    async def get(self, task):
        params = types.TaskQueryParams(id=task)
        return event_of(result(await self.client.get_task(types.GetTaskRequest(id=fresh(), params=params))))

    async def cancel(self, task):
        params = types.TaskIdParams(id=task)
        return event_of(result(await self.client.cancel_task(types.CancelTaskRequest(id=fresh(), params=params))))

    async def set_push_config(self, hook):
        request = types.SetTaskPushNotificationConfigRequest(id=fresh(), params=config(hook))
        return push_config_of(result(await self.client.set_task_callback(request)))

    async def get_push_config(self, task, name):
        params = types.GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=name)
        request = types.GetTaskPushNotificationConfigRequest(id=fresh(), params=params)
        return push_config_of(result(await self.client.get_task_callback(request)))


class Grpc(scenario.Client):
    errors = errors('GRPC')
    flags_final = True
    # It reads every response as a task, even a message. It knows fewer states, and only the content of a file.
    reads_replies = False
    unknown_states = ('rejected', 'auth-required')
    reads_of_files = ()
    # It omits the config id when it gets a push config, and the task id when it sets one.
    set_push_config = get_push_config = None

    def __init__(self, http, card, url):
        self.http, self.url = http, url
        [target] = [interface.url for interface in card.additional_interfaces if interface.transport == 'GRPC']
        self.channel = grpc.aio.insecure_channel(target)
        self.client = A2AGrpcClient(A2AServiceStub(self.channel), card)

    async def close(self):
        await self.channel.close()
        await self.http.aclose()

    card = JsonRpc.card

    async def send(self, text, task=None, context=None, file=None):
        return await self.call(self.client.send_message(self.params(text, task, context, file)))

    async def stream(self, text, task=None, context=None):
        events = self.client.send_message_streaming(self.params(text, task, context))
        try:
            async for event in events:
                yield event_of(event)
        except grpc.aio.AioRpcError as error:
            raise Refused(error.code().name) from error
        finally:
            await events.aclose()

    async def get(self, task):
        return await self.call(self.client.get_task(types.TaskQueryParams(id=task)))

    async def cancel(self, task):
        return await self.call(self.client.cancel_task(types.TaskIdParams(id=task)))

    async def call(self, call):
        try:
            return event_of(await call)
        except grpc.aio.AioRpcError as error:
            raise Refused(error.code().name) from error

    def params(self, text, task, context, file=None):
        # Its protobuf cannot leave `blocking` unset, and sends false.
        configuration = types.MessageSendConfiguration(accepted_output_modes=[], blocking=True)
        return types.MessageSendParams(message=message(text, task, context, file), configuration=configuration)


def fresh():
    return str(uuid.uuid4())


def result(answer):
    if isinstance(answer.root, types.JSONRPCErrorResponse):
        raise Refused(answer.root.error.code)
    return answer.root.result


async def connect(binding, _, url):
    http = httpx.AsyncClient()
    card = await A2ACardResolver(http, url).get_agent_card()
    return {'JSONRPC': JsonRpc, 'GRPC': Grpc}[binding](http, card, url)


if __name__ == '__main__':
    scenario.main(connect)
