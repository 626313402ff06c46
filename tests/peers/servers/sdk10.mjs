// An echo agent served by @a2a-js/sdk 1.3.0, over its three bindings. Ends when stdin does.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';

/** Packages live where they were installed, not beside this file. */
const load = createRequire(`${process.argv[2]}/`);
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler, ServerCallContext } = load('sdk10/server');
const { A2AService, UserBuilder, grpcService } = load('sdk10/server/grpc');
const { restHandler } = load('sdk10/server/express');
const { AgentCard, TaskState } = load('sdk10');
const express = load('express');
const grpc = load('@grpc/grpc-js');

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const canceled = new Map();

const part = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });

const echo = {
  async execute({ taskId, contextId, task, userMessage }, bus) {
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
    const move = (state) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined }));
    const made = (artifactId, parts, append, lastChunk) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk, metadata: undefined,
      artifact: { artifactId, name: 'echo', description: '', parts, metadata: undefined, extensions: [] },
    }));
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [userMessage], metadata: undefined,
    }));
    const text = userMessage.parts[0].content.value;
    move(TaskState.TASK_STATE_WORKING);
    if (text === 'slow') {
      await new Promise((done) => canceled.set(taskId, done));
      move(TaskState.TASK_STATE_CANCELED);
    } else if (text === 'ask') {
      move(TaskState.TASK_STATE_INPUT_REQUIRED);
    } else {
      if (text === 'drip') for (let n = 0; n < 20; n += 1, await pause(100)) made('drip', [part(`${n} `)], n > 0, n === 19);
      else made('echo', userMessage.parts, false, true);
      move(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  },
  async cancelTask(taskId) {
    canceled.get(taskId)?.();
  },
};

async function answer(handler, request, response) {
  let body = '';
  for await (const piece of request) body += piece;
  const context = new ServerCallContext({ requestedVersion: request.headers['a2a-version'] ?? '' });
  const given = await handler.handle(body, context);
  if (!given[Symbol.asyncIterator]) {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(given));
    return;
  }
  response.setHeader('Content-Type', 'text/event-stream');
  response.flushHeaders();
  for await (const event of given) response.write(`data: ${JSON.stringify(event)}\n\n`);
  response.end();
}

const http = createServer();
await new Promise((done) => http.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${http.address().port}`;
const server = new grpc.Server();
const port = await new Promise((done, failed) =>
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (fault, at) => (fault ? failed(fault) : done(at))));
const card = {
  name: 'Echo', description: 'Says it back', version: '1',
  supportedInterfaces: [
    { url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' },
    { url: `${url}/rest`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' },
    { url: `127.0.0.1:${port}`, protocolBinding: 'GRPC', protocolVersion: '1.0', tenant: '' },
  ],
  capabilities: { streaming: true, pushNotifications: true, extensions: [], extendedAgentCard: false },
  defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{ id: 'echo', name: 'Echo', description: 'Says it back', tags: ['echo'] }],
};
const requests = new DefaultRequestHandler(AgentCard.fromJSON(card), new InMemoryTaskStore(), echo);
const jsonrpc = new JsonRpcTransportHandler(requests);
server.addService(A2AService, grpcService({ requestHandler: requests, userBuilder: UserBuilder.noAuthentication }));
const rest = express();
rest.use('/rest', restHandler({ requestHandler: requests, userBuilder: UserBuilder.noAuthentication }));
http.on('request', (request, response) => {
  if (request.method === 'POST' && request.url === '/rpc') {
    answer(jsonrpc, request, response).catch((fault) => response.destroy(fault));
  } else if (request.url.startsWith('/rest/')) {
    rest(request, response);
  } else if (request.url === '/.well-known/agent-card.json') {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(card));
  } else {
    response.statusCode = 404;
    response.end();
  }
});
console.log(`Listening on ${url}`);
process.stdin.resume().on('end', () => process.exit(0));
