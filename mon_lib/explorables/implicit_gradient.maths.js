import { apply, dot, inverse, resolvent } from "./_linalg.js";

// z = tanh(Wz + b(theta)) with I - W = [[1, 3], [-3, 1]] and b = (theta, 0.4); loss l = ||z - target||^2 / 2.
export const GAIN = [[1, 3], [-3, 1]];
const WEIGHT = [[0, -3], [3, 0]];
const TARGET = [0.6, -0.5];
const bias = (theta) => [theta, 0.4];
const SLOPE = [1, 0]; // db / dtheta

// The t with alpha t + (1 - alpha) tanh(t) = u; then prox_{alpha f}(u) = tanh(t).
function root(u, alpha) {
  let [lo, hi] = [Math.min(u, (u - 1) / alpha, (u + 1) / alpha) - 1, Math.max(u, (u - 1) / alpha, (u + 1) / alpha) + 1];
  let t = u / Math.max(1, alpha);
  for (let k = 0; k < 60 && hi - lo > 1e-14; k++) {
    const s = Math.tanh(t);
    const v = alpha * t + (1 - alpha) * s - u;
    if (v > 0) hi = t;
    else lo = t;
    const next = t - v / (alpha + (1 - alpha) * (1 - s * s));
    if (Math.abs(next - t) < 1e-15) return next;
    t = next > lo && next < hi ? next : (lo + hi) / 2;
  }
  return t;
}

// k Peaceman-Rachford steps from u = 0, and their derivative by theta, carried along: what unrolling gives.
export function unroll(theta, alpha, steps) {
  const R = resolvent(GAIN, alpha);
  let [u, du] = [[0, 0], [0, 0]];
  const look = () => {
    const t = u.map((v) => root(v, alpha));
    const z = t.map(Math.tanh);
    const J = z.map((v) => 1 - v * v);
    return [z, du.map((d, i) => (J[i] * d) / (alpha + (1 - alpha) * J[i]))];
  };
  for (let k = 0; k < steps; k++) {
    const [z, dz] = look();
    const half = apply(R, z.map((v, i) => 2 * v - u[i] + alpha * bias(theta)[i]));
    const dhalf = apply(R, dz.map((v, i) => 2 * v - du[i] + alpha * SLOPE[i]));
    u = u.map((v, i) => v + 2 * (half[i] - z[i]));
    du = du.map((v, i) => v + 2 * (dhalf[i] - dz[i]));
  }
  const [z, dz] = look();
  return { z, dz };
}
// The equilibrium: so many steps at alpha = 1/L that rounding is all that is left.
export const equilibrium = (theta) => unroll(theta, 1 / Math.sqrt(10), 150).z;

export const loss = (z) => z.reduce((s, v, i) => s + (v - TARGET[i]) ** 2 / 2, 0);
const lossGradient = (z) => z.map((v, i) => v - TARGET[i]);

// dl/dtheta from the implicit function theorem, evaluated at z as if it were the equilibrium: l'(z) (I - JW)^-1 J db/dtheta.
export function implicit(theta, z) {
  const J = apply(WEIGHT, z).map((v, i) => 1 - Math.tanh(v + bias(theta)[i]) ** 2);
  const inner = WEIGHT.map((row, i) => row.map((v, j) => (i === j ? 1 : 0) - J[i] * v));
  return dot(lossGradient(z), apply(inverse(inner), J.map((v, i) => v * SLOPE[i])));
}
export function unrolled(theta, alpha, steps) {
  const { z, dz } = unroll(theta, alpha, steps);
  return dot(lossGradient(z), dz);
}
