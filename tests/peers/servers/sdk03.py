"""An echo agent served by a2a-sdk 0.3.26, over its three bindings."""

import asyncio

import grpc
import httpx
from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import (
    BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TextPart
from a2a.utils import new_task
from starlette.applications import Starlette
from starlette.routing import Mount

from server_process import bind, serve, work


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


async def main():
    listener, url = bind()
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    card = AgentCard(
        name="Echo", description="Says it back", version="1", url=f"{url}/rpc", preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(url=f"{url}/rest", transport="HTTP+JSON"),
            AgentInterface(url=grpc_address, transport="GRPC"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True), default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Says it back", tags=["echo"])],
    )
    configs = InMemoryPushNotificationConfigStore()
    sender = BasePushNotificationSender(httpx_client=httpx.AsyncClient(), config_store=configs)
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), push_config_store=configs, push_sender=sender,
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), grpc_server)
    rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()
    app = Starlette(routes=A2AStarletteApplication(card, handler).routes(rpc_url="/rpc") + [Mount("/rest", rest)])
    await serve(app, listener, url, grpc_server)


asyncio.run(main())
