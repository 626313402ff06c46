"""An echo agent served by selectools 1.3.0. It has no streams and no questions, and every task ends within its call."""

import asyncio

from selectools import Agent, AgentConfig, Message, Role, tool
from selectools.a2a.server import A2AServer
from selectools.providers.stubs import LocalProvider

from server_process import bind, serve


class Echo(LocalProvider):
    def complete(self, *, messages, **rest):
        _, usage = super().complete(messages=messages, **rest)
        text = next(message.content for message in reversed(messages) if message.role == Role.USER)
        if text == "fail":
            raise RuntimeError("as you asked")
        return Message(role=Role.ASSISTANT, content=text), usage


@tool(description="Says it back")
def echo(text: str) -> str:
    return text


async def main():
    listener, url = bind()
    agent = Agent(tools=[echo], provider=Echo(), config=AgentConfig(name="Echo"))
    # Its default: a card without a URL.
    await serve(A2AServer(agent=agent), listener, url)


asyncio.run(main())
