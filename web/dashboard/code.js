// A block of source code: coloured, with its language, a button that copies it, and one that wraps long lines.
import { h, button, copyButton } from './dom.js';
import { highlight } from './highlight.js';

const WRAP = 'shoal.wrap-code';

function setWrap(on) {
  document.documentElement.classList.toggle('wrap-code', on);
  for (const el of document.querySelectorAll('.code-wrap')) el.setAttribute('aria-pressed', String(on));
}

const wrapped = () => localStorage.getItem(WRAP) === 'on';
setWrap(wrapped());

function toggleWrap() {
  const on = !wrapped();
  localStorage.setItem(WRAP, on ? 'on' : 'off');
  setWrap(on);
}

export function codeBlock(text, language) {
  return h('div', { class: 'code' },
    h('div', { class: 'code-head' }, h('span', null, language || 'text'), h('span', { class: 'code-tools' },
      button('Wrap', toggleWrap, { class: 'quiet small code-wrap', 'aria-pressed': String(wrapped()), 'aria-label': 'Wrap long lines' }),
      copyButton(text))),
    h('pre', { tabindex: 0, 'aria-label': `Code${language ? ` in ${language}` : ''}` }, h('code', null, highlight(text, language))));
}
