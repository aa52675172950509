import { clamp, show, stage } from "./_kit.js";
import { norm } from "./_linalg.js";
import { orbit } from "./memory_orbit.maths.js";

const LAST = 60;
const [LOW, HIGH] = [1e-6, 1e6];
const METHODS = [
  ["free", "free matrix I − W", "muted", "2 3"],
  ["mirror", "one mirror H(v)", "naive", "3 2"],
  ["orthogonal", "rotation U", "douglas-rachford", "10 3 2 3"],
  ["auxiliary", "reflection H(Wh)", "ours", null],
];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "What a state keeps of its beginning");
    const plane = ui.plot({ label: "The states in the plane", equal: true, width: 400, xlabel: "h₁", ylabel: "h₂" });
    const turn = ui.plot({ label: "What becomes of a small turn of the first state", ylabel: "turn of hₜ per turn of h₀", logy: true, width: 400, ratio: 0.95, narrow: 0.6, xlabel: "step t" });
    const keep = (q) => {
      const r = norm(q);
      return r < 1e-3 ? [0.3, 0] : q.map((v) => (v * clamp(r, 0.3, 1.4)) / r);
    };
    plane.handle("start", { label: "first state", keep });
    ui.slider("s", { label: "away from I − U, s", min: -0.5, max: 0.8, step: 0.01, marks: () => [[0, "W = I − U", "ours"]] });
    ui.slider("theta", { label: "angle of U, θ", min: 0.05, max: 3, step: 0.01 });
    ui.slider("steps", { label: "steps T", min: 1, max: LAST, step: 1, digits: 0 });

    return ui.start(() => {
      const [s, theta, steps, start] = ["s", "theta", "steps", "start"].map(ui.get);
      plane.clear([-1.6, 1.6], [-1.6, 1.6]);
      const radius = norm(start);
      plane.line(Array.from({ length: 91 }, (_, k) => [radius * Math.cos((k * Math.PI) / 45), radius * Math.sin((k * Math.PI) / 45)]), "muted", { width: 1, dash: "3 3" });
      turn.clear([0, LAST], [LOW, HIGH]);
      turn.rule({ x: steps }, "muted");
      const lines = [`after ${steps} steps without input, from ‖h₀‖ = ${show(radius)}:`];
      for (const [method, name, colour, dash] of METHODS) {
        const { states, turns } = orbit(method, theta, s, start, LAST);
        if (method !== "mirror") plane.line(states.slice(0, steps + 1), colour, { dash, width: 1.2, dots: 2.5 });
        plane.dot(states[steps], colour, { r: method === "auxiliary" ? 7 : 5 });
        turn.line(turns.map((v, t) => [t, clamp(v, LOW, HIGH)]), colour, { dash, width: method === "auxiliary" ? 2.5 : 2 });
        turn.dot([steps, clamp(turns[steps], LOW, HIGH)], colour, { r: 5 });
        const grown = show(turns[steps]);
        lines.push([`${name}: norm ${show(norm(states[steps]))}, a small turn becomes ${grown} times as large`, colour]);
        if (method === "auxiliary") turn.describe(`Under the reflection it becomes ${grown} times as large`);
      }
      plane.text(start, "h₀", "reference", { dx: 13, dy: -9 });
      plane.describe(`Rotation by ${show(theta)}, s = ${show(s)}, ${steps} steps`);
      ui.say(...lines);
    });
  },
};
