// Formats numbers with a fixed number of digits, so that they do not jump when they change.

const none = '–';
const known = (x) => typeof x === 'number' && Number.isFinite(x);

export function fixed(x, digits = 1) {
  if (!known(x)) return none;
  return x.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function count(x) {
  if (!known(x)) return none;
  if (x < 1e6) return Math.round(x).toLocaleString('en');
  if (x < 1e9) return `${(x / 1e6).toFixed(2)} M`;
  return `${(x / 1e9).toFixed(2)} G`;
}

// Three significant digits: 0.12, 1.23, 12.3, 123.
export function digits3(x) {
  if (!known(x)) return none;
  if (x === 0) return '0';
  const size = Math.abs(x);
  return size >= 100 ? Math.round(x).toLocaleString('en') : x.toFixed(size >= 10 ? 1 : 2);
}

// Tokens per second; a large rate needs no decimals.
export function rate(x) {
  return known(x) ? `${fixed(x, x >= 999.95 ? 0 : 1)} tok/s` : none;
}

export function bytes(x) {
  if (!known(x)) return none;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; x >= 1000 && i < units.length - 1; i++) x /= 1024;
  return i === 0 ? `${Math.round(x)} B` : `${digits3(x)} ${units[i]}`;
}

export function seconds(x) {
  if (!known(x)) return none;
  if (x === 0) return '0 ms';
  if (x < 1e-3) return `${digits3(x * 1e6)} µs`;
  if (x < 1) return `${digits3(x * 1e3)} ms`;
  return x < 120 ? `${digits3(x)} s` : duration(x);
}

export function duration(x) {
  if (!known(x)) return none;
  const s = Math.floor(x);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function percent(x, digits = 0) {
  return known(x) ? `${(100 * x).toFixed(digits)} %` : none;
}

// "since 14:03:22, for 2 min 5 s"
export function since(ms, now) {
  return `since ${dateTime(ms)}, for ${duration(Math.max(0, now - ms) / 1000)}`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString('en-GB');
}

export function dateTime(ms) {
  const d = new Date(ms);
  const day = new Date().toDateString() === d.toDateString() ? '' : `${d.toLocaleDateString('en-CA')} `;
  return day + clock(ms);
}
