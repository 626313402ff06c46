"""google-adk as a client: reads the card by its URL, sends one message and prints the answer.

usage: adk_client.py URL
"""

import asyncio
import sys
import warnings

warnings.filterwarnings("ignore")

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main(url):
    card = f"{url.rstrip('/')}/.well-known/agent-card.json"
    agent = RemoteA2aAgent(name="attache", agent_card=card)
    runner = InMemoryRunner(agent=agent, app_name="peer")
    session = await runner.session_service.create_session(app_name="peer", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text="hello")])
    texts = []
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
        if event.error_message:
            return f"error: {event.error_message}"
        parts = event.content.parts if event.content else []
        texts += [part.text for part in parts if part.text and not part.thought]
    return f"answer: {texts[-1] if texts else ''}"


print(asyncio.run(main(sys.argv[1])))
