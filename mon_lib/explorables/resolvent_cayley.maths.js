import { apply, combine, identity, resolvent, spectralNorm, symmetricEigen, transpose } from "./_linalg.js";

// G = [[m, -s], [s, m + t]]: its symmetric part has the eigenvalues m and m + t.
export const operator = (m, s, t) => [[m, -s], [s, m + t]];
export const cayley = (G, alpha) => combine(2, resolvent(G, alpha), -1, identity(G.length));

// Norms of G, of the resolvent (I + alpha G)^-1 and of the Cayley operator 2R - I, and the modulus of monotonicity of G.
export function measure(m, s, t, alpha) {
  const G = operator(m, s, t);
  return {
    G: spectralNorm(G),
    R: spectralNorm(resolvent(G, alpha)),
    C: spectralNorm(cayley(G, alpha)),
    m: Math.min(...symmetricEigen(combine(0.5, G, 0.5, transpose(G))).values),
  };
}
// MON-PR's bound on ||C||.
export const cayleyBound = (alpha, m, L) => Math.sqrt(1 - (4 * alpha * m) / (1 + 2 * alpha * m + (alpha * L) ** 2));

export const circle = (count = 120) =>
  Array.from({ length: count }, (_, k) => [Math.cos((2 * Math.PI * k) / count), Math.sin((2 * Math.PI * k) / count)]);
export const image = (A, points) => points.map((x) => apply(A, x));
