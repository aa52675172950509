import { angle, at, determinant, reflect, turn } from "./circle_map.maths.js";

// n points whose distribution is close to the standard normal one, the same every time (a lattice by powers of the plastic number).
export function cloud(n) {
  const g = 1.32471795724474602596;
  return Array.from({ length: n }, (_, k) => {
    const [u, v] = [(0.5 + (k + 1) / g) % 1, (0.5 + (k + 1) / (g * g)) % 1];
    const r = Math.sqrt(-2 * Math.log(u));
    return [r * Math.cos(2 * Math.PI * v), r * Math.sin(2 * Math.PI * v)];
  });
}
export const move = ([a, b], sigma, [p, q]) => [a + sigma * p, b + sigma * q];
export const image = (kappa, x) => reflect([1, kappa], x);

// The Gaussian, as a share of its largest value.
export const share = ([a, b], sigma, [p, q]) => Math.exp(-((p - a) ** 2 + (q - b) ** 2) / (2 * sigma * sigma));

// Where x is at the angle theta, on the circle of radius r: what this preimage adds to the density of f(x), and det J.
export function term(kappa, mean, sigma, r, theta) {
  const [p, q] = at(theta);
  const det = determinant([1, kappa], [p, q]);
  return { theta, det, value: share(mean, sigma, [r * p, r * q]) / Math.abs(det) };
}

// The angle in (0, pi/2) at which det J vanishes; null where it vanishes nowhere or on the axis alone.
export const fold = (kappa) => (kappa > 2 ? Math.asin(Math.sqrt((2 * kappa - 1) / (kappa * kappa - 1))) : null);
// The angle of f(x) where x is at theta, between -pi and pi, without jumps; x above the first axis goes below it.
export const out = (kappa, theta) => Math.PI + 2 * Math.atan2(kappa * Math.sin(theta), Math.cos(theta)) - theta;
// Half of the angle about the second axis in which targets have three preimages.
export const wedge = (kappa) => (kappa > 2 ? out(kappa, fold(kappa)) - 1.5 * Math.PI : 0);
// All theta with f at the angle `target`: bisection between the folds, where the angle of f is monotone.
export function sources(kappa, target) {
  const t = target - 2 * Math.PI * Math.floor(target / (2 * Math.PI));
  const goal = t > Math.PI ? t : 2 * Math.PI - t;
  const ends = [0, ...(kappa > 2 ? [fold(kappa), Math.PI - fold(kappa)] : []), Math.PI];
  const found = [];
  for (let k = 1; k < ends.length; k++) {
    let [low, high] = [ends[k - 1], ends[k]];
    const before = out(kappa, low) - goal;
    if (before * (out(kappa, high) - goal) > 0) continue;
    for (let step = 0; step < 60; step++) {
      const middle = (low + high) / 2;
      if ((out(kappa, middle) - goal) * before > 0) low = middle;
      else high = middle;
    }
    found.push(((low + high) / 2) * (t > Math.PI ? 1 : -1));
  }
  return found;
}
// The mean of |det J| over all directions: how often f covers the circle.
export const cover = (kappa) => 1 + (4 * wedge(kappa)) / Math.PI;
// How far an angle is from the second axis, up or down.
export const tilt = (t) => Math.abs(turn(2 * t, Math.PI)) / 2;

// All terms at f(x) with angle `target`.
export const terms = (kappa, mean, sigma, r, target) => sources(kappa, target).map((theta) => term(kappa, mean, sigma, r, theta));

// The terms while x goes once round: [{ turned, points: [[angle of f(x), term], ...] }], a curve for each sheet between two folds.
export function sheets(kappa, mean, sigma, r, from, n = 240) {
  const t = fold(kappa);
  const ends = t === null ? [-Math.PI / 2, (3 * Math.PI) / 2] : [t, Math.PI - t, Math.PI + t, 2 * Math.PI - t, 2 * Math.PI + t];
  return ends.slice(1).map((end, k) => {
    let last = null;
    const points = Array.from({ length: n }, (_, j) => {
      const s = (1 - Math.cos((Math.PI * (j + 0.5)) / n)) / 2; // dense at the ends, where the terms are large
      const theta = ends[k] + s * (end - ends[k]);
      const psi = angle(image(kappa, at(theta)));
      last = last === null ? from + turn(psi, from) : last + turn(psi, last);
      return [last, term(kappa, mean, sigma, r, theta).value];
    });
    return { turned: t !== null && k % 2 === 0, points };
  });
}

// The whole density between the two rays about the angle `axis`, [[angle, sum], ...]: three terms each.
export function total(kappa, mean, sigma, r, axis, n = 120) {
  const w = wedge(kappa);
  return Array.from({ length: w ? n : 0 }, (_, j) => {
    const s = Math.sin((Math.PI / 2) * Math.cos((Math.PI * (j + 0.5)) / n)); // dense at the rays
    return [axis - w * s, terms(kappa, mean, sigma, r, axis - w * s).reduce((sum, { value }) => sum + value, 0)];
  });
}
