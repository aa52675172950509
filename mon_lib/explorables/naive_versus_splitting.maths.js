import { apply, norm, resolvent } from "./_linalg.js";

// z = relu(Wz + c) with W = [[0, -s], [s, 0]] and c = (x, 1/20): I - W has m = 1 and L = |1 + is|.
export const weight = (s) => [[0, -s], [s, 0]];
export const bias = (x) => [x, 0.05];
const relu = (z) => z.map((v) => Math.max(v, 0));

export function naive(s, x, z, steps) {
  const [W, c] = [weight(s), bias(x)];
  const path = [z];
  for (let k = 0; k < steps; k++) path.push(relu(apply(W, path[k]).map((v, i) => v + c[i])));
  return path;
}
// Peaceman-Rachford with alpha = 1/L from u.
export function splitting(s, x, u, steps) {
  const alpha = 1 / Math.hypot(1, s);
  const [R, c] = [resolvent([[1, s], [-s, 1]], alpha), bias(x)];
  const path = [relu(u)];
  for (let k = 0; k < steps; k++) {
    const z = relu(u);
    const half = apply(R, z.map((v, i) => 2 * v - u[i] + alpha * c[i]));
    u = u.map((v, i) => v + 2 * (half[i] - z[i]));
    path.push(relu(u));
  }
  return path;
}
// The equilibrium: of the four sets of active units exactly one fits.
export function equilibrium(s, x) {
  const [a, b] = bias(x);
  const d = 1 + s * s;
  const both = [(a - s * b) / d, (b + s * a) / d];
  if (both[0] >= 0 && both[1] >= 0) return both;
  if (a >= 0 && b + s * a <= 0) return [a, 0];
  if (b >= 0 && a - s * b <= 0) return [0, b];
  return [0, 0];
}
export const distances = (path, z) => path.map((y) => norm(y.map((v, i) => v - z[i])));
// The number of steps after which a path repeats itself, or 0.
export function period(path, longest = 12) {
  const end = path.length - 1;
  for (let p = 1; p <= Math.min(longest, path.length / 2); p++) {
    const back = Array.from({ length: p }, (_, j) => norm(path[end - j].map((v, i) => v - path[end - j - p][i])));
    if (Math.max(...back) < 1e-9 * (1 + norm(path[end]))) return p;
  }
  return 0;
}
