// attache serve examples/words.mjs
import { agent } from "@attache/agent";

agent(async function* words(turn) {
  const text = turn.text.replace(/^count/, "").trim();
  if (!text) {
    yield turn.ask("Which text?");
    return;
  }
  turn.progress("Counting");
  const words = text.split(/\s+/);
  for (const [index, word] of words.entries()) yield `${index + 1}. ${word}\n`;
  turn.artifact("count", { data: { words: words.length } });
}, { description: "Counts the words of a message" });
