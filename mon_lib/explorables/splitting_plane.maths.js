import { apply, norm, resolvent } from "./_linalg.js";

export const TARGET = [1.1, 0.7];

// G = [[m, -s], [s, m]]: m-strongly monotone, Lipschitz with L = |m + is|.
export const rotation = (m, s) => [[m, -s], [s, m]];
export const lipschitz = (m, s) => Math.hypot(m, s);
// Forward-backward contracts below 2m/L^2 and no further.
export const threshold = (m, s) => (2 * m) / (m * m + s * s);

// What one step multiplies the error by: exact for the forward step and the Cayley operator of G, a bound for Douglas-Rachford.
export const forwardFactor = (alpha, m, s) => Math.hypot(1 - alpha * m, alpha * s);
export const cayleyFactor = (alpha, m, s) => Math.hypot(1 - alpha * m, alpha * s) / Math.hypot(1 + alpha * m, alpha * s);
export const averagedFactor = (alpha, m, s) => (1 + cayleyFactor(alpha, m, s)) / 2;

// prox_{alpha f}: f the indicator of the non-negative orthant, or the l1 norm.
export const PROX = {
  orthant: (x) => x.map((v) => Math.max(v, 0)),
  l1: (x, alpha) => x.map((v) => Math.sign(v) * Math.max(Math.abs(v) - alpha, 0)),
};
// The b that puts the zero of A + df at TARGET, for A(z) = Gz - b.
export function offset(m, s, f) {
  const b = apply(rotation(m, s), TARGET);
  return f === "l1" ? b.map((v) => v + 1) : b;
}

// z_0, ..., z_k of the three methods from the start u (z_0 = u for forward-backward, prox(u) for the other two).
export function run(method, { alpha, m, s, f }, u, steps) {
  const [G, b] = [rotation(m, s), offset(m, s, f)];
  const prox = (x) => PROX[f](x, alpha);
  const path = [];
  if (method === "forward-backward") {
    let z = u;
    path.push(z);
    for (let k = 0; k < steps; k++) {
      const Gz = apply(G, z);
      z = prox(z.map((v, i) => v - alpha * (Gz[i] - b[i])));
      path.push(z);
    }
    return path;
  }
  const R = resolvent(G, alpha);
  path.push(prox(u));
  for (let k = 0; k < steps; k++) {
    const z = prox(u);
    const half = apply(R, z.map((v, i) => 2 * v - u[i] + alpha * b[i]));
    const pace = method === "peaceman-rachford" ? 2 : 1;
    u = u.map((v, i) => v + pace * (half[i] - z[i]));
    path.push(prox(u));
  }
  return path;
}
export const distances = (path) => path.map((z) => norm(z.map((v, i) => v - TARGET[i])));
