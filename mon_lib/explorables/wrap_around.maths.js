// The picture is SIZE x SIZE pixels, one channel; W lives on a torus of SIZE + 2 border pixels a side.
export const SIZE = 12;
export const [M, G, ALPHA] = [0.5, 3, 0.25];
// 2 WIDEST >= k - 1 for every k offered: nothing wraps round this border.
export const WIDEST = 2;

// The k x k kernels of A and B, k = 1, 3, 5: A compares a pixel with those around it, B takes from the left, so the state drifts to the right.
export function kernels(k) {
  const c = (k - 1) / 2;
  const grid = (entry) => Array.from({ length: k }, (_, i) => Array.from({ length: k }, (_, j) => entry(i - c, j - c)));
  const A = grid((i, j) => (i === 0 && j === 0 ? 1 : Math.max(Math.abs(i), Math.abs(j)) < 2 ? -0.125 : Math.abs(j) === 2 ? 0.1 * j : 0));
  return { A, B: grid((i, j) => +(j < 0)) };
}
const total = (kernel) => Math.hypot(...kernel.flat());

// The symbol of W = (1-M)I - G A'A/||A||^2 + h (B-B')/||B|| at the frequency (u, v) of a torus with t pixels a side, as [real, imaginary].
export function symbol(k, h, t, u, v) {
  const { A, B } = kernels(k);
  const at = (kernel) => {
    let [re, im] = [0, 0];
    kernel.forEach((row, i) => row.forEach((a, j) => {
      const angle = (2 * Math.PI * (u * (i - (k - 1) / 2) + v * (j - (k - 1) / 2))) / t;
      re += a * Math.cos(angle);
      im += a * Math.sin(angle);
    }));
    return [re, im];
  };
  const [a, b] = [at(A), at(B)];
  return [1 - M - (G * (a[0] ** 2 + a[1] ** 2)) / total(A) ** 2, (2 * h * b[1]) / (total(B) || 1)];
}

// The kernel of (I + alpha (I - W))^-1, as large as the torus: the inverse transform of 1/(1 + alpha - alpha W).
export function resolventKernel(k, h, t) {
  const V = new Float64Array(t * t);
  const wave = Array.from({ length: t }, (_, i) => [Math.cos((2 * Math.PI * i) / t), Math.sin((2 * Math.PI * i) / t)]);
  for (let u = 0; u < t; u++) {
    for (let v = 0; v < t; v++) {
      const [re, im] = symbol(k, h, t, u, v);
      const [p, q] = [1 + ALPHA - ALPHA * re, -ALPHA * im];
      const d = (p * p + q * q) * t * t;
      for (let i = 0; i < t; i++) {
        for (let j = 0; j < t; j++) {
          const [c, s] = wave[(u * i + v * j) % t];
          V[i * t + j] += (p * c - q * s) / d;
        }
      }
    }
  }
  return V;
}

// Vx on the torus, with the sign of conv2d: the entry of V for the pixels p and p' is its kernel at p' - p.
export function convolve(V, x, t) {
  const wide = new Float64Array(4 * t * t); // the kernel repeated, so that no index has to wrap
  for (let i = 0; i < 2 * t; i++) for (let j = 0; j < 2 * t; j++) wide[2 * t * i + j] = V[(i % t) * t + (j % t)];
  const out = new Float64Array(t * t);
  for (let i = 0; i < t; i++) {
    for (let j = 0; j < t; j++) {
      let sum = 0;
      for (let a = 0; a < t; a++) {
        const line = (a - i + t) * 2 * t + t - j;
        for (let b = 0; b < t; b++) sum += wide[line + b] * x[a * t + b];
      }
      out[i * t + j] = sum;
    }
  }
  return out;
}

// One unit of light at [column, row], rows counted from below, shared by the four pixels around it; on a torus with this border.
export function input([x, y], border) {
  const t = SIZE + 2 * border;
  const out = new Float64Array(t * t);
  const row = SIZE - 1 - y;
  for (let i = Math.floor(row); i <= Math.ceil(row); i++) {
    for (let j = Math.floor(x); j <= Math.ceil(x); j++) out[(i + border) * t + j + border] = (1 - Math.abs(row - i)) * (1 - Math.abs(x - j));
  }
  return out;
}

// z = ReLU(Wz + x) with z = 0 on the border, by Peaceman-Rachford; t x t values, row by row from the top.
export function equilibrium(k, h, border, point) {
  const t = SIZE + 2 * border;
  const [V, x] = [resolventKernel(k, h, t), input(point, border)];
  const framed = (i) => i < border || i >= t - border;
  const prox = (u) => u.map((a, p) => (framed(p % t) || framed(Math.floor(p / t)) ? 0 : Math.max(a, 0)));
  let u = new Float64Array(t * t);
  for (let step = 0; step < 400; step++) {
    const z = prox(u);
    const half = convolve(V, u.map((a, p) => 2 * z[p] - a + ALPHA * x[p]), t);
    const change = half.map((a, p) => 2 * (a - z[p]));
    u = u.map((a, p) => a + change[p]);
    if (Math.hypot(...change) < 1e-9) break;
  }
  return prox(u);
}

// The SIZE x SIZE values inside the border.
export function inside(z, border) {
  const t = SIZE + 2 * border;
  return Array.from({ length: SIZE * SIZE }, (_, p) => z[(Math.floor(p / SIZE) + border) * t + (p % SIZE) + border]);
}

// The state, the state on a torus so large that nothing wraps round, both inside the border, and the share of energy by which they differ.
export function compare(k, h, border, point) {
  const free = inside(equilibrium(k, h, WIDEST, point), WIDEST);
  const z = inside(equilibrium(k, h, border, point), border);
  const energy = (values) => values.reduce((sum, v) => sum + v * v, 0);
  return { z, free, leak: energy(z.map((v, p) => v - free[p])) / energy(free) };
}
