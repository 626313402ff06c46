"""google-adk 2.13.0 as a client: `RemoteA2aAgent` by URL. It sends streams, and can neither get nor cancel a task.

usage: adk_session.py <url of the demo>
"""

import asyncio
import logging
import signal
import sys
import warnings

warnings.filterwarnings('ignore')
logging.disable(logging.CRITICAL)

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from scenario import ALL, TIDES, UPLOAD, check, same, stored_files

QUESTION = 'mock_function_call_for_required_user_input'


class Session:
    """A conversation with the agent at a URL."""

    def __init__(self, url):
        self.url = url
        self.sessions = InMemorySessionService()
        agent = RemoteA2aAgent(name='peer', agent_card=f'{url.rstrip("/")}/.well-known/agent-card.json')
        self.runner = Runner(app_name='peers', agent=agent, session_service=self.sessions)
        self.session = None

    async def send(self, *parts):
        """Sends a message, and returns the parts of the agent with the flag of partial ones, and the task."""
        if self.session is None:
            self.session = await self.sessions.create_session(app_name='peers', user_id='ada')
        content = types.Content(role='user', parts=list(parts))
        received, task = [], None
        async for event in self.runner.run_async(user_id='ada', session_id=self.session.id, new_message=content):
            check(event.error_message is None, event.error_message)
            task = (event.custom_metadata or {}).get('a2a:task_id', task)
            received += [(event.partial, part) for part in (event.content.parts if event.content else [])]
        return received, task

    async def text(self, text):
        received, task = await self.send(types.Part(text=text))
        return [part.text for _, part in received], task


async def send(url):
    same((await Session(url).text('hello, wörld 🌍'))[0], ['hello, wörld 🌍'])


async def reply(url):
    same((await Session(url).text('reply'))[0], ['a plain message, and no task'])


async def failure(url):
    check('it did not work, as you asked' in (await Session(url).text('fail'))[0], 'the message of a failed task')


async def stream(url):
    received, _ = await Session(url).send(types.Part(text='stream 50 20'))
    chunks = [part.text for partial, part in received if partial]
    same([len(chunk) for chunk in chunks], [20] * 50)
    for number, chunk in enumerate(chunks, 1):
        check(chunk.startswith(f'chunk {number} of 50 '), chunk)


async def ask(url):
    session = Session(url)
    received, task = await session.send(types.Part(text='ask'))
    [(_, question)] = received
    same((question.function_call.name, question.function_call.args), (QUESTION, {'input_required': 'What is your name?'}))
    answered, same_task = await session.text('Ada')
    same((answered[-1], same_task), ('Hello, Ada!', task))


async def files(url):
    received, _ = await Session(url).send(types.Part(text='file'))
    file = received[0][1].inline_data
    same((file.data, file.display_name, file.mime_type), (TIDES, 'tides.csv', 'text/csv'))
    blob = types.Blob(data=UPLOAD, display_name='all.bin', mime_type='application/octet-stream')
    received, task = await Session(url).send(types.Part(text='keep this'), types.Part(inline_data=blob))
    [echoed] = [part.inline_data for _, part in received if part.inline_data]
    same((echoed.data, echoed.display_name, echoed.mime_type), (UPLOAD, 'all.bin', 'application/octet-stream'))
    same(await asyncio.to_thread(stored_files, url, task), [UPLOAD])


async def main():
    for run in (send, reply, failure, stream, ask, files):
        await run(sys.argv[1])
        print(f'{run.__name__}: ok')


signal.alarm(ALL)
asyncio.run(main())
