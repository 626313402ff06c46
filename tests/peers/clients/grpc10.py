"""Plain gRPC of version 1.0: only the stubs. Values are converted like in the SDK adapter."""

import grpc
import scenario
import sdk10

from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from scenario import Refused
from sdk10 import event_of, push_config_of, message, task_of


class Client(scenario.Client):
    errors = {
        'TaskNotFound': ('NOT_FOUND', 'TASK_NOT_FOUND'),
        'TaskNotCancelable': ('FAILED_PRECONDITION', 'TASK_NOT_CANCELABLE'),
        'PushNotificationNotSupported': ('FAILED_PRECONDITION', 'PUSH_NOTIFICATION_NOT_SUPPORTED'),
        'UnsupportedOperation': ('FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION'),
    }

    def __init__(self, card, url):
        self.url = url
        interfaces = [i.url for i in card.supported_interfaces
                      if (i.protocol_binding, i.protocol_version) == ('GRPC', '1.0')]
        self.channel = grpc.aio.insecure_channel(*interfaces)
        self.stub = A2AServiceStub(self.channel)

    async def close(self):
        await self.channel.close()

    card = sdk10.Client.card

    async def call(self, name, request):
        try:
            return await getattr(self.stub, name)(request, metadata=[('a2a-version', '1.0')])
        except grpc.aio.AioRpcError as error:
            raise Refused(reason(error)) from error

    async def events(self, name, request):
        call = getattr(self.stub, name)(request, metadata=[('a2a-version', '1.0')])
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
        return task_of(await self.call('GetTask', pb.GetTaskRequest(id=task)))

    async def cancel(self, task):
        return task_of(await self.call('CancelTask', pb.CancelTaskRequest(id=task)))

    def subscribe(self, task):
        return self.events('SubscribeToTask', pb.SubscribeToTaskRequest(id=task))

    async def list(self, context, size, token):
        page = await self.call('ListTasks', pb.ListTasksRequest(context_id=context, page_size=size, page_token=token))
        return [task_of(task) for task in page.tasks], page.next_page_token, page.total_size

    async def set_push_config(self, hook):
        config = pb.TaskPushNotificationConfig(task_id=hook.task, id=hook.id, url=hook.url, token=hook.token)
        return push_config_of(await self.call('CreateTaskPushNotificationConfig', config))

    async def get_push_config(self, task, name):
        request = pb.GetTaskPushNotificationConfigRequest(task_id=task, id=name)
        return push_config_of(await self.call('GetTaskPushNotificationConfig', request))

    async def list_push_configs(self, task):
        request = pb.ListTaskPushNotificationConfigsRequest(task_id=task)
        return [push_config_of(config) for config in (await self.call('ListTaskPushNotificationConfigs', request)).configs]

    async def delete_push_config(self, task, name):
        request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id=name)
        await self.call('DeleteTaskPushNotificationConfig', request)


def reason(error):
    """Returns the code, and the reason in the typed details of the trailers."""
    details = Status.FromString(dict(error.trailing_metadata())['grpc-status-details-bin'])
    scenario.same((details.code, details.message), (error.code().value[0], error.details()))
    info = ErrorInfo()
    scenario.check(details.details[0].Unpack(info) and info.domain == 'a2a-protocol.org', details)
    return error.code().name, info.reason


async def connect(_binding, _version, url):
    return Client(await sdk10.card_at(url), url)


if __name__ == '__main__':
    scenario.main(connect)
