import { apply, dot, identity, matmul } from "./_linalg.js";

// H(v)x, with H(0) = I.
export function householder(v, x) {
  const square = dot(v, v);
  const c = square === 0 ? 0 : (2 * dot(v, x)) / square;
  return x.map((a, i) => a - c * v[i]);
}

// A flag on its pole: no mirror image of it is a turned copy of it.
export const flagAt = ([a, b]) => [[0, 0], [0, 0.8], [0.45, 0.62], [0, 0.45]].map(([p, q]) => [a + p, b + q]);

const RADIANS = Math.PI / 180;
// Unit normals of the k mirrors in the order in which they act: the first along v, each next one turned by theta degrees.
export function normals(v, theta, k) {
  const start = Math.atan2(v[1], v[0]);
  return Array.from({ length: k }, (_, i) => [Math.cos(start + i * theta * RADIANS), Math.sin(start + i * theta * RADIANS)]);
}

// The images of points after 0, 1, ..., k mirrors.
export function stages(mirrors, points) {
  const out = [points];
  for (const v of mirrors) out.push(out[out.length - 1].map((p) => householder(v, p)));
  return out;
}

// The matrix of all mirrors together.
export function product(mirrors) {
  let U = identity(2);
  for (const v of mirrors) U = matmul(v.map((a, i) => v.map((b, j) => +(i === j) - 2 * a * b)), U);
  return U;
}

// What an orthogonal 2 x 2 matrix is: its determinant, its angle in (-180, 180] or the normal of its mirror, and rank(I - U).
export function classify(U) {
  const determinant = Math.sign(U[0][0] * U[1][1] - U[0][1] * U[1][0]);
  const half = Math.atan2(U[1][0], U[0][0]);
  if (determinant > 0) {
    const angle = half / RADIANS;
    return { determinant, angle: Math.abs(angle + 180) < 1e-9 ? 180 : angle, fewest: Math.abs(angle) < 1e-9 ? 0 : 2 };
  }
  // I - 2nn' = [[-cos 2a, -sin 2a], [-sin 2a, cos 2a]] for the normal n at angle a.
  const normal = Math.atan2(-U[1][0], -U[0][0]) / 2;
  return { determinant, normal: [Math.cos(normal), Math.sin(normal)], fewest: 1 };
}

// The arc from x to Ux, for a rotation by an angle in degrees.
export function arc(x, angle, share = 1, count = 40) {
  return Array.from({ length: count + 1 }, (_, i) => {
    const t = ((angle * i) / count) * RADIANS;
    const [c, s] = [Math.cos(t), Math.sin(t)];
    return apply([[c, -s], [s, c]], x).map((a) => a * share);
  });
}
