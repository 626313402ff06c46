// The client of @a2a-js/sdk 1.3.0: version 1.0 over its three bindings, and 0.3 with its compatibility mode.

import { randomUUID } from 'node:crypto';
import { load, serve } from './bridge.mjs';

const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } = load('sdk10/client');
const { GrpcTransportFactory } = load('sdk10/client/grpc');
const { Role, TaskState } = load('sdk10');
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

serve(async (binding, version, url) => {
  const card = await new DefaultAgentCardResolver().resolve(url);
  // It falls back if the card offers no newer version and the fallback is enabled.
  const older = version === '0.3';
  const supportedInterfaces = card.supportedInterfaces.filter((i) => !older || i.protocolVersion === version);
  const factory = new ClientFactory({
    transports: [new transports[binding](older ? { legacyCompat: { enabled: true } } : {})],
    preferredTransports: [binding],
    // The card is parsed already, and would be parsed again as JSON.
    cardResolver: { resolve: async () => ({ ...card, supportedInterfaces }) },
  });
  const client = await factory.createFromUrl(url);
  // The client itself refuses operations that the card does not declare; its transport calls the server.
  const { transport } = client;
  return {
    card: async () => ({
      name: card.name, description: card.description, streaming: card.capabilities.streaming,
      push: card.capabilities.pushNotifications ?? false, skills: card.skills.map((skill) => skill.id),
    }),
    async send(text, task, context, file) {
      const answer = await client.sendMessage(request(text, task, context, file));
      return answer.payload ? eventOf(answer) : 'messageId' in answer ? messageOf(answer) : taskOf(answer);
    },
    stream: (text, task, context, signal) =>
      events(client.sendMessageStream(request(text, task, context), { signal })),
    get: async (id) => taskOf(await client.getTask({ tenant: '', id })),
    cancel: async (id) => taskOf(await client.cancelTask({ tenant: '', id, metadata: undefined })),
    subscribe: (id, signal) => events(client.resubscribeTask({ tenant: '', id }, { signal })),
    async list(contextId, pageSize, pageToken) {
      const page = await client.listTasks({ tenant: '', contextId, pageSize, pageToken, status: 0 });
      return [page.tasks.map(taskOf), page.nextPageToken, page.totalSize];
    },
    set_push_config: async ({ task, id, url, token }) =>
      pushConfigOf(await transport.createTaskPushNotificationConfig(
        { tenant: '', taskId: task, id, url, token, authentication: undefined })),
    get_push_config: async (taskId, id) => pushConfigOf(await transport.getTaskPushNotificationConfig({ tenant: '', taskId, id })),
    list_push_configs: async (taskId) =>
      (await transport.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 0, pageToken: '' })).configs.map(pushConfigOf),
    delete_push_config: (taskId, id) => transport.deleteTaskPushNotificationConfig({ tenant: '', taskId, id }),
  };
});

function request(text, taskId, contextId, file) {
  const parts = [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }];
  if (file) {
    const content = { $case: 'raw', value: Buffer.from(file.file, 'base64') };
    parts.push({ content, metadata: undefined, filename: file.name, mediaType: file.media_type });
  }
  return {
    tenant: '',
    message: {
      messageId: randomUUID(), contextId: contextId ?? '', taskId: taskId ?? '', role: Role.ROLE_USER, parts,
      metadata: undefined, extensions: [], referenceTaskIds: [],
    },
    configuration: undefined,
    metadata: undefined,
  };
}

async function* events(stream) {
  for await (const event of stream) yield eventOf(event);
}

function eventOf({ payload: { $case, value } }) {
  switch ($case) {
    case 'task':
      return taskOf(value);
    case 'message':
      return messageOf(value);
    case 'statusUpdate':
      return { kind: 'status', task: value.taskId, state: stateOf(value.status), status_text: statusText(value.status), final: null };
    case 'artifactUpdate':
      return {
        kind: 'chunk', task: value.taskId, artifact: value.artifact.artifactId, name: value.artifact.name,
        parts: value.artifact.parts.map(partOf), append: value.append, last: value.lastChunk,
      };
  }
}

function taskOf(task) {
  return {
    kind: 'task', id: task.id, context: task.contextId, state: stateOf(task.status), status_text: statusText(task.status),
    artifacts: task.artifacts.map((artifact) => [artifact.name, artifact.parts.map(partOf)]),
    history: task.history.map((message) => text(message.parts)),
  };
}

function messageOf(message) {
  return { kind: 'message', parts: message.parts.map(partOf) };
}

function partOf({ content: { $case, value }, filename, mediaType }) {
  switch ($case) {
    case 'text':
      return { text: value };
    case 'data':
      return { data: value };
    case 'raw':
      return { file: Buffer.from(value).toString('base64'), name: filename, media_type: mediaType };
  }
}

function stateOf(status) {
  return TaskState[status.state].replace('TASK_STATE_', '').toLowerCase().replace('_', '-');
}

function statusText(status) {
  return text(status.message?.parts ?? []);
}

function text(parts) {
  return parts.map(({ content }) => (content.$case === 'text' ? content.value : '')).join('');
}

function pushConfigOf({ taskId, id, url, token }) {
  return { task: taskId, id, url, token };
}
