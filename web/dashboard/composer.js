// The box in which a message is written, with text files that are attached by the button, by dropping or by pasting.
import { h, button, icon } from './dom.js';
import { bytes } from './format.js';

const MAX_FILE = 1 << 20, MAX_TOTAL = 4 << 20, MAX_FILES = 20;
const CLIP = 'M10.5 4.5v6a2.5 2.5 0 0 1-5 0V4a1.7 1.7 0 0 1 3.4 0v6a.8.8 0 0 1-1.6 0V4.8';

// The text of a file; throws an error that says why it is refused.
async function read(file) {
  if (file.size > MAX_FILE) throw new Error(`${bytes(file.size)}; at most ${bytes(MAX_FILE)} are allowed`);
  let data;
  try { data = new Uint8Array(await file.arrayBuffer()); } catch { throw new Error('it cannot be read; folders cannot be attached'); }
  if (data.includes(0)) throw new Error('a binary file (it has zero bytes); only text can be attached');
  try { return new TextDecoder('utf-8', { fatal: true }).decode(data); } catch { throw new Error('not text in UTF-8'); }
}

export class Composer {
  // on.send(text, files), on.stop()
  constructor(on) {
    this.on = on;
    this.files = [];
    this.input = h('textarea', { id: 'chat-input', rows: 1, placeholder: 'Ask the model…', 'aria-label': 'Message' });
    this.send = h('button', { type: 'submit', class: 'primary' }, 'Send');
    this.stop = button('Stop', () => on.stop(), { class: 'stop', hidden: true });
    this.picker = h('input', { type: 'file', multiple: true, hidden: true, id: 'chat-files', 'aria-label': 'Text files' });
    this.attach = button(icon(CLIP), () => this.picker.click(), { class: 'quiet attach', 'aria-label': 'Attach text files', title: 'Attach text files' });
    this.list = h('ul', { class: 'files pending', 'aria-label': 'Files to send', hidden: true });
    this.refused = h('ul', { class: 'refused', role: 'alert', hidden: true });
    this.form = h('form', { class: 'composer' }, this.attach, this.input, this.send, this.stop, this.picker);
    this.el = h('div', { class: 'composer-box' }, this.refused, this.list, this.form);
    this.listen();
  }

  listen() {
    this.form.addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener('input', () => this.grow());
    this.picker.addEventListener('change', () => { this.add([...this.picker.files]); this.picker.value = ''; });
    this.input.addEventListener('paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      this.add(files);
    });
  }

  // Files that are dropped anywhere on `el` are attached.
  takeDrops(el) {
    const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
    const mark = (on) => el.classList.toggle('dropping', on);
    el.addEventListener('dragover', (event) => { if (hasFiles(event)) { event.preventDefault(); mark(true); } });
    el.addEventListener('dragleave', (event) => { if (!el.contains(event.relatedTarget)) mark(false); });
    el.addEventListener('drop', (event) => {
      mark(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    const refused = [];
    for (const file of files) {
      try {
        if (this.files.length >= MAX_FILES) throw new Error(`at most ${MAX_FILES} files are allowed`);
        const text = await read(file), total = this.files.reduce((sum, one) => sum + one.size, file.size);
        if (total > MAX_TOTAL) throw new Error(`all files together would be ${bytes(total)}; at most ${bytes(MAX_TOTAL)} are allowed`);
        this.files.push({ name: file.name || 'pasted.txt', size: file.size, text });
      } catch (error) {
        refused.push(h('li', null, h('b', null, file.name), ` is not attached: ${error.message}.`));
      }
    }
    this.refused.replaceChildren(...refused);
    this.refused.hidden = refused.length === 0;
    this.draw();
    this.input.focus();
  }

  draw() {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(...this.files.map((file) => h('li', null, h('span', { class: 'file-name' }, file.name),
      h('span', { class: 'soft num' }, bytes(file.size)), button('×', () => {
        this.files = this.files.filter((one) => one !== file);
        this.draw();
        this.input.focus();
      }, { class: 'quiet small', 'aria-label': `Remove ${file.name}` }))));
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(200, this.input.scrollHeight + 2)}px`;
  }

  // The text stays when it cannot be sent now.
  submit() {
    const text = this.input.value;
    if ((text.trim() === '' && this.files.length === 0) || !this.on.send(text, this.files)) return;
    this.files = [];
    this.input.value = '';
    this.refused.hidden = true;
    this.grow();
    this.draw();
  }

  busy(on) {
    this.stop.hidden = !on;
    this.send.hidden = on;
  }
}
