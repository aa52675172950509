import { apply, dot } from "./_linalg.js";

export const flag = ([a, b]) => [[0, 0], [0, 0.7], [0.4, 0.54], [0, 0.38]].map(([p, q]) => [a + p, b + q]);

export function rotation(degrees) {
  const t = (degrees * Math.PI) / 180;
  return [[Math.cos(t), -Math.sin(t)], [Math.sin(t), Math.cos(t)]];
}

// Wx = x - Ux, the normal of the mirror of x.
export const normal = (U, x) => apply(U, x).map((y, i) => x[i] - y);

// x - 2 v v'x/(||v||^2 + eps); with eps = 0 and v = 0 it is x.
export function reflect(v, x, eps = 0) {
  const square = dot(v, v) + eps;
  const c = square === 0 ? 0 : (2 * dot(v, x)) / square;
  return x.map((a, i) => a - c * v[i]);
}

// f(x) = H(Wx)x, with eps in its denominator.
export const single = (U, x, eps = 0) => reflect(normal(U, x), x, eps);

// The share s of U in f(x) = (1 - s) x + s Ux: ||Wx||^2/(||Wx||^2 + eps).
export function share(U, x, eps) {
  const v = normal(U, x);
  const square = dot(v, v);
  return square === 0 ? 0 : square / (square + eps);
}

// The image of the ray through x, from 0 to `reach`, finely where it bends.
export function ray(U, x, eps, reach = 4, count = 160) {
  const size = Math.hypot(...x);
  if (size === 0) return [[0, 0]];
  return Array.from({ length: count + 1 }, (_, i) => single(U, x.map((a) => (a / size) * reach * (i / count) ** 2), eps));
}

// [||x||, s] on a logarithmic grid.
export function shares(U, eps, lo, hi, count = 120) {
  return Array.from({ length: count + 1 }, (_, i) => {
    const size = lo * (hi / lo) ** (i / count);
    return [size, share(U, [size, 0], eps)];
  });
}

// The derivative of f at x in central differences: columns are directions, entry [i][j] = df_i/dx_j.
export function jacobian(U, x, eps, step = 1e-6) {
  const columns = [0, 1].map((j) => {
    const [up, down] = [1, -1].map((sign) => single(U, x.map((a, i) => a + (i === j ? sign * step : 0)), eps));
    return up.map((a, i) => (a - down[i]) / (2 * step));
  });
  return [0, 1].map((i) => columns.map((column) => column[i]));
}
