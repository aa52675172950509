import { apply, combine, dot, identity } from "./_linalg.js";

export const matrix = (lam, s) => [[1, -s], [s, lam]];

// t = 2c = 2 x'Wx/||Wx||^2, and Wx; where Wx = 0, t = 1, so that f(x) = x - Wx and J = I - W.
function scale(W, x) {
  const u = apply(W, x);
  const size = dot(u, u);
  return size > 1e-24 * dot(x, x) ? { u, size, t: (2 * dot(x, u)) / size } : { u: [0, 0], size: 1, t: 1 };
}

export const reflect = (W, x) => {
  const { t } = scale(W, x);
  return apply(combine(1, identity(2), -t, W), x);
};

// J = A - 2 u (A'u + W'x)'/||u||^2 with A = I - tW (REF Theorem 3).
export function jacobian(W, x) {
  const { u, size, t } = scale(W, x);
  const A = combine(1, identity(2), -t, W);
  const b = [0, 1].map((j) => A[0][j] * u[0] + A[1][j] * u[1] + W[0][j] * x[0] + W[1][j] * x[1]);
  return A.map((row, i) => row.map((v, j) => v - (2 * u[i] * b[j]) / size));
}

export const det = (M) => M[0][0] * M[1][1] - M[0][1] * M[1][0];

// The two factors of det J = (-det A) (x'A^-1 Wx / x'Wx); either may be infinite where their product is not.
export function factors(W, x) {
  const { t } = scale(W, x);
  const A = combine(1, identity(2), -t, W);
  const u = apply(W, x);
  const adjugate = [[A[1][1], -A[0][1]], [-A[1][0], A[0][0]]];
  return [-det(A), dot(x, apply(adjugate, u)) / det(A) / dot(x, u)];
}

// [angle in degrees, det J], and how often det J changes its sign on the way round.
export function curve(W, count = 720) {
  const points = Array.from({ length: count + 1 }, (_, k) => {
    const angle = (2 * Math.PI * (k + 0.5)) / count;
    return [(360 * (k + 0.5)) / count, det(jacobian(W, [Math.cos(angle), Math.sin(angle)]))];
  });
  let changes = 0;
  for (let k = 0; k < count; k++) changes += points[k][1] * points[k + 1][1] < 0;
  return { points: points.slice(0, count), changes };
}

export const circle = ([a, b], r, count = 180) =>
  Array.from({ length: count }, (_, k) => [a + r * Math.cos((2 * Math.PI * k) / count), b + r * Math.sin((2 * Math.PI * k) / count)]);

// Area inside a polygon, negative where it is run through clockwise.
export const area = (points) =>
  points.reduce((sum, [a, b], k) => {
    const [c, d] = points[(k + 1) % points.length];
    return sum + (a * d - b * c) / 2;
  }, 0);
