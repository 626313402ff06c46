"""The echo agent of a2a-sdk 0.2 and 0.3, whose classes have the same names, with its card and request handler."""

import grpc
import httpx
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TextPart
from a2a.utils import new_task

from server_process import work


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        if context.current_task is None:
            await event_queue.enqueue_event(new_task(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        files = [part for part in context.message.parts if part.root.kind == "file"]
        if files:
            await updater.add_artifact(files, name="file")
        await work(context.get_user_input(), updater, lambda text: Part(root=TextPart(text=text)))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def bind_grpc():
    """Returns a gRPC server on a free port, and its interface."""
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    return server, AgentInterface(url=address, transport="GRPC")


def echo_card(url, interfaces):
    """The card of an agent with JSON-RPC below a URL and further interfaces."""
    return AgentCard(
        name="Echo", description="Says it back", version="1", url=f"{url}/rpc", preferred_transport="JSONRPC",
        additional_interfaces=interfaces, capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Says it back", tags=["echo"])],
    )


def echo_handler():
    """A request handler that sends push notifications."""
    configs = InMemoryPushNotificationConfigStore()
    sender = BasePushNotificationSender(httpx_client=httpx.AsyncClient(), config_store=configs)
    return DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), push_config_store=configs, push_sender=sender,
    )
