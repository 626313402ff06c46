"""An echo agent served by google-adk 2.13.0 (`to_a2a`). Its questions are function calls."""

import asyncio
import warnings

warnings.filterwarnings("ignore")

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types

from server_process import bind, serve


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx):
        def event(*parts, **more):
            content = types.Content(role="model", parts=list(parts))
            return Event(invocation_id=ctx.invocation_id, author=self.name, content=content, **more)

        parts = ctx.user_content.parts
        text = "".join(part.text or "" for part in parts)
        if answer := parts[0].function_response:
            yield event(types.Part(text=answer.response["answer"]))
        elif text == "slow":
            await asyncio.Event().wait()
        elif text == "ask":
            call = types.FunctionCall(id="call-1", name="ask_user", args={"question": "What next?"})
            yield event(types.Part(function_call=call), long_running_tool_ids={"call-1"})
        elif text == "drip":
            for n in range(20):
                yield event(types.Part(text=f"{n} "), partial=True)
            yield event(types.Part(text="".join(f"{n} " for n in range(20))))
        else:
            yield event(*parts)


async def main():
    listener, url = bind()
    agent = Echo(name="Echo", description="Says it back")
    await serve(to_a2a(agent, host="127.0.0.1", port=listener.getsockname()[1]), listener, url)


asyncio.run(main())
