// Bytes of a base64 string.
export const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
export const argmax = (p) => p.reduce((best, v, i) => (v > p[best] ? i : best), 0);
// The step from which on the most probable class stays the same to the end.
export function settled(probabilities) {
  const last = argmax(probabilities[probabilities.length - 1]);
  let k = probabilities.length - 1;
  while (k > 0 && argmax(probabilities[k - 1]) === last) k--;
  return k;
}
// The decades that hold all positive bounds.
export function decadeRange(bounds) {
  const all = bounds.flat().filter((b) => b > 0 && Number.isFinite(b));
  return [10 ** Math.floor(Math.log10(Math.min(...all)) - 1e-9), 10 ** Math.ceil(Math.log10(Math.max(...all)) + 1e-9)];
}
