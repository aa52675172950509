import { apply, dot, identity, matmul, norm, transpose } from "./_linalg.js";

export const rotation = (theta) => [[Math.cos(theta), -Math.sin(theta)], [Math.sin(theta), Math.cos(theta)]];
// H(v) as a matrix, with H(0) = I.
export function mirror(v) {
  const square = dot(v, v) || 1;
  return identity(v.length).map((row, i) => row.map((e, j) => e - (2 * v[i] * v[j]) / square));
}
// W = I - U + s diag(1, 0): at s = 0 one reflection does what the rotation U does.
export function weight(theta, s) {
  const W = rotation(theta).map((row, i) => row.map((v, j) => +(i === j) - v));
  W[0][0] += s;
  return W;
}
// f(x) = H(Wx)x and its Jacobian H(u)A - 2 u x'W/||u||^2, u = Wx, A = I - 2cW (REF Theorem 3).  Where Wx = 0: x and I - W.
export function auxiliary(W, x) {
  const u = apply(W, x);
  const square = dot(u, u);
  if (square === 0) return { y: x, J: identity(x.length).map((row, i) => row.map((v, j) => v - W[i][j])) };
  const c = dot(x, u) / square;
  const A = W.map((row, i) => row.map((v, j) => +(i === j) - 2 * c * v));
  const back = apply(transpose(W), x);
  const HA = matmul(mirror(u), A);
  return { y: x.map((v, i) => v - 2 * c * u[i]), J: HA.map((row, i) => row.map((v, j) => v - (2 * u[i] * back[j]) / square)) };
}

// One step of each transition: the next state and the Jacobian there.
export function stepper(method, theta, s) {
  const W = weight(theta, s);
  if (method === "auxiliary") return (x) => auxiliary(W, x);
  const M = { orthogonal: rotation(theta), free: W.map((row, i) => row.map((v, j) => +(i === j) - v)), mirror: mirror([0.6, 0.8]) }[method];
  return (x) => ({ y: apply(M, x), J: M });
}
// States h_0, ..., h_T without input, and the length of what becomes of a small turn of h_0, for a turn of length 1.
export function orbit(method, theta, s, start, T) {
  const step = stepper(method, theta, s);
  let [h, turn] = [start, [-start[1] / norm(start), start[0] / norm(start)]];
  const [states, turns] = [[h], [1]];
  for (let t = 0; t < T; t++) {
    const { y, J } = step(h);
    [h, turn] = [y, apply(J, turn)];
    states.push(h);
    turns.push(norm(turn));
  }
  return { states, turns };
}
