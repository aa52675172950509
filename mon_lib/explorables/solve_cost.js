import { show, stage } from "./_kit.js";
import { crossover, solve, step } from "./solve_cost.maths.js";

const WIDEST = 128;
const per = (x) => Math.round(100 * x) + " %";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "What an equilibrium costs, in convolutions");
    const bars = ui.plot({ label: "One step, and where a solve goes", ratio: 0.7, narrow: 0.85, width: 460, xlabel: "explicit convolutions" });
    const curve = ui.plot({ label: "One step against the image size", ratio: 0.7, narrow: 0.75, width: 460, xlabel: "image size s", ylabel: "convolutions a step" });
    ui.slider("n", { label: "channels n", min: 1, max: 256, step: 1, digits: 0 });
    ui.slider("s", { label: "image size s", min: 4, max: 128, step: 1, digits: 0 });
    ui.slider("b", { label: "batch b", min: 1, max: 256, step: 1, digits: 0 });
    ui.slider("L", { label: "L (m = 1)", min: 1, max: 20, step: 0.1, digits: 1 });
    ui.slider("tol", { label: "tolerance", min: 1e-8, max: 1e-1, log: true, step: 0.1, digits: 3 });
    ui.slider("ratio", { label: "FFT penalty", min: 1, max: 40, step: 0.5, digits: 1, format: (v) => show(v, 1) + "×" });

    // Segments [length, colour] of a horizontal bar at height y, from zero to the right.
    function bar(y, segments) {
      let x = 0;
      for (const [length, colour] of segments) {
        const box = [[x, y - 0.26], [x + length, y - 0.26], [x + length, y + 0.26], [x, y + 0.26]];
        bars.line(box, colour, { close: true, fill: 0.75, width: 1 });
        x += length;
      }
      return x;
    }

    return ui.start(() => {
      const state = Object.fromEntries(["n", "s", "b", "L", "tol", "ratio"].map((k) => [k, ui.get(k)]));
      const { n, s, b, ratio } = state;
      const one = step(n, s, b, ratio);
      const { steps, fast, parts, total } = solve(state);
      const right = 1.08 * Math.max(1, one.products + Math.max(one.fast, one.matrix));
      bars.clear([0, right], [-0.6, 4.5], null, []);
      bars.rule({ x: 1 }, "muted");
      const rows = [
        ["explicit convolution", [[1, "reference"]]],
        ["step by FFT", [[one.products, "ours"], [one.fast, "paper"]]],
        ["step by matrices", [[one.products, "ours"], [one.matrix, "paper"]]],
      ];
      rows.forEach(([text, segments], i) => {
        bar(3.75 - 1.25 * i, segments);
        bars.text([0, 3.75 - 1.25 * i], text, "reference", { dx: 2, dy: -21 });
      });
      const scale = right / 1.08 / total;
      bar(0, [[scale * parts.products, "ours"], [scale * parts.transforms, "paper"], [scale * parts.once, "muted"]]);
      bars.text([0, 0], `whole solve, not to scale: ${show(total, 1)} convolutions`, "reference", { dx: 2, dy: -21 });

      const sizes = Array.from({ length: WIDEST - 3 }, (_, i) => i + 4);
      const cost = (kind) => sizes.map((size) => {
        const at = step(n, size, b, ratio);
        return [size, at.products + at[kind]];
      });
      const [byFast, byMatrix] = [cost("fast"), cost("matrix")];
      const top = 1.15 * Math.max(1, byMatrix[59][1], byFast[59][1], one.products + Math.max(one.fast, one.matrix));
      curve.clear([4, WIDEST], [0, top]);
      curve.rule({ y: 1 }, "muted");
      curve.line(byFast, "naive", { dash: "6 4" });
      curve.line(byMatrix, "paper");
      curve.text([4, byFast[0][1]], "FFT", "naive", { dx: 8, dy: -8 });
      const [a, c] = byMatrix.filter(([, y]) => y < top).at(-1);
      curve.text([a, c], "matrices", "paper", { dx: -8, dy: 4, anchor: "end" });
      const cross = crossover(ratio);
      if (cross <= WIDEST) curve.rule({ x: cross }, "reference", { dash: "2 4" });
      curve.dot([s, one.products + Math.min(one.fast, one.matrix)], "reference", { r: 6 });
      bars.describe(`One step ${show(one.products + Math.min(one.fast, one.matrix))} convolutions`);
      curve.describe(`The fast transform wins from size ${cross}`);
      ui.say(
        `one step: ${show(one.products + one.matrix)} convolutions by matrices, ${show(one.products + one.fast)} by FFT; the solve takes ${fast ? "the FFT" : "matrices"}`,
        [`at most ${steps} ${steps === 1 ? "step" : "steps"} each way (α = 1/L): ${show(total, 1)} convolutions, as ${show(total / 3, 1)} explicit layers`, "reference"],
        [`products ${per(parts.products / total)}`, "ours"],
        [`transforms ${per(parts.transforms / total)}; the FFT is cheaper ${cross < Infinity ? `from s = ${cross} on` : "at no size here"}`, "paper"],
        [`symbol and inverse, once for both: ${per(parts.once / total)}, ${show(parts.once)} convolutions`, "muted"],
      );
    });
  },
};
