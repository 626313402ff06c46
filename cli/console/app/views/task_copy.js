// Entries of the copy menu of a task. Credentials are written as $A2A_TOKEN.
import { store } from "../store.js";
import { textOf } from "../parts/content.js";

/** Quotes for a shell. @param {string} text */
export const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Address of an agent, without a trailing slash. @param {string} name */
export function agentUrl(name) {
  const agent = store.agents?.find((one) => one.name === name);
  return String(agent?.url ?? `http://127.0.0.1:41241/agents/${name}/`).replace(/\/$/, "");
}

/**
 * A call with curl.
 * @param {string} url
 * @param {string} version
 * @param {string} method
 * @param {any} params
 */
export function curl(url, version, method, params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  return `curl -sS ${quote(`${url}/`)} -H 'Content-Type: application/json' -H 'A2A-Version: ${version}' -H "Authorization: Bearer $A2A_TOKEN" -d ${quote(body)}`;
}

/**
 * @param {TaskHead} head
 * @param {any} fold
 * @returns {CopyEntry[]}
 */
export function copyEntries(head, fold) {
  const url = agentUrl(head.agent);
  const first = fold?.history?.[0];
  const parts = first?.parts ?? [{ text: "hello" }];
  const message = { messageId: crypto.randomUUID?.() ?? "m-1", role: "ROLE_USER", parts };
  const old = {
    messageId: message.messageId,
    kind: "message",
    role: "user",
    parts: parts.map((/** @type {any} */ part) =>
      part.text === undefined ? { kind: "data", data: part.data ?? {} } : { kind: "text", text: part.text },
    ),
  };
  const words = textOf(first) || "hello";
  return [
    { label: "id", text: head.id },
    { label: "link", text: location.href },
    { label: "curl: read this task (JSON-RPC 1.0)", text: curl(url, "1.0", "GetTask", { id: head.id }) },
    {
      label: "curl: read this task (HTTP+JSON 1.0)",
      text: `curl -sS ${quote(`${url}/tasks/${head.id}`)} -H 'A2A-Version: 1.0' -H "Authorization: Bearer $A2A_TOKEN"`,
    },
    { label: "curl: repeat this call (JSON-RPC 1.0)", text: curl(url, "1.0", "SendMessage", { message }) },
    { label: "curl: repeat this call (JSON-RPC 0.3)", text: curl(url, "0.3", "message/send", { message: old }) },
    { label: "attache: read this task", text: `attache task get -a ${quote(url)} ${head.id}` },
    { label: "attache: repeat this call", text: `attache send -a ${quote(url)} ${quote(words)}` },
    { label: "Python (a2a-sdk)", text: python(url, words) },
    { label: "JavaScript (@a2a-js/sdk)", text: javascript(url, words) },
    { label: "JSON", text: () => JSON.stringify(fold, null, 2) },
  ];
}

/** Code for the official SDK of version 1.0, as in docs/examples. @param {string} url @param {string} words */
export const python = (url, words) => `import asyncio
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import a2a_pb2 as pb

async def main():
    client = await create_client(${JSON.stringify(url)}, ClientConfig(streaming=False))
    request = pb.SendMessageRequest(message=new_text_message(${JSON.stringify(words)}, role=pb.ROLE_USER))
    async for answer in client.send_message(request):
        print(answer)

asyncio.run(main())
`;

/** Code for the official SDK of version 1.0, as in docs/examples. @param {string} url @param {string} words */
export const javascript = (url, words) => `import { ClientFactory } from "@a2a-js/sdk/client";
import { SendMessageRequest } from "@a2a-js/sdk";

const client = await new ClientFactory().createFromUrl(${JSON.stringify(url)});
console.log(await client.sendMessage(SendMessageRequest.fromJSON({
  message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: ${JSON.stringify(words)} }] },
})));
`;
