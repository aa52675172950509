// f(x) = H(Wx)x for W = diag(t, 2, ..., 2). The first axis n is an axis of symmetry, so points are [c, s]: the entry along n
// and the length of the rest, signed within one half-plane. H(0) = I, but for t = 0 f is Q = diag(1, -1, ..., -1) at n too.
export function reflect(t, [c, s]) {
  if (t === 0) return [c, -s];
  const [u, v] = [t * c, 2 * s];
  const along = (2 * (u * c + v * s)) / (u * u + v * v);
  return [c - along * u, s - along * v];
}

// det J on the unit sphere of dimension d: the derivative within the half-plane, times the stretch of the d - 2 others.
export function determinant(t, d, [c, s]) {
  if (t === 0) return (-1) ** (d - 1);
  const square = t * t * c * c + 4 * s * s;
  return ((4 * t) / square - 1) * (((t * t - 4 * t) * c * c - 4 * s * s) / square) ** (d - 2);
}

// Real roots of a m^3 + b m^2 + c m + e, a != 0.
export function cubic(a, b, c, e) {
  const [p, q, r] = [b / a, c / a, e / a];
  const f = (m) => ((m + p) * m + q) * m + r;
  const g = (m) => (3 * m + 2 * p) * m + q;
  const polish = (m) => {
    for (let k = 0; k < 3; k++) if (g(m) !== 0) m -= f(m) / g(m);
    return m;
  };
  const [h, k] = [(p * p - 3 * q) / 9, (2 * p ** 3 - 9 * p * q + 27 * r) / 54];
  if (k * k < h ** 3) {
    const angle = Math.acos(k / Math.sqrt(h ** 3));
    return [0, 1, 2].map((j) => polish(-2 * Math.sqrt(h) * Math.cos((angle + 2 * Math.PI * j) / 3) - p / 3));
  }
  const A = -Math.sign(k || 1) * Math.cbrt(Math.abs(k) + Math.sqrt(k * k - h ** 3));
  return [polish(A + (A === 0 ? 0 : h / A) - p / 3)];
}

// All x with f(x) = y, the one near Q'y first: f(x) is parallel to y on up to three lines, one point of each goes to +y.
export function preimages(t, [p, q]) {
  const home = [p, -q];
  if (t === 0) return [home];
  const [a, b, c, e] = [4 * p, 4 * q * (1 - t), p * (4 * t - t * t), -q * t * t];
  const lines = Math.abs(a) >= Math.abs(e) ? cubic(a, b, c, e).map((m) => [1, m]) : cubic(e, c, b, a).map((m) => [m, 1]);
  const found = lines.map(([u, v]) => {
    const x = [u / Math.hypot(u, v), v / Math.hypot(u, v)];
    const y = reflect(t, x);
    return y[0] * p + y[1] * q > 0 ? x : [-x[0], -x[1]];
  });
  const near = (x) => x[0] * home[0] + x[1] * home[1];
  return found.sort((x, z) => near(z) - near(x));
}

// Where the sheets meet: the angle from n at which f arrives at n (t < 0) or turns back (0 < t < 1).
export function border(t) {
  if (t < 0) return Math.atan(Math.sqrt(t * t - 4 * t) / 2);
  return t < 1 ? Math.asin(Math.sqrt((t * (4 - t)) / (4 - t * t))) : 0;
}

// The mean number of preimages = E|det J|. For 0 < t < 1 a target has three if its entry along n is at most that of the fold.
export function mass(t, d) {
  if (t < 0) return 3;
  if (t === 0 || t >= 1) return 1;
  const theta = border(t);
  const fold = Math.asin(Math.abs(reflect(t, [Math.cos(theta), Math.sin(theta)])[0]));
  const integral = (end, n = 400) => {
    let sum = 0;
    for (let k = 0; k < n; k++) sum += Math.cos(((k + 0.5) * end) / n) ** (d - 2);
    return (sum * end) / n;
  };
  return 1 + (2 * integral(fold)) / integral(Math.PI / 2);
}

// n points of the unit sphere of dimension d, as [entry along n, length of the rest].
export function sphere(d, n, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), 1 | state);
    z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return Array.from({ length: n }, () => {
    const c = normal();
    let rest = 0;
    for (let k = 1; k < d; k++) rest += normal() ** 2;
    const length = Math.sqrt(c * c + rest);
    return [c / length, Math.sqrt(rest) / length];
  });
}

// The values whose mean is E|det J|: at the points themselves, or at every other one and, between them, at x ~ W^-1 (n - y),
// whose density is |det W| |Wx|^-d (2 |n'Wx| / |Wx|)^(d - 2); each divided by the density from which it comes.
export const plain = (t, d, points) => points.map((x) => Math.abs(determinant(t, d, x)));
export function weighted(t, d, points) {
  if (t === 0) return plain(t, d, points);
  return points.map(([c, s], k) => {
    const [a, b] = k % 2 ? [(1 - c) / t, s / 2] : [c, s];
    const x = [a / Math.hypot(a, b), b / Math.hypot(a, b)];
    const size = Math.hypot(t * x[0], 2 * x[1]);
    const cap = ((Math.abs(t) * 2 ** (d - 1)) / size ** d) * ((2 * Math.abs(t * x[0])) / size) ** (d - 2);
    return Math.abs(determinant(t, d, x)) / (0.5 + 0.5 * cap);
  });
}

// Mean of the first k values and twice its standard error, for some k from 10 on: [[k, mean, error], ...].
export function running(values, marks = 40) {
  const out = [];
  let [sum, squares, next] = [0, 0, 0];
  values.forEach((v, i) => {
    [sum, squares] = [sum + v, squares + v * v];
    const k = i + 1;
    if (k < 10 * (values.length / 10) ** (next / marks) - 1e-9) return;
    while (k >= 10 * (values.length / 10) ** (next / marks) - 1e-9 && next <= marks) next++;
    const mean = sum / k;
    out.push([k, mean, 2 * Math.sqrt(Math.max(0, squares / k - mean * mean) / (k - 1))]);
  });
  return out;
}
