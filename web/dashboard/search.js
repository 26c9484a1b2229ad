// Finds words in all conversations, on every branch.
import { titleOf } from './conversation.js';

const MAX_WORDS = 8, BEFORE = 30, AFTER = 90;

// What can be found in a message.
function textsOf(m) {
  return [m.content, m.reasoning, ...(m.files ?? []).flatMap((file) => [file.name, file.text]),
    ...(m.calls ?? []).flatMap((call) => [call.name, call.arguments])].filter(Boolean);
}

// The piece of text around a place, cut into what is before, the match and what is after it.
function snippet(text, at, length) {
  const start = Math.max(0, at - BEFORE), flat = (piece) => piece.replace(/\s+/g, ' ');
  return [(start > 0 ? '…' : '') + flat(text.slice(start, at)), flat(text.slice(at, at + length)), flat(text.slice(at + length, at + length + AFTER))];
}

function inMessages(chat, needle) {
  for (let index = chat.messages.length - 1; index >= 0; index--) {
    for (const text of textsOf(chat.messages[index])) {
      const at = text.toLowerCase().indexOf(needle);
      if (at >= 0) return { index, snippet: snippet(text, at, needle.length) };
    }
  }
  return null;
}

// The conversations that have every word of the query, each with the place of the whole query or else of its first word
// that is in a message. index is -1 where only the title has it.
export function search(chats, query) {
  const phrase = query.trim().toLowerCase(), words = phrase.split(/\s+/).slice(0, MAX_WORDS), out = [];
  for (const chat of chats) {
    const title = titleOf(chat).toLowerCase();
    const whole = inMessages(chat, phrase);
    if (whole !== null) { out.push({ chat, ...whole }); continue; }
    const places = words.map((word) => inMessages(chat, word));
    if (!places.every((place, i) => place !== null || title.includes(words[i]))) continue;
    out.push({ chat, ...(places.find((place) => place !== null) ?? { index: -1, snippet: null }) });
  }
  return out;
}
