// An echo agent served by @a2a-js/sdk 0.3.14, over its three bindings. Ends when stdin does.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

/** Packages live where they were installed, not beside this file. */
const load = createRequire(`${process.argv[2]}/`);
// As ES modules: each CommonJS bundle of this SDK has its own error classes, and does not recognize those of the others.
const sdk = (part) => import(pathToFileURL(`${process.argv[2]}/node_modules/sdk03/dist/${part}/index.js`));
const { DefaultPushNotificationSender, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } = await sdk('server');
const { A2AService, grpcService, UserBuilder: grpcUser } = await sdk('server/grpc');
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = await sdk('server/express');
const express = load('express');
const grpc = load('@grpc/grpc-js');

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const canceled = new Map();

const echo = {
  async execute({ taskId, contextId, task, userMessage }, bus) {
    const status = (state) => ({ state, timestamp: new Date().toISOString() });
    const move = (state, final) => bus.publish({ kind: 'status-update', taskId, contextId, status: status(state), final });
    const made = (artifactId, parts, append, lastChunk) => bus.publish({
      kind: 'artifact-update', taskId, contextId, append, lastChunk, artifact: { artifactId, name: 'echo', parts },
    });
    if (!task) bus.publish({ kind: 'task', id: taskId, contextId, status: status('submitted'), history: [userMessage], artifacts: [] });
    const text = userMessage.parts[0].text;
    move('working', false);
    if (text === 'slow') {
      await new Promise((done) => canceled.set(taskId, done));
      move('canceled', true);
    } else if (text === 'ask') {
      move('input-required', true);
    } else {
      if (text === 'drip') for (let n = 0; n < 20; n += 1, await pause(100)) made('drip', [{ kind: 'text', text: `${n} ` }], n > 0, n === 19);
      else made('echo', userMessage.parts, false, true);
      move('completed', true);
    }
    bus.finished();
  },
  async cancelTask(taskId) {
    canceled.get(taskId)?.();
  },
};

const app = express();
const http = createServer(app);
await new Promise((done) => http.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${http.address().port}`;
const server = new grpc.Server();
const port = await new Promise((done, failed) =>
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (fault, at) => (fault ? failed(fault) : done(at))));
const card = {
  name: 'Echo', description: 'Says it back', version: '1', protocolVersion: '0.3.0', url: `${url}/rpc`, preferredTransport: 'JSONRPC',
  additionalInterfaces: [
    { url: `${url}/rest`, transport: 'HTTP+JSON' },
    { url: `127.0.0.1:${port}`, transport: 'GRPC' },
  ],
  capabilities: { streaming: true, pushNotifications: true },
  defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{ id: 'echo', name: 'Echo', description: 'Says it back', tags: ['echo'] }],
};
const configs = new InMemoryPushNotificationStore();
const requestHandler = new DefaultRequestHandler(
  card, new InMemoryTaskStore(), echo, undefined, configs, new DefaultPushNotificationSender(configs));
server.addService(A2AService, grpcService({ requestHandler, userBuilder: grpcUser.noAuthentication }));
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rest', restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
console.log(`Listening on ${url}`);
process.stdin.resume().on('end', () => process.exit(0));
