// What the pictures of a classifier's solve share: a grey image, the class probabilities, the certified bounds.
import { html } from "./_kit.js";
import { argmax } from "./digit_solve.maths.js";

// Bytes, row by row, as a canvas; drawn into `old` if there is one.
export function greyCanvas(grey, [height, width], old) {
  const canvas = old ?? html("canvas", { width, height, "aria-hidden": "true" });
  const pixels = new ImageData(width, height);
  grey.forEach((v, i) => pixels.data.set([v, v, v, 255], 4 * i));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
// One bar a class, the true one in its own colour, and a mark where each ends up.
export function drawClasses(plot, p, end, truth) {
  const guess = argmax(p);
  plot.clear([-0.6, p.length - 0.4], [0, 1.08], p.map((_, i) => [i, String(i)]), [[0, "0"], [0.5, "0.5"], [1, "1"]]);
  p.forEach((v, i) => {
    const colour = i === truth ? "peaceman-rachford" : i === guess ? "naive" : "muted";
    plot.line([[i - 0.38, 0], [i - 0.38, v], [i + 0.38, v], [i + 0.38, 0]], colour, { close: true, fill: 0.8, width: 1 });
    plot.line([[i - 0.45, end[i]], [i + 0.45, end[i]]], "reference", { width: 2 });
  });
}
// The bounds over the steps: `mine` in front of `others`, with a dot at the step shown.
export function drawBounds(plot, others, mine, steps, at, range) {
  const curve = (b) => b.map((v, k) => [steps[k], v]);
  plot.clear([1, Math.max(2, steps[steps.length - 1])], range);
  for (const b of others) plot.line(curve(b), "muted", { width: 1 });
  plot.rule({ x: steps[at] }, "muted");
  plot.line(curve(mine), "peaceman-rachford", { width: 2.5 });
  plot.dot(curve(mine)[at], "peaceman-rachford", { r: 6 });
}
