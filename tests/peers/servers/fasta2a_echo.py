"""An echo agent served by fasta2a 2.1.1. A message that continues a task starts another one in its context."""

import asyncio

from contextlib import asynccontextmanager

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Skill
from fasta2a.storage import InMemoryStorage

from server_process import bind, serve


class Echo(Worker):
    async def run_task(self, params):
        task, context, message = params["id"], params["context_id"], params["message"]
        text = "".join(part.get("text", "") for part in message["parts"])
        await self.storage.update_task(task, state="working")
        await self.publish_status(task, context, "working")
        if text == "slow":
            return
        if text == "ask":
            question = dict(role="agent", parts=[{"text": "What next?"}], message_id=f"{task}-question")
            await self.storage.update_task(task, state="input-required", new_messages=[question])
            await self.publish_status(task, context, "input-required", question)
            await self.broker.event_bus.close(task)
            return
        if text == "drip":
            chunks = [{"text": f"{n} "} for n in range(20)]
            for n, part in enumerate(chunks):
                chunk = dict(artifact_id="drip", name="echo", parts=[part])
                await self.publish_artifact(task, context, chunk, append=n > 0, last_chunk=n == 19)
            artifact = dict(artifact_id="drip", name="echo", parts=chunks)
        else:
            artifact = dict(artifact_id="echo", name="echo", parts=message["parts"])
            await self.publish_artifact(task, context, artifact)
        await self.storage.update_task(task, state="completed", new_artifacts=[artifact])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return [result]


async def main():
    listener, url = bind()
    broker, storage = InMemoryBroker(), InMemoryStorage()
    worker = Echo(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app):
        async with app.task_manager, worker.run():
            yield

    skill = Skill(id="echo", name="Echo", description="Says it back", tags=["echo"])
    app = FastA2A(
        storage=storage, broker=broker, name="Echo", description="Says it back", url=url, skills=[skill],
        lifespan=lifespan,
    )
    await serve(app, listener, url)


asyncio.run(main())
