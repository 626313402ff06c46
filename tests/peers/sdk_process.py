"""Shared by both SDK processes: the line server, and strict parsing of protobuf in JSON and binary form.

An SDK process reads one JSON object per line on standard input and answers each with one JSON line on standard
output, in order. The first line it prints is {"ready": true, "sdk": version}. It ends when its input ends.
An invalid request gets the answer {"ok": false, "error": one line of text}.
"""

import json
import os
import sys

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.unknown_fields import UnknownFieldSet


def serve(sdk, answer):
    """Writes answer(request) for every line of standard input."""
    out = os.fdopen(os.dup(1), 'wb')
    os.dup2(2, 1)  # whatever a library prints must not end up between the answers

    def say(reply):
        # UTF-8 without NaN: values that a strict JSON parser refuses become errors here.
        out.write(json.dumps(reply, ensure_ascii=False, allow_nan=False).encode() + b'\n')
        out.flush()

    try:
        say({'ready': True, 'sdk': sdk})
        for line in sys.stdin.buffer:
            try:
                request = json.loads(line.decode(), object_pairs_hook=unique, parse_constant=no_constant)
                say({'ok': True} | answer(request))
            except BrokenPipeError:
                raise
            except Exception as fault:
                text = ' '.join(f'{type(fault).__name__}: {fault}'.split())[:1000]
                say({'ok': False, 'error': text.encode('utf-8', 'replace').decode()})
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)


def unique(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError('an object names a member twice')
    return members


def no_constant(name):
    raise ValueError(f'{name} is not JSON')


def message_class(module, name):
    """Returns the message class of a protobuf module, by its name with or without the package."""
    name = name.removeprefix(module.DESCRIPTOR.package + '.')
    if name not in module.DESCRIPTOR.message_types_by_name:
        raise ValueError(f'no protobuf type {name}')
    return getattr(module, name)


def read_json(cls, payload):
    """Parses ProtoJSON. Members must have their JSON name; the parser alone accepts snake_case too."""
    check_names(payload, cls.DESCRIPTOR, cls.DESCRIPTOR.name)
    return ParseDict(payload, cls(), ignore_unknown_fields=False)


def check_names(value, kind, path):
    if kind.file.package == 'google.protobuf' or not isinstance(value, dict):
        return
    fields = {field.json_name: field for field in kind.fields}
    for name, item in value.items():
        if name not in fields:
            raise ValueError(f'{path}.{name}: no such member')
        inner = fields[name].message_type
        if inner is None:
            continue
        items = [item]
        if inner.GetOptions().map_entry:
            inner = inner.fields_by_name['value'].message_type
            items = list(item.values()) if inner and isinstance(item, dict) else []
        elif isinstance(item, list):
            items = item
        for each in items:
            check_names(each, inner, f'{path}.{name}')


def read_proto(cls, payload):
    """Parses protobuf bytes in hex. Refuses unknown field numbers."""
    message = cls.FromString(bytes.fromhex(payload))
    check_numbers(message, cls.DESCRIPTOR.name)
    return message


def check_numbers(message, path):
    for field in UnknownFieldSet(message):
        raise ValueError(f'{path}: unknown field number {field.field_number}')
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None:
            continue
        items = [value]
        if inner.GetOptions().map_entry:
            items = value.values() if inner.fields_by_name['value'].message_type else []
        elif field.is_repeated:
            items = value
        for each in items:
            check_numbers(each, f'{path}.{field.name}')


def written(message, request):
    """Returns a message in both forms. "defaults": true in the request includes members with default values."""
    defaults = bool(request.get('defaults'))
    return {
        'json': MessageToDict(message, always_print_fields_with_no_presence=defaults),
        'proto': message.SerializeToString(deterministic=True).hex(),
    }
