"""The official openai client against a server at <url> that has the demo agent under the name `practice`.

Prints one line per check. Exits with 1 if a check failed.
"""

import sys

import openai

url = sys.argv[1].rstrip('/')
client = openai.OpenAI(base_url=f'{url}/v1', api_key='none', timeout=30)
ask = lambda text, **more: client.chat.completions.create(
    model='practice', messages=[{'role': 'user', 'content': text}], **more
)


def models():
    assert [model.id for model in client.models.list()] == ['practice', 'words'], client.models.list()


def an_answer():
    answer = ask('echo hello')
    assert answer.object == 'chat.completion' and answer.created > 0, answer
    [choice] = answer.choices
    assert (choice.message.role, choice.finish_reason) == ('assistant', 'stop'), choice
    assert 'hello' in choice.message.content, choice


def another_agent():
    answer = client.chat.completions.create(model='words', messages=[
        {'role': 'system', 'content': 'count'},
        {'role': 'user', 'content': [{'type': 'text', 'text': 'one two three'}]},
    ])
    assert answer.choices[0].message.content.strip() == '3', answer
    below = openai.OpenAI(base_url=f'{url}/agents/words/v1', api_key='none')
    answer = below.chat.completions.create(model='anything', messages=[{'role': 'user', 'content': 'one two'}])
    assert answer.choices[0].message.content.strip() == '2', answer
    assert [model.id for model in below.models.list()] == ['words']


def pieces():
    chunks = list(ask('stream 5 30', stream=True))
    texts = [chunk.choices[0].delta.content or '' for chunk in chunks]
    assert chunks[0].choices[0].delta.role == 'assistant', chunks[0]
    assert chunks[-1].choices[0].finish_reason == 'stop', chunks[-1]
    assert len([text for text in texts if text]) >= 5, texts
    assert ''.join(texts) == ask('stream 5 30').choices[0].message.content, texts


def a_question():
    for stream in (False, True):
        asked = ask('ask', stream=stream)
        if stream:
            chunks = list(asked)
            asked, text = chunks[-1], ''.join(chunk.choices[0].delta.content or '' for chunk in chunks)
        else:
            text = asked.choices[0].message.content
        assert text == 'What is your name?', text
        answered = ask('Ada', metadata={'taskId': asked.attache['taskId']})
        assert 'Hello, Ada!' in answered.choices[0].message.content, answered


def failures():
    for text, error, words in [
        ('reject', openai.BadRequestError, 'I would rather not'),
        ('fail', openai.InternalServerError, 'it did not work, as you asked'),
    ]:
        try:
            ask(text)
        except error as failure:
            assert words in failure.message, failure
        else:
            raise AssertionError(text)
    try:
        list(ask('fail', stream=True))
    except openai.APIError as failure:
        assert 'it did not work, as you asked' in failure.message, failure
    else:
        raise AssertionError('a stream that fails')
    for wrong, error in [({'model': 'nobody'}, openai.NotFoundError), ({'messages': []}, openai.BadRequestError)]:
        try:
            client.chat.completions.create(
                **({'model': 'practice', 'messages': [{'role': 'user', 'content': 'hi'}]} | wrong)
            )
        except error as failure:
            assert failure.body['message'], failure
        else:
            raise AssertionError(wrong)


failed = 0
for check in (models, an_answer, another_agent, pieces, a_question, failures):
    try:
        check()
        print(f'ok {check.__name__}')
    except Exception as error:  # each is told, and none hides the next
        failed = 1
        print(f'FAILED {check.__name__}: {error!r}')
sys.exit(failed)
