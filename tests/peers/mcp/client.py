"""The official MCP client against `attache mcp`: python client.py '{"command": [...]}' or '{"url": ..., "key": ...}'.

The server exposes the agents `echo` and `practice`, and calls wait less than a second. Prints `ok`, or fails.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


def text(result):
    return '\n'.join(block.text for block in result.content if block.type == 'text')


def stands(result):
    return result.structured_content['state']


async def scenario(client):
    assert client.server_info.name == 'attache', client.server_info
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ['echo', 'practice', 'get_task', 'wait_for_task', 'continue_task', 'cancel_task'], tools
    assert tools['practice'].input_schema['required'] == ['message']

    hello = await client.call_tool('echo', {'message': 'hello'})
    assert not hello.is_error and stands(hello) == 'completed' and hello.content[0].text == 'hello', hello

    asked = await client.call_tool('practice', {'message': 'ask'})
    assert not asked.is_error and stands(asked) == 'input-required', asked
    task = asked.structured_content['taskId']
    assert 'The agent asks: ' in text(asked) and f'continue_task and task_id {task}' in text(asked), text(asked)
    answered = await client.call_tool('continue_task', {'task_id': task, 'message': 'Ada'})
    assert stands(answered) == 'completed' and 'Ada' in text(answered), answered

    failed = await client.call_tool('practice', {'message': 'fail'})
    assert failed.is_error and stands(failed) == 'failed', failed

    files = await client.call_tool('practice', {'message': 'file'})
    assert any(block.type == 'resource' for block in files.content), files

    heard = []

    async def progress(done, total, message):
        heard.append((done, message))

    slow = await client.call_tool('practice', {'message': 'slow 60'}, progress_callback=progress)
    assert not slow.is_error and stands(slow) == 'working', slow
    task = slow.structured_content['taskId']
    assert f'wait_for_task and task_id {task}' in text(slow), text(slow)
    waited = await client.call_tool('wait_for_task', {'task_id': task}, progress_callback=progress)
    while not heard:
        waited = await client.call_tool('wait_for_task', {'task_id': task}, progress_callback=progress)
    assert stands(waited) == 'working' and heard[0][1], (waited, heard)
    return task


async def elsewhere(client, task):
    """A long task is reached by its id from every client."""
    looked = await client.call_tool('get_task', {'task_id': task})
    assert stands(looked) == 'working', looked
    stopped = await client.call_tool('cancel_task', {'task_id': task})
    assert not stopped.is_error and stands(stopped) == 'canceled', stopped
    for name, arguments, why in [
        ('get_task', {'task_id': 'nobody'}, 'not found'),
        ('get_task', {}, 'task_id'),
        ('echo', {'message': 1}, 'message'),
    ]:
        wrong = await client.call_tool(name, arguments)
        assert wrong.is_error and why in text(wrong), wrong
    try:
        await client.call_tool('sing', {})
    except MCPError as error:
        assert 'sing' in str(error), error
    else:
        raise AssertionError('there is no such tool')


async def main(told):
    for mode in ('auto', 'legacy'):
        if 'command' in told:
            command, *args = told['command']
            server = StdioServerParameters(command=command, args=args, env=told.get('env'))
            async with Client(server, mode=mode) as client:
                await elsewhere(client, await scenario(client))
            continue
        headers = {'Authorization': f'Bearer {told["key"]}'}

        def door():
            http = httpx2.AsyncClient(headers=headers, timeout=30)
            return streamable_http_client(told['url'], http_client=http)

        async with Client(door(), mode=mode) as client:
            task = await scenario(client)
        async with Client(door(), mode=mode) as client:
            await elsewhere(client, task)
    print('ok')


asyncio.run(asyncio.wait_for(main(json.loads(sys.argv[1])), 60))
