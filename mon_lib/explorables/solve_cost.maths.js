// Real multiplications; a complex one counts as four. K is the width of the kernels of A, B and the explicit convolution.
export const K = 3;
const M = 1;
export const columns = (s) => Math.floor(s / 2) + 1; // the frequencies of a real row
export const convolution = (n, s, b) => K * K * b * n * n * s * s;
export const products = (n, s, b) => 4 * b * n * n * s * columns(s);
export const matrixTransforms = (n, s, b) => 12 * b * n * s * s * columns(s);
export const fastTransforms = (n, s, b) => 4 * b * n * s * s * Math.log2(s);
// The symbols of A and B, A*A, and the inverse.
export const symbol = (n, s) => 4 * s * columns(s) * (K * K * n * n + n ** 3);
export const inverse = (n, s) => 4 * s * columns(s) * n ** 3;

// Steps after which Peaceman-Rachford at alpha = tau/L has shrunk every distance by tol: c^2 = (x - 1)/(x + 1).
export function steps(L, tol, tau = 1) {
  const x = Math.max(1, ((L / M) * (tau + 1 / tau)) / 2);
  return Math.max(1, Math.ceil(Math.log(1 / tol) / Math.atanh(1 / x) - 1e-9));
}
// One step in convolutions, each way; a multiplication in a fast transform takes `ratio` times as long as another.
export function step(n, s, b, ratio) {
  const one = convolution(n, s, b);
  return { products: products(n, s, b) / one, fast: (ratio * fastTransforms(n, s, b)) / one, matrix: matrixTransforms(n, s, b) / one };
}
// A forward and a backward solve in convolutions.
export function solve({ n, s, b, L, tol, ratio }) {
  const one = step(n, s, b, ratio);
  const count = 2 * steps(L, tol);
  const parts = {
    transforms: count * Math.min(one.fast, one.matrix),
    products: count * one.products,
    once: (symbol(n, s) + inverse(n, s)) / convolution(n, s, b),
  };
  return { steps: count / 2, fast: one.fast < one.matrix, parts, total: parts.transforms + parts.products + parts.once };
}
// The size from which on, up to `most`, the fast transform is the cheaper one; Infinity where it never is.
export function crossover(ratio, most = 1024) {
  let s = most;
  while (s > 2 && 3 * columns(s - 1) > ratio * Math.log2(s - 1)) s--;
  return s === most && 3 * columns(s) <= ratio * Math.log2(s) ? Infinity : s;
}
