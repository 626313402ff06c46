"""An echo agent served by a2a-sdk 0.2.16, over JSON-RPC and gRPC."""

import asyncio

from a2a.grpc import a2a_pb2_grpc
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers.grpc_handler import GrpcHandler

from legacy_sdk import bind_grpc, echo_card, echo_handler
from server_process import bind, serve


async def main():
    listener, url = bind()
    grpc_server, grpc_interface = bind_grpc()
    card = echo_card(url, [grpc_interface])
    handler = echo_handler()
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), grpc_server)
    await serve(A2AStarletteApplication(card, handler).build(rpc_url="/rpc"), listener, url, grpc_server)


asyncio.run(main())
