// I - W for two tiers of one unit each, A_11 = a and A_21 = A_22 = 1; up is the share of the coupling that goes upwards.
export const gain = (theta, m, a, up) => [[m + a * a + 1, theta * up], [theta * (1 - up), m + 1]];

// The largest |theta| for which I - W >= mI (MON-C4).
export const limit = (a) => 2 * Math.sqrt(1 + a * a);

// The numerical range of a real 2x2 matrix is an ellipse with axes along Re and Im: centre, and half its width and height.
export function range([[p, q], [w, v]]) {
  return { centre: (p + v) / 2, width: Math.hypot((p - v) / 2, (q + w) / 2), height: Math.abs(q - w) / 2 };
}
// Its left end: the smallest eigenvalue of the symmetric part.
export function leftEnd(G) {
  const { centre, width } = range(G);
  return centre - width;
}
export function ellipse(G, count = 96) {
  const { centre, width, height } = range(G);
  return Array.from({ length: count }, (_, k) => {
    const t = (2 * Math.PI * k) / count;
    return [centre + width * Math.cos(t), height * Math.sin(t)];
  });
}
// Both eigenvalues; real, because the off-diagonal entries never differ in sign.
export function eigenvalues([[p, q], [w, v]]) {
  const root = Math.sqrt(((p - v) / 2) ** 2 + q * w);
  return [(p + v) / 2 - root, (p + v) / 2 + root];
}

// What one tier answers to the state x of the other, if alone it would rest at `rest`: max(0, rest - slope x), up to x = far.
export function response(rest, slope, far) {
  const kink = rest / slope;
  const xs = [0, ...(kink > 0 && kink < far ? [kink] : []), far];
  return xs.map((x) => [x, Math.max(0, rest - slope * x)]);
}
export const slopes = (G) => [G[0][1] / G[0][0], G[1][0] / G[1][1]];

// All equilibria z = max(0, alone - slopes * other), by trying the four sets of active units; each once.
export function equilibria(G, alone) {
  const [s, t] = slopes(G);
  const [p, q] = alone;
  const det = 1 - s * t;
  const all = [[0, 0], [p, 0], [0, q]];
  if (Math.abs(det) > 1e-12) all.push([(p - s * q) / det, (q - t * p) / det]);
  const close = (x, y) => Math.abs(x - y) < 1e-9;
  const holds = ([x, y]) => close(x, Math.max(0, p - s * y)) && close(y, Math.max(0, q - t * x));
  return all.filter((z, i) => holds(z) && all.findIndex((o) => close(o[0], z[0]) && close(o[1], z[1])) === i);
}
