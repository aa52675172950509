// The ten activations: sigma, its slope, its range, and how far t runs in the pictures.
const softplus = (t) => Math.max(t, 0) + Math.log1p(Math.exp(-Math.abs(t)));
const sigmoid = (t) => (t < 0 ? Math.exp(t) / (1 + Math.exp(t)) : 1 / (1 + Math.exp(-t)));
export const SLOPE = 0.1;
export const ACTIVATIONS = {
  relu: { name: "ReLU", sigma: (t) => Math.max(t, 0), slope: (t) => +(t > 0), f: (p) => (p < 0 ? Infinity : 0) },
  leaky: {
    name: "leaky ReLU", sigma: (t) => (t < 0 ? SLOPE * t : t), slope: (t) => (t < 0 ? SLOPE : 1),
    f: (p) => (p < 0 ? ((1 / SLOPE - 1) * p * p) / 2 : 0),
  },
  clip: {
    name: "clip to [0, 1]", sigma: (t) => Math.min(Math.max(t, 0), 1), slope: (t) => +(t > 0 && t < 1), f: (p) => (p < 0 || p > 1 ? Infinity : 0),
  },
  soft: {
    name: "soft threshold", sigma: (t) => Math.sign(t) * Math.max(Math.abs(t) - 1, 0), slope: (t) => +(Math.abs(t) > 1), f: Math.abs,
  },
  tanh: { name: "tanh", sigma: Math.tanh, slope: (t) => 1 - Math.tanh(t) ** 2 },
  sigmoid: { name: "sigmoid", sigma: sigmoid, slope: (t) => sigmoid(t) * (1 - sigmoid(t)) },
  softplus: { name: "softplus", sigma: softplus, slope: sigmoid },
  elu: { name: "ELU", sigma: (t) => (t < 0 ? Math.expm1(t) : t), slope: (t) => (t < 0 ? Math.exp(t) : 1) },
  softsign: { name: "softsign", sigma: (t) => t / (1 + Math.abs(t)), slope: (t) => 1 / (1 + Math.abs(t)) ** 2 },
  arctan: { name: "arctan", sigma: Math.atan, slope: (t) => 1 / (1 + t * t) },
};

// prox_{alpha f}(u) = sigma(t) with alpha t + (1 - alpha) sigma(t) = u: Newton's method inside a bracket (NEW-PROX).
export function prox({ sigma, slope }, u, alpha) {
  const g = (t) => alpha * t + (1 - alpha) * sigma(t) - u;
  let [lo, hi, width] = [u, u, 1];
  while (g(lo) > 0) [lo, width] = [lo - width, 2 * width];
  for (width = 1; g(hi) < 0; width *= 2) hi += width;
  let t = Math.min(Math.max(u, lo), hi);
  for (let k = 0; k < 100 && hi - lo > 1e-14 * (1 + Math.abs(t)); k++) {
    const v = g(t);
    if (v === 0) break;
    if (v > 0) hi = t;
    else lo = t;
    const newton = t - v / (alpha + (1 - alpha) * slope(t));
    t = newton > lo && newton < hi ? newton : (lo + hi) / 2;
  }
  return sigma(t);
}

// The curve (p, f(p)) with f(p) = integral of sigma^-1(q) - q and f(0) = 0.  As p = sigma(t), that is the integral of
// (t - sigma(t)) sigma'(t), here by Simpson's rule in x with t = sinh(x); f is given where sigma has corners.
export function penalty({ sigma, slope, f }, count = 520) {
  if (f) {
    return Array.from({ length: count + 1 }, (_, k) => {
      const p = -4 + (8 * k) / count;
      return [p, f(p)];
    });
  }
  const [lo, h] = [-6.5, 13 / count];
  const rate = (x) => (Math.sinh(x) - sigma(Math.sinh(x))) * slope(Math.sinh(x)) * Math.cosh(x);
  let sum = 0;
  const curve = [[sigma(Math.sinh(lo)), 0]];
  for (let k = 0; k < count; k++) {
    const x = lo + k * h;
    sum += (h / 6) * (rate(x) + 4 * rate(x + h / 2) + rate(x + h));
    curve.push([sigma(Math.sinh(x + h)), sum]);
  }
  const zero = curve.reduce((best, q) => (Math.abs(q[0]) < Math.abs(best[0]) ? q : best))[1];
  return curve.map(([p, v]) => [p, v - zero]);
}
// f at p between the points of the curve
export function interpolate(curve, p) {
  const k = curve.findIndex(([q]) => q >= p);
  if (k < 0) return NaN;
  if (k === 0) return curve[0][0] === p ? curve[0][1] : NaN;
  const [[a, fa], [b, fb]] = [curve[k - 1], curve[k]];
  return a === b ? fb : fa + ((fb - fa) * (p - a)) / (b - a);
}
