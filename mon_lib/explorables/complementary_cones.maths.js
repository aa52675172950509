// z = relu(Wz + c) with M = I - W is the linear complementarity problem z >= 0, w = Mz - c >= 0, z'w = 0.  Then c = Mz - w lies in the
// cone of the columns of M for the active units and of -e_i for the others: one cone for each of the four active sets.

// Symmetric part [[m, k], [k, m]], skew part [[0, -s], [s, 0]].
export const matrix = (m, s, k) => [[m, k - s], [k + s, m]];
export const SETS = [[], [0], [1], [0, 1]];
export const title = (set) => (set.length ? `{${set.map((i) => i + 1).join(", ")}}` : "{ }");

export const generators = (M, set) => [0, 1].map((i) => (set.includes(i) ? [M[0][i], M[1][i]] : [-(i === 0), -(i === 1)]));

export const determinant = (M) => M[0][0] * M[1][1] - M[0][1] * M[1][0];
export const isMonotone = (M) => M[0][0] >= 0 && M[0][0] * M[1][1] >= ((M[0][1] + M[1][0]) / 2) ** 2;
export const isP = (M) => M[0][0] > 0 && M[1][1] > 0 && determinant(M) > 0;

// All solutions z, each with its active set: the c that lie in a cone have non-negative coordinates in its generators.
export function solutions(M, c, slack = 1e-12) {
  const found = [];
  for (const set of SETS) {
    const [a, b] = generators(M, set);
    const d = a[0] * b[1] - a[1] * b[0];
    if (d === 0) continue;
    const x = [(c[0] * b[1] - c[1] * b[0]) / d, (a[0] * c[1] - a[1] * c[0]) / d];
    if (x.every((v) => v >= -slack)) found.push({ set, z: x.map((v, i) => (set.includes(i) ? Math.max(v, 0) : 0)) });
  }
  return found;
}

// The least and the greatest number of solutions, over all directions of c.
export function census(M, count = 720) {
  const numbers = Array.from({ length: count }, (_, j) => {
    const t = (2 * Math.PI * (j + 0.37)) / count;
    return solutions(M, [Math.cos(t), Math.sin(t)]).length;
  });
  return [Math.min(...numbers), Math.max(...numbers)];
}

// The cone as a polygon with corners at distance `far`.
export function sector(M, set, far = 20) {
  const rays = generators(M, set).map(([x, y]) => Math.atan2(y, x));
  let turn = rays[1] - rays[0];
  while (turn > Math.PI) turn -= 2 * Math.PI;
  while (turn < -Math.PI) turn += 2 * Math.PI;
  const rim = Array.from({ length: 13 }, (_, j) => rays[0] + (turn * j) / 12);
  return { polygon: [[0, 0], ...rim.map((t) => [far * Math.cos(t), far * Math.sin(t)])], middle: rays[0] + turn / 2, width: Math.abs(turn) };
}
