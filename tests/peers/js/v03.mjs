// The client of @a2a-js/sdk 0.3.14 over its three bindings.

import { randomUUID } from 'node:crypto';
import { load, serve } from './bridge.mjs';

const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } =
  load('sdk03/client');
const { GrpcTransportFactory } = load('sdk03/client/grpc');
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

serve(async (binding, _, url) => {
  const factory = new ClientFactory({ transports: [new transports[binding]()], preferredTransports: [binding] });
  const client = await factory.createFromUrl(url);
  // The client itself refuses operations that the card does not declare; its transport calls the server.
  const { transport } = client;
  return {
    async card() {
      const card = await new DefaultAgentCardResolver().resolve(url);
      return {
        name: card.name, description: card.description, streaming: card.capabilities.streaming,
        push: card.capabilities.pushNotifications ?? false, skills: card.skills.map((skill) => skill.id),
      };
    },
    send: async (text, task, context, file) => eventOf(await client.sendMessage({ message: message(text, task, context, file) })),
    stream: (text, task, context, signal) =>
      events(client.sendMessageStream({ message: message(text, task, context) }, { signal })),
    get: async (id) => eventOf(await client.getTask({ id })),
    cancel: async (id) => eventOf(await client.cancelTask({ id })),
    subscribe: (id, signal) => events(client.resubscribeTask({ id }, { signal })),
    set_push_config: async ({ task, id, url, token }) =>
      pushConfigOf(await transport.setTaskPushNotificationConfig({ taskId: task, pushNotificationConfig: { id, url, token } })),
    get_push_config: async (id, name) =>
      pushConfigOf(await transport.getTaskPushNotificationConfig({ id, pushNotificationConfigId: name })),
    list_push_configs: async (id) => (await transport.listTaskPushNotificationConfig({ id })).map(pushConfigOf),
    delete_push_config: (id, name) => transport.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId: name }),
  };
});

function message(text, taskId, contextId, file) {
  const message = { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }] };
  if (file) message.parts.push({ kind: 'file', file: { bytes: file.file, name: file.name, mimeType: file.media_type } });
  if (taskId) message.taskId = taskId;
  if (contextId) message.contextId = contextId;
  return message;
}

async function* events(stream) {
  for await (const event of stream) yield eventOf(event);
}

function eventOf(event) {
  switch (event.kind) {
    case 'task':
      return {
        kind: 'task', id: event.id, context: event.contextId, state: event.status.state, status_text: statusText(event.status),
        artifacts: (event.artifacts ?? []).map((artifact) => [artifact.name, artifact.parts.map(partOf)]),
        history: (event.history ?? []).map((message) => text(message.parts)),
      };
    case 'message':
      return { kind: 'message', parts: event.parts.map(partOf) };
    case 'status-update':
      return { kind: 'status', task: event.taskId, state: event.status.state, status_text: statusText(event.status), final: event.final };
    case 'artifact-update':
      return {
        kind: 'chunk', task: event.taskId, artifact: event.artifact.artifactId, name: event.artifact.name ?? '',
        parts: event.artifact.parts.map(partOf), append: event.append ?? false, last: event.lastChunk ?? false,
      };
  }
}

function partOf(part) {
  switch (part.kind) {
    case 'text':
      return { text: part.text };
    case 'data':
      return { data: part.data };
    case 'file':
      return { file: part.file.bytes, name: part.file.name, media_type: part.file.mimeType };
  }
}

function statusText(status) {
  return text(status.message?.parts ?? []);
}

function text(parts) {
  return parts.map((part) => part.text).join('');
}

function pushConfigOf({ taskId, pushNotificationConfig: { id, url, token } }) {
  return { task: taskId, id, url, token };
}
