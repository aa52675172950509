// Small dense matrices as arrays of rows.

export const identity = (n) => Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => +(i === j)));
export const transpose = (A) => A[0].map((_, j) => A.map((row) => row[j]));
export const norm = (x) => Math.hypot(...x);
export function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}
export const apply = (A, x) => A.map((row) => dot(row, x));
export function matmul(A, B) {
  const columns = transpose(B);
  return A.map((row) => columns.map((column) => dot(row, column)));
}
// a A + b B
export const combine = (a, A, b, B) => A.map((row, i) => row.map((v, j) => a * v + b * B[i][j]));
export const frobenius = (A) => Math.hypot(...A.flat());

// W = (1-m)I - g A'A/||A||^2 + h (B-B')/||B|| with Frobenius norms (MON Proposition 1 and its normalisation).
export function weights(m, g, h, A, B) {
  const AA = matmul(transpose(A), A);
  const [a, b] = [frobenius(A) ** 2, frobenius(B)];
  return AA.map((row, i) => row.map((v, j) => (i === j ? 1 - m : 0) - (g * v) / a + (h * (B[i][j] - B[j][i])) / b));
}

// A^-1 by Gauss-Jordan with partial pivoting.
export function inverse(A) {
  const n = A.length;
  const M = A.map((row, i) => [...row, ...identity(n)[i]]);
  for (let k = 0; k < n; k++) {
    let p = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(M[i][k]) > Math.abs(M[p][k])) p = i;
    [M[k], M[p]] = [M[p], M[k]];
    const d = M[k][k];
    M[k] = M[k].map((v) => v / d);
    for (let i = 0; i < n; i++) {
      const f = M[i][k];
      if (i !== k && f !== 0) M[i] = M[i].map((v, j) => v - f * M[k][j]);
    }
  }
  return M.map((row) => row.slice(n));
}

// (I + alpha G)^-1
export const resolvent = (G, alpha) => inverse(combine(1, identity(G.length), alpha, G));

// Eigenvalues and eigenvectors (rows) of a symmetric matrix, by cyclic Jacobi rotations.
export function symmetricEigen(A) {
  const n = A.length;
  const S = A.map((row) => [...row]);
  const V = identity(n);
  for (let sweep = 0; sweep < 30; sweep++) {
    let off = 0;
    for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) off += S[i][j] ** 2;
    if (off <= 1e-30 * frobenius(S) ** 2) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (S[p][q] === 0) continue;
        const z = (S[q][q] - S[p][p]) / (2 * S[p][q]);
        const t = (z < 0 ? -1 : 1) / (Math.abs(z) + Math.hypot(1, z));
        const c = 1 / Math.hypot(1, t);
        const s = t * c;
        for (let k = 0; k < n; k++) [S[k][p], S[k][q]] = [c * S[k][p] - s * S[k][q], s * S[k][p] + c * S[k][q]];
        for (let k = 0; k < n; k++) [S[p][k], S[q][k]] = [c * S[p][k] - s * S[q][k], s * S[p][k] + c * S[q][k]];
        for (let k = 0; k < n; k++) [V[p][k], V[q][k]] = [c * V[p][k] - s * V[q][k], s * V[p][k] + c * V[q][k]];
      }
    }
  }
  return { values: S.map((row, i) => row[i]), vectors: V };
}

// Largest singular value.
export const spectralNorm = (A) => Math.sqrt(Math.max(0, ...symmetricEigen(matmul(transpose(A), A)).values));

// Largest modulus of an eigenvalue, by repeated squaring: ||A^(2^k)||^(1/2^k).
export function spectralRadius(A, doublings = 16) {
  const n = A.length;
  let [log, weight, P, Q] = [0, 1, Float64Array.from(A.flat()), new Float64Array(n * n)];
  for (let k = 0; k <= doublings; k++) {
    let size = 0;
    for (const v of P) size += v * v;
    if (size === 0) return 0;
    size = Math.sqrt(size);
    log += weight * Math.log(size);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < n; l++) sum += P[i * n + l] * P[l * n + j];
        Q[i * n + j] = sum / (size * size);
      }
    }
    [P, Q] = [Q, P];
    weight /= 2;
  }
  return Math.exp(log);
}
