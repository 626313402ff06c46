"""An echo agent served by agno 3.1.10. The URL of its card takes streams alone."""

import asyncio
import base64

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os.interfaces.a2a import A2A
from fastapi import FastAPI

from server_process import bind, serve


class Echo(Model):
    def answer(self, messages):
        message = next(message for message in reversed(messages) if message.role == "user")
        # The content of a file is the base64 text of the message.
        files = [base64.b64decode(file.content).decode() for file in message.files or []]
        return " ".join([message.content, *files])

    def invoke(self, messages, **_):
        return ModelResponse(role="assistant", content=self.answer(messages))

    async def ainvoke(self, messages, **_):
        return self.invoke(messages)

    def invoke_stream(self, messages, **_):
        for word in self.answer(messages).split(" "):
            yield ModelResponse(role="assistant", content=word + " ")

    async def ainvoke_stream(self, messages, **_):
        for response in self.invoke_stream(messages):
            yield response

    def _parse_provider_response(self, response, **_):
        return response

    def _parse_provider_response_delta(self, response):
        return response


async def main():
    listener, url = bind()
    agent = Agent(id="echo", name="Echo", description="Says it back", model=Echo(id="echo"), telemetry=False)
    app = FastAPI()
    app.include_router(A2A(agents=[agent]).get_router())
    await serve(app, listener, f"{url}/a2a/agents/echo")


asyncio.run(main())
