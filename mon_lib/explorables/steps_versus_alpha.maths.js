import { apply, combine, dot, identity, inverse, matmul, norm, spectralRadius, weights } from "./_linalg.js";

const N = 6;
// Fixed numbers that look random: the fractional parts of multiples of the golden ratio, in [-1, 1].
const spread = (k) => 2 * ((k * 0.6180339887498949 + 0.137 * k * k) % 1) - 1;
const table = (from) => Array.from({ length: N }, (_, i) => Array.from({ length: N }, (_, j) => spread(from + N * i + j + 1)));
export const A = table(0);
export const B = table(100);
export const BIAS = [1, -0.4, 0.8, 0.3, -0.9, 0.6];
// The three sign vectors of NEW-ALPHA.
export const SIGNS = [[1, -1, 1, 1, -1, 1], [-1, 1, 1, -1, 1, 1], [1, 1, -1, 1, 1, -1]];
export const HALVING = [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64];
export const MOST = 500;

export const gain = (m, g, h) => combine(1, identity(N), -1, weights(m, g, h, A, B));
export const grid = (lo = 1 / 64, hi = 8, count = 46) => Array.from({ length: count }, (_, k) => lo * (hi / lo) ** (k / (count - 1)));

// Mean over the sign vectors of rho(C_alpha diag(s)): the rate that Peaceman-Rachford is predicted to have for ReLU.
export function rate(G, alpha) {
  const C = combine(2, inverse(combine(1, identity(N), alpha, G)), -1, identity(N));
  return SIGNS.reduce((sum, s) => sum + spectralRadius(matmul(C, s.map((v, i) => s.map((_, j) => (i === j ? v : 0))))), 0) / SIGNS.length;
}
export const predicted = (G, alpha, tol) => Math.max(1, Math.log(tol) / Math.log(rate(G, alpha)));

// Steps until the certified error bound is at most tol ||z||; MOST when it never is.
export function peacemanRachford(G, L, m, alpha, tol) {
  const R = inverse(combine(1, identity(N), alpha, G));
  let u = BIAS.map(() => 0);
  for (let k = 1; k <= MOST; k++) {
    const z = u.map((v) => Math.max(v, 0));
    const half = apply(R, z.map((v, i) => 2 * v - u[i] + alpha * BIAS[i]));
    const e = norm(z.map((v, i) => v - half[i])) / alpha;
    if (((1 + alpha * L) * e) / m <= tol * norm(z)) return k;
    u = u.map((v, i) => v + 2 * (half[i] - z[i]));
  }
  return MOST;
}
export function forwardBackward(G, L, m, alpha, tol) {
  const factor = Math.sqrt(Math.max(0, 1 - 2 * alpha * m + (alpha * L) ** 2));
  let z = BIAS.map(() => 0);
  for (let k = 1; k <= MOST; k++) {
    const next = z.map((v, i) => Math.max(v - alpha * (dot(G[i], z) - BIAS[i]), 0));
    const e = norm(next.map((v, i) => v - z[i])) / alpha;
    if ((factor * e) / m <= tol * norm(next)) return k;
    if (!(e < 1e12)) return MOST;
    z = next;
  }
  return MOST;
}
// The paper's search: halve from alpha = 1 for as long as the steps go down.
export function halving(steps) {
  let k = 0;
  while (k + 1 < HALVING.length && steps(HALVING[k + 1]) < steps(HALVING[k])) k++;
  return HALVING[k];
}
export const least = (points) => points.reduce((best, p) => (p[1] < best[1] ? p : best));
