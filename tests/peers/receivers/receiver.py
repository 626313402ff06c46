"""A webhook receiver with an official SDK: 1.3.0 (run by v10) or 0.3.26 (run by v03).

usage: receiver.py <url of the key set> [<url of a card>]

Prints {"listening": url}, then one line per notification: {"kind", "task", "state"} as the SDK parses it. PyJWT first verifies
the token in Authorization: key set, audience, times and digest of the body. A failed check prints {"error"} and returns HTTP
400. With a card, the SDK's verifier checks its signature first, and prints {"card": name}.
"""

import hashlib
import http.server
import importlib.metadata
import json
import sys
import urllib.request

import jwt

KEYS, CARD = sys.argv[1], sys.argv[2:]
NEW = importlib.metadata.version('a2a-sdk').startswith('1.')


def say(what):
    print(json.dumps(what), flush=True)


def read(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def key(kid, jku=None):
    return next(key for key in jwt.PyJWKSet.from_dict(read(KEYS)).keys if key.key_id == kid)


def check_card(card):
    from a2a.client.card_resolver import parse_agent_card
    from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier

    verify = create_signature_verifier(key, ['ES256'])
    read_card = parse_agent_card(card)
    verify(read_card)
    read_card.description += '!'
    try:
        verify(read_card)
    except InvalidSignaturesError:
        return {'card': read_card.name}
    raise ValueError('a changed card verifies')


def check_token(headers, body, url):
    scheme, token = headers['Authorization'].split(' ')
    if scheme != 'Bearer':
        raise ValueError('no bearer token')
    kid = jwt.get_unverified_header(token)['kid']
    needed = ['iss', 'aud', 'iat', 'exp', 'jti']
    claims = jwt.decode(token, key(kid), algorithms=['ES256'], audience=url, options={'require': needed})
    if claims['request_body_sha256'] != hashlib.sha256(body).hexdigest():
        raise ValueError('another body')


def notification(body):
    if NEW:
        from a2a.types import a2a_pb2
        from google.protobuf.json_format import ParseDict

        event = ParseDict(json.loads(body), a2a_pb2.StreamResponse())
        kind = event.WhichOneof('payload')
        payload = getattr(event, kind)
        status = payload.status.state if kind in ('task', 'status_update') else 0
        task = payload.id if kind == 'task' else payload.task_id
        return {'kind': kind, 'task': task, 'state': a2a_pb2.TaskState.Name(status)}
    from a2a.types import Task

    task = Task.model_validate_json(body)
    return {'kind': task.kind, 'task': task.id, 'state': task.status.state.value}


class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        try:
            check_token(self.headers, body, URL)
            told, status = notification(body), 200
        except Exception as fault:
            told, status = {'error': f'{type(fault).__name__}: {fault}'}, 400
        say(told)
        self.send_response(status)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *_):
        pass


if CARD:
    say(check_card(read(CARD[0])))
server = http.server.HTTPServer(('127.0.0.1', 0), Webhook)
URL = f'http://127.0.0.1:{server.server_port}/hook'
say({'listening': URL})
server.serve_forever()
