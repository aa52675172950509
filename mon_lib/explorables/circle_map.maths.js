// f(x) = H(Wx)x in the plane, W = diag(l1, l2), with H(0) = I.
export function reflect([l1, l2], [a, b]) {
  const [u, v] = [l1 * a, l2 * b];
  const square = u * u + v * v;
  if (square === 0) return [a, b];
  const along = (2 * (u * a + v * b)) / square;
  return [a - along * u, b - along * v];
}
export const at = (theta) => [Math.cos(theta), Math.sin(theta)];
export const angle = ([a, b]) => Math.atan2(b, a);
// The difference of two angles, in [-pi, pi).
export const turn = (a, b) => a - b - 2 * Math.PI * Math.floor((a - b) / (2 * Math.PI) + 0.5);

// The angle of f along the circle, followed without jumps: [[theta, angle out], ...], n + 1 points from 0 to 2 pi.
export function lift(l, n = 1440) {
  let last = angle(reflect(l, [1, 0]));
  if (last < 0) last += 2 * Math.PI;
  const points = [[0, last]];
  for (let k = 1; k <= n; k++) {
    const theta = (2 * Math.PI * k) / n;
    last += turn(angle(reflect(l, at(theta))), last);
    points.push([theta, last]);
  }
  return points;
}
export const winding = (points) => Math.round((points[points.length - 1][1] - points[0][1]) / (2 * Math.PI));

// det J = 2 det W / |Wx|^2 - 1 on the unit circle; its least and largest value.
export const determinant = ([l1, l2], [a, b]) => (2 * l1 * l2) / ((l1 * a) ** 2 + (l2 * b) ** 2) - 1;
export function range([l1, l2]) {
  if (l1 * l2 === 0) return l1 === l2 ? [1, 1] : [-1, -1];
  const ends = [(2 * l2) / l1 - 1, (2 * l1) / l2 - 1];
  return [Math.min(...ends), Math.max(...ends)];
}

// All theta in [0, 2 pi) with f at the angle `target`: where the lift passes it, refined by bisection.
export function preimages(l, points, target) {
  const found = [];
  for (let k = 1; k < points.length; k++) {
    let [[low, p], [high, q]] = [points[k - 1], points[k]];
    let [before, after] = [turn(p, target), turn(q, target)];
    if (Math.abs(before) > 2 || Math.abs(after) > 2) continue; // the far side of the circle
    if (before === 0) found.push(low);
    if (before * after >= 0) continue;
    for (let step = 0; step < 40; step++) {
      const middle = (low + high) / 2;
      const value = turn(angle(reflect(l, at(middle))), target);
      if (value * before > 0) [low, before] = [middle, value];
      else high = middle;
    }
    found.push((low + high) / 2);
  }
  return found;
}
