"""An echo agent served by a2a-sdk 1.3.0, over its three bindings, with its support of 0.3 enabled."""

import asyncio

import grpc
import httpx
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater,
)
from a2a.types import a2a_pb2_grpc
from a2a.types.a2a_pb2 import (
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus,
)
from starlette.applications import Starlette

from server_process import bind, serve, work


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        files = [part for part in context.message.parts if part.WhichOneof("content") == "raw"]
        if files:
            await updater.add_artifact(files, name="file")
        await work(context.get_user_input(), updater, lambda text: Part(text=text))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main():
    listener, url = bind()
    grpc_server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    interfaces = [
        AgentInterface(url=at, protocol_binding=binding, protocol_version=version)
        for binding, at in [("JSONRPC", f"{url}/rpc"), ("HTTP+JSON", f"{url}/rest"), ("GRPC", grpc_address)]
        for version in ["1.0", "0.3"]
    ]
    card = AgentCard(
        name="Echo", description="Says it back", version="1", supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Says it back", tags=["echo"])],
    )
    configs = InMemoryPushNotificationConfigStore()
    sender = BasePushNotificationSender(httpx_client=httpx.AsyncClient(), config_store=configs)
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card, push_config_store=configs,
        push_sender=sender,
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), grpc_server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), grpc_server)
    routes = create_agent_card_routes(card)
    routes += create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
    routes += create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True)
    await serve(Starlette(routes=routes), listener, url, grpc_server)


asyncio.run(main())
