"""An echo agent served by agentstack 0.7.1. Its answers are messages of working statuses."""

import asyncio

from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore
from a2a.types import AgentCapabilities, AgentSkill, FilePart, Message
from agentstack_sdk.a2a.types import AgentArtifact, InputRequired
from agentstack_sdk.server import Server

import httpx

from server_process import bind, end_with_stdin

server = Server()


@server.agent(
    name="Echo", description="Says it back", capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    skills=[AgentSkill(id="echo", name="Echo", description="Says it back", tags=["echo"])],
)
async def echo(message: Message):
    text = text_of(message)
    for part in message.parts:
        if isinstance(part.root, FilePart):
            yield AgentArtifact(name="file", parts=[part])
    if text == "slow":
        await asyncio.Event().wait()
    elif text == "ask":
        yield text_of((yield InputRequired(text="What next?")))
    elif text == "drip":
        for n in range(20):
            yield f"{n} "
    else:
        yield text


def text_of(message):
    return "".join(part.root.text for part in message.parts if part.root.kind == "text")


async def main():
    listener, url = bind()
    end_with_stdin()
    configs = InMemoryPushNotificationConfigStore()
    sender = BasePushNotificationSender(httpx_client=httpx.AsyncClient(), config_store=configs)
    serving = asyncio.create_task(server.serve(
        fd=listener.fileno(), url=url, self_registration=False, configure_logger=False, log_level="error",
        push_config_store=configs, push_sender=sender,
    ))
    while not (server.server and server.server.started):
        await asyncio.sleep(0.01)
    print(f"Listening on {url}", flush=True)
    await serving


asyncio.run(main())
