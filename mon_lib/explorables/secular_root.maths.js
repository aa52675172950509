import { norm } from "./_linalg.js";

// W = diag(1, lambda_2, kappa), with lambda_2 at the share `middle` of the way, and the unit vector along y.
export const spectrum = (kappa, middle) => [1, 1 + middle * (kappa - 1), kappa];
export function unit(y) {
  const size = norm(y);
  return size > 0 ? y.map((v) => v / size) : [0, 0, 1];
}
// x(c) = (I - 2cW)^-1 y; an entry without a share in y is zero at its pole too.
export const solve = (lambda, y, c) => y.map((v, i) => (v === 0 ? 0 : v / (1 - 2 * c * lambda[i])));
export const length = (lambda, y, c) => norm(solve(lambda, y, c));
// Where an entry of x(c) is infinite, in rising order; an entry without a share in y has no pole.
export const poles = (lambda, y) => [...new Set(lambda.filter((_, i) => y[i] !== 0).map((l) => 1 / (2 * l)))].sort((a, b) => a - b);
// c = x'Wx/||Wx||^2 is a mean of the 1/lambda_i.
export const interval = (lambda) => [1 / Math.max(...lambda), 1 / Math.min(...lambda)];

function bisect(over, a, b) {
  const sign = over(a) > 0;
  for (let k = 0; k < 80; k++) {
    const mid = (a + b) / 2;
    if (over(mid) > 0 === sign) a = mid;
    else b = mid;
  }
  return (a + b) / 2;
}
// The c of every preimage, where ||x(c)|| = ||y|| = 1. Between two poles ||x(c)||^2 is convex, so it has one lowest point there, and at
// most one root on either side of it. Where a pole is missing for lack of a share in y, that entry of x is free: two preimages with one c.
export function roots(lambda, y) {
  const [low, high] = interval(lambda);
  if (high - low < 1e-12) return [low];
  const over = (c) => length(lambda, y, c) - 1;
  const cuts = [low, ...poles(lambda, y).filter((p) => p > low && p < high), high];
  const found = [];
  for (let i = 0; i + 1 < cuts.length; i++) {
    const gap = 1e-12 * (cuts[i + 1] - cuts[i]);
    const [a, b] = [cuts[i] + (i ? gap : 0), cuts[i + 1] - (i + 2 < cuts.length ? gap : 0)];
    let [p, q] = [a, b];
    for (let k = 0; k < 200; k++) {
      const third = (q - p) / 3;
      if (over(p + third) < over(q - third)) q -= third;
      else p += third;
    }
    const least = (p + q) / 2;
    if (over(least) > 1e-13) continue;
    if (over(a) > 1e-13) found.push(bisect(over, a, least));
    else if (over(a) > -1e-13) found.push(a);
    if (over(b) > 1e-13) found.push(bisect(over, b, least));
  }
  for (const free of new Set(lambda)) {
    const p = 1 / (2 * free);
    if (p > low && p < high && lambda.every((l, i) => l !== free || y[i] === 0) && over(p) < -1e-13) found.push(p, p);
  }
  return found.sort((a, b) => a - b);
}

// Newton's iterates for 1/||x(c)|| = 1 from the left end of the interval, where kappa < 2.
export function newtonPath(lambda, y) {
  const path = [interval(lambda)[0]];
  for (let k = 0; k < 60; k++) {
    const c = path[k];
    const x = solve(lambda, y, c);
    const over = norm(x) - 1;
    if (over <= 4e-15) break;
    const slope = x.reduce((sum, v, i) => sum + (2 * lambda[i] * v * v) / (2 * c * lambda[i] - 1), 0);
    path.push(c + (norm(x) ** 2 * over) / slope);
  }
  return path;
}

const mean = (lambda, x) => {
  const u = x.map((v, i) => lambda[i] * v);
  return x.reduce((sum, v, i) => sum + v * u[i], 0) / norm(u) ** 2;
};
export const reflect = (lambda, x) => x.map((v, i) => v * (1 - 2 * mean(lambda, x) * lambda[i]));
// Newton's method for f(x) = y from x = y, as the paper has it: c of where it ends and its steps, or null where it does not end.
export function newtonOnF(lambda, y, most = 60) {
  let x = y;
  for (let k = 0; k < most; k++) {
    const F = reflect(lambda, x).map((v, i) => v - y[i]);
    if (norm(F) < 1e-12) return { c: mean(lambda, x), steps: k };
    const c = mean(lambda, x);
    const u = x.map((v, i) => lambda[i] * v);
    const square = norm(u) ** 2;
    const b = u.map((v, i) => (2 * v * (1 - c * lambda[i])) / square); // J = A - 2 u b', A = I - 2cW: Sherman-Morrison
    const [p, q] = [F, u].map((v) => v.map((a, i) => a / (1 - 2 * c * lambda[i])));
    const [bp, bq] = [p, q].map((v) => v.reduce((sum, a, i) => sum + a * b[i], 0));
    x = x.map((v, i) => v - p[i] - (2 * q[i] * bp) / (1 - 2 * bq));
    if (!x.every((v) => Number.isFinite(v))) return null;
  }
  return null;
}
