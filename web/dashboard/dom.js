// Creates elements. Text always becomes a text node, so nothing in the output of a model, in a request or in an error
// can turn into markup.

function fill(el, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'htmlFor') el[name] = value;
    else el.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) el.append(child); // there may be too many for one call
  return el;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

export function mathml(tag, props, ...children) {
  return fill(document.createElementNS('http://www.w3.org/1998/Math/MathML', tag), props, children);
}

export const byId = (id) => document.getElementById(id);

// Writes only changes: a page that is updated every second should not be laid out again every second.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

export function setClass(el, name) {
  if (el.getAttribute('class') !== name) el.setAttribute('class', name);
}

export function icon(path) {
  return svg('svg', { viewBox: '0 0 16 16', class: 'icon', 'aria-hidden': 'true' }, svg('path', { d: path }));
}

export function button(label, onclick, props) {
  return h('button', { type: 'button', onclick, ...props }, label);
}

// A button that copies text to the clipboard and confirms it for a moment.
export function copyButton(text, label = 'Copy') {
  const el = button(label, async () => {
    let said = 'Copied';
    try {
      await navigator.clipboard.writeText(typeof text === 'function' ? text() : text);
    } catch {
      said = 'Not permitted';
    }
    el.textContent = said;
    setTimeout(() => { el.textContent = label; }, 1200);
  }, { class: 'quiet small copy' });
  return el;
}

// A description list of [[name, value], ...]; rows without a value are left out.
export function facts(rows) {
  const list = h('dl', { class: 'facts' });
  for (const [name, value] of rows) {
    if (value === undefined || value === null || value === '') continue;
    list.append(h('dt', null, name), h('dd', null, value instanceof Node ? value : String(value)));
  }
  return list;
}
