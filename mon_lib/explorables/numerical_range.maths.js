import { combine, dot, matmul, symmetricEigen, transpose, weights } from "./_linalg.js";

export const A = [[1.0, 0.3, -0.4, 0.2], [-0.5, 0.8, 0.6, -0.1], [0.2, -0.7, 0.5, 0.9], [0.1, 0.4, -0.3, 0.6]];
export const B = [[0.2, 0.9, -0.3, 0.5], [-0.6, 0.1, 0.7, 0.2], [0.4, -0.8, 0.3, 0.6], [0.1, 0.3, -0.9, -0.2]];
// A matrix that no parameterisation holds back.
export const FREE = [[1.4, 0.6, -0.8, 0.9], [0.7, 0.3, 1.1, -0.2], [0.5, -0.4, 0.8, 1.6], [-0.9, 0.6, 0.3, 1.1]];

export const matrix = (m, g, h, free) => combine(1 - free, weights(m, g, h, A, B), free, FREE);

// Largest eigenvalue of (W + W')/2: how far right the numerical range reaches.
export const reach = (W) => Math.max(...symmetricEigen(combine(0.5, W, 0.5, transpose(W))).values);

// Boundary of {v* W v : ||v|| = 1}, counter-clockwise.  In direction theta the outermost point belongs to the top eigenvector of the
// Hermitian part of exp(-i theta) W, here as a real symmetric matrix of twice the size.
export function numericalRange(W, count = 96) {
  const n = W.length;
  const [H, K] = [combine(0.5, W, 0.5, transpose(W)), combine(0.5, W, -0.5, transpose(W))];
  const half = [];
  for (let k = 0; k <= count / 2; k++) {
    const theta = (2 * Math.PI * k) / count;
    const [c, s] = [Math.cos(theta), Math.sin(theta)];
    // exp(-i theta) W has the Hermitian part cos(theta) H - i sin(theta) K
    const big = Array.from({ length: 2 * n }, (_, i) =>
      Array.from({ length: 2 * n }, (_, j) => {
        const [p, q] = [i % n, j % n];
        if (i < n === j < n) return c * H[p][q];
        return i < n ? s * K[p][q] : -s * K[p][q];
      }),
    );
    const { values, vectors } = symmetricEigen(big);
    const v = vectors[values.indexOf(Math.max(...values))];
    const [x, y] = [v.slice(0, n), v.slice(n)];
    const [Wx, Wy] = [x, y].map((u) => W.map((row) => dot(row, u)));
    half.push([dot(x, Wx) + dot(y, Wy), dot(x, Wy) - dot(y, Wx)]);
  }
  return [...half, ...half.slice(1, -1).reverse().map(([a, b]) => [a, -b])];
}

// Eigenvalues of a small real matrix: characteristic polynomial (Faddeev-LeVerrier), then all its roots at once (Durand-Kerner).
export function eigenvalues(W) {
  const n = W.length;
  const p = [1];
  let M = W.map((row) => row.map(() => 0));
  for (let k = 1; k <= n; k++) {
    M = matmul(W, M).map((row, i) => row.map((v, j) => v + (i === j ? p[k - 1] : 0)));
    p.push(-matmul(W, M).reduce((s, row, i) => s + row[i], 0) / k);
  }
  const size = 1 + Math.max(...p.map(Math.abs));
  let z = Array.from({ length: n }, (_, k) => [0.4 * size ** 0.5 * Math.cos(2.4 * k + 0.5), 0.4 * size ** 0.5 * Math.sin(2.4 * k + 0.5)]);
  const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
  for (let sweep = 0; sweep < 300; sweep++) {
    let moved = 0;
    z = z.map((r, i) => {
      let value = [0, 0];
      for (const c of p) value = times(value, r).map((v, j) => v + (j === 0 ? c : 0));
      let rest = [1, 0];
      z.forEach((q, j) => { if (j !== i) rest = times(rest, [r[0] - q[0], r[1] - q[1]]); });
      const d = rest[0] ** 2 + rest[1] ** 2;
      const step = times(value, [rest[0] / d, -rest[1] / d]);
      moved = Math.max(moved, Math.hypot(...step));
      return [r[0] - step[0], r[1] - step[1]];
    });
    if (moved < 1e-13 * size) break;
  }
  return z;
}
