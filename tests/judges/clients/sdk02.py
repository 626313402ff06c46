"""The client of a2a-sdk 0.2.16: JSON-RPC. It cannot subscribe again."""

import uuid

import httpx
import scenario

from a2a import types
from a2a.client import A2ACardResolver, A2AClient
from old import card_of, config, errors, event_of, hook_of, message
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

    async def send(self, text, task=None, context=None):
        params = types.MessageSendParams(message=message(text, task, context))
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

    async def set_hook(self, hook):
        request = types.SetTaskPushNotificationConfigRequest(id=fresh(), params=config(hook))
        return hook_of(result(await self.client.set_task_callback(request)))

    async def get_hook(self, task, name):
        params = types.GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=name)
        request = types.GetTaskPushNotificationConfigRequest(id=fresh(), params=params)
        return hook_of(result(await self.client.get_task_callback(request)))


def fresh():
    return str(uuid.uuid4())


def result(answer):
    if isinstance(answer.root, types.JSONRPCErrorResponse):
        raise Refused(answer.root.error.code)
    return answer.root.result


async def connect(_binding, _version, url):
    http = httpx.AsyncClient()
    card = await A2ACardResolver(http, url).get_agent_card()
    return JsonRpc(http, card, url)


if __name__ == '__main__':
    scenario.main(connect)
