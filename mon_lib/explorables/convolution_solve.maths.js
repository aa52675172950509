// How far a channel is from where it ends, relative to its final size; 1 where it ends at zero and is not there yet.
export function distance(state, final) {
  let [gap, size] = [0, 0];
  final.forEach((v, i) => {
    gap += (state[i] - v) ** 2;
    size += v ** 2;
  });
  return size > 0 ? Math.sqrt(gap / size) : gap > 0 ? 1 : 0;
}
// A channel moved by [down, right]; what comes in from outside is zero, what leaves is lost.
export function translated(state, [height, width], [down, right]) {
  const out = new Array(height * width).fill(0);
  for (let r = Math.max(0, -down); r < Math.min(height, height - down); r++)
    for (let c = Math.max(0, -right); c < Math.min(width, width - right); c++) out[(r + down) * width + c + right] = state[r * width + c];
  return out;
}
