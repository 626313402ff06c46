"""The client of a2a-sdk 0.3.26 over its three bindings."""

import grpc
import httpx
import scenario

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import GetTaskPushNotificationConfigParams, Message, TaskIdParams, TaskQueryParams
from shared_models import card_of, config, errors, event_of, push_config_of, message, task_of
from scenario import Refused


class Client(scenario.Client):
    flags_final = True

    def __init__(self, binding, card, url):
        self.errors = errors(binding)
        self.http, self.url = httpx.AsyncClient(), url
        # Over REST it does not read the status before the events of a subscription: every error is a 400.
        if binding == 'HTTP+JSON':
            self.subscribe_errors = dict.fromkeys(self.errors, 400)
        self.finished_can_be_subscribed = binding == 'GRPC'
        self.waiting, self.streaming = (
            ClientFactory(ClientConfig(
                streaming=streaming, supported_transports=[binding], grpc_channel_factory=grpc.aio.insecure_channel,
                httpx_client=self.http,
            )).create(card) for streaming in (False, True))

    async def close(self):
        await self.http.aclose()

    async def card(self):
        return card_of(await A2ACardResolver(self.http, self.url).get_agent_card())

    async def send(self, text, task=None, context=None, file=None):
        with Refusing():
            [answer] = [event async for event in self.waiting.send_message(message(text, task, context, file))]
            return self.event(answer)

    async def stream(self, text, task=None, context=None):
        async for event in self.events(self.streaming.send_message(message(text, task, context))):
            yield event

    async def get(self, task):
        with Refusing():
            return task_of(await self.waiting.get_task(TaskQueryParams(id=task)))

    async def cancel(self, task):
        with Refusing():
            return task_of(await self.waiting.cancel_task(TaskIdParams(id=task)))

    async def subscribe(self, task):
        async for event in self.events(self.streaming.resubscribe(TaskIdParams(id=task))):
            yield event

    async def set_push_config(self, hook):
        with Refusing():
            return push_config_of(await self.waiting.set_task_callback(config(hook)))

    async def get_push_config(self, task, name):
        request = GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=name)
        with Refusing():
            return push_config_of(await self.waiting.get_task_callback(request))

    async def events(self, stream):
        try:
            with Refusing():
                async for event in stream:
                    yield self.event(event)
        finally:
            await stream.aclose()

    def event(self, event):
        if isinstance(event, Message):
            return event_of(event)
        task, update = event
        return event_of(update or task)


class Refusing:
    """Returns the error from the three exception types of the SDK."""

    def __enter__(self):
        pass

    def __exit__(self, kind, error, _):
        match error:
            case A2AClientJSONRPCError():
                raise Refused(error.error.code) from error
            case A2AClientHTTPError():
                raise Refused(error.status_code) from error
            case grpc.aio.AioRpcError():
                raise Refused(error.code().name) from error


async def connect(binding, _, url):
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    return Client(binding, card, url)


if __name__ == '__main__':
    scenario.main(connect)
