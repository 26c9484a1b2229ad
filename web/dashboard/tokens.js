// The tokens of an answer, coloured by how likely the model held them. The pointer, a tap or the arrow keys show the
// alternatives of a token.
import { h } from './dom.js';
import { fixed, percent } from './format.js';

const LEVELS = [['low', 'under 25 %'], ['fair', '25–50 %'], ['good', '50–75 %'], ['sure', '75 % and more']];
const levelOf = (logprob) => LEVELS[Math.min(3, Math.floor(Math.exp(logprob) * 4))]?.[0] ?? 'low';
const visible = (text) => JSON.stringify(text).slice(1, -1).replaceAll(' ', '␣');

function legend(tokens) {
  const mean = tokens.reduce((sum, t) => sum + t.logprob, 0) / tokens.length;
  return h('p', { class: 'token-legend' }, h('span', null, 'Probability'),
    LEVELS.map(([level, label]) => h('span', { class: `level ${level}` }, label)),
    h('span', { class: 'soft' }, `perplexity ${fixed(Math.exp(-mean), 2)}`));
}

function alternatives(token) {
  const bar = (p) => h('meter', { min: 0, max: 1, value: p, 'aria-hidden': 'true' });
  const line = (other, chosen) => h('span', { class: `alternative${chosen ? ' chosen' : ''}` }, h('code', null, visible(other.token)),
    bar(Math.exp(other.logprob)), h('span', { class: 'num' }, percent(Math.exp(other.logprob), 1)));
  return [h('b', null, `${visible(token.token)}  ${percent(Math.exp(token.logprob), 1)}`),
    ...(token.top_logprobs ?? []).map((other) => line(other, other.token === token.token))];
}

export function tokenView(tokens, tip) {
  const spans = tokens.map((token) => h('span', { class: `token ${levelOf(token.logprob)}` }, token.token));
  const view = h('div', { class: 'tokens', tabindex: 0, role: 'group', 'aria-label': 'Tokens; arrow keys go through them' }, spans);
  let at = -1;
  const show = (i) => {
    spans[at]?.classList.remove('at');
    at = i;
    tip.hidden = i < 0;
    if (i < 0) return;
    spans[i].classList.add('at');
    tip.replaceChildren(...alternatives(tokens[i]));
    const spot = spans[i].getClientRects()[0] ?? spans[i].getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(innerWidth - tip.offsetWidth - 8, spot.left))}px`;
    tip.style.top = `${spot.bottom + 6 + tip.offsetHeight > innerHeight ? spot.top - tip.offsetHeight - 6 : spot.bottom + 6}px`;
  };
  view.addEventListener('pointerover', (event) => show(spans.indexOf(event.target)));
  view.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') show(-1); });
  view.addEventListener('click', (event) => show(spans.indexOf(event.target)));
  view.addEventListener('focus', () => { if (at < 0 && view.matches(':focus-visible')) show(0); });
  view.addEventListener('blur', () => show(-1));
  view.addEventListener('keydown', (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: spans.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    spans[Math.max(0, Math.min(spans.length - 1, to))].scrollIntoView({ block: 'nearest' });
    show(Math.max(0, Math.min(spans.length - 1, to)));
  });
  return h('div', null, legend(tokens), view);
}
