"""A command agent: reads one line of JSON, and writes its events as JSON lines."""

import json
import sys
import time


def say(**line):
    print(json.dumps(line), flush=True)


asked = json.loads(sys.stdin.readline())
text, history = asked['text'], asked['task'].get('history', [])
if len(history) > 1:
    say(artifact={'name': 'greeting', 'parts': [{'text': f'Hello, {text}!'}]})
elif text == 'ask':
    say(question='What is your name?')
elif text == 'count to three':
    for word in ('one', 'two', 'three'):
        say(text=word + ' ')
elif text == 'sleep':
    say(message='this takes a while')
    time.sleep(600)
else:
    say(artifact={'name': 'echo', 'parts': [{'text': text}]})
