"""An echo agent served by a2a-sdk 0.3.26, over its three bindings."""

import asyncio

from a2a.grpc import a2a_pb2_grpc
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import GrpcHandler
from a2a.types import AgentInterface
from starlette.applications import Starlette
from starlette.routing import Mount

from legacy_sdk import bind_grpc, echo_card, echo_handler
from server_process import bind, serve


async def main():
    listener, url = bind()
    grpc_server, grpc_interface = bind_grpc()
    card = echo_card(url, [AgentInterface(url=f"{url}/rest", transport="HTTP+JSON"), grpc_interface])
    handler = echo_handler()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), grpc_server)
    rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()
    app = Starlette(routes=A2AStarletteApplication(card, handler).routes(rpc_url="/rpc") + [Mount("/rest", rest)])
    await serve(app, listener, url, grpc_server)


asyncio.run(main())
