import { bytes } from "./digit_solve.maths.js";

export const FACTORS = [0, 0.2, 0.4, 0.6, 0.8, 1];
// The number of the factor next to v.
export const nearest = (v) => FACTORS.reduce((best, s, i) => (Math.abs(s - v) < Math.abs(FACTORS[best] - v) ? i : best), 0);
// The bytes of one image for two factors: `all` has one image after the other, the fine factor running fastest.
export function frame(all, i, j) {
  const n = FACTORS.length;
  const length = all.length / (n * n);
  return all.subarray((i * n + j) * length, (i * n + j + 1) * length);
}
// How an image differs from its original: values that differ, the largest difference, the mean one, in levels of a byte.
export function compare(a, b) {
  let [differ, most, sum] = [0, 0, 0];
  a.forEach((v, k) => {
    const gap = Math.abs(v - b[k]);
    differ += +(gap > 0);
    most = Math.max(most, gap);
    sum += gap;
  });
  return { differ, most, mean: sum / a.length };
}
// The mean difference of every original from its image, over all fine factors at one coarse factor: [[factor, difference], ...].
export function differences(images, originals, i) {
  return originals.map((text, k) => {
    const [all, original] = [bytes(images[k]), bytes(text)];
    return FACTORS.map((s, j) => [s, compare(frame(all, i, j), original).mean]);
  });
}
// The largest mean difference that there is, for the axis.
export const largest = (images, originals) =>
  Math.max(...FACTORS.flatMap((_, i) => differences(images, originals, i).flat().map(([, d]) => d)));
// Bytes with three colours a pixel as those of a canvas, which have four.
export function withAlpha(rgb) {
  const out = new Uint8ClampedArray((4 * rgb.length) / 3).fill(255);
  rgb.forEach((v, k) => (out[4 * Math.floor(k / 3) + (k % 3)] = v));
  return out;
}
