import { show, stage } from "./_kit.js";
import { distances, equilibrium, naive, period, splitting } from "./naive_versus_splitting.maths.js";

const LAST = 30;

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Naive iteration and operator splitting on a network of two units");
    const plane = ui.plot({ label: "The iterates in the plane", ratio: 0.95, narrow: 0.75, width: 460, xlabel: "z₁", ylabel: "z₂" });
    const errors = ui.plot({ label: "Distance to the equilibrium", logy: true, ratio: 0.95, narrow: 0.5, width: 460, xlabel: "step k", ylabel: "‖zₖ − z*‖" });
    plane.handle("start", { label: "start", keep: (q) => q.map((v) => Math.max(v, 0)) });
    ui.slider("k", { label: "step k", min: 0, max: LAST, step: 1, digits: 0 });
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    const play = ui.button("Play", () => {
      if (timer) return stop();
      if (ui.get("k") >= LAST) ui.put("k", 0);
      play.textContent = "Pause";
      timer = setInterval(() => (ui.get("k") < LAST ? ui.put("k", ui.get("k") + 1) : stop()), 350);
    });
    ui.slider("s", { label: "skew s", min: 0, max: 3.5, step: 0.05 });
    ui.slider("x", { label: "input x", min: -1, max: 1.25, step: 0.05 });

    return ui.start(() => {
      const [k, s, x, start] = ["k", "s", "x", "start"].map(ui.get);
      const z = equilibrium(s, x);
      const [plain, split] = [naive(s, x, start, 60), splitting(s, x, start, 60)];
      plane.clear([-0.15, 1.65], [-0.3, 4.6]);
      errors.clear([0, LAST], [1e-8, 20]);
      errors.rule({ x: k }, "muted");
      for (const [path, name, colour, dash, dy] of [[plain, "naive", "naive", "5 4", -10], [split, "Peaceman-Rachford", "peaceman-rachford", null, -9]]) {
        plane.line(path.slice(0, k + 1), colour, { dots: 3, dash, width: 1.8 });
        const error = distances(path, z).map((e, j) => [j, Math.max(e, 1e-9)]);
        errors.line(error, colour, { dash });
        errors.dot([k, Math.max(error[k][1], 1e-8)], colour, { r: 5 });
        plane.dot(path[k], colour, { r: 6 });
        const j = colour === "naive" ? LAST : 11;
        errors.text([j, Math.max(error[j][1], 1e-8)], name, colour, { dy, anchor: j === LAST ? "end" : "start" });
      }
      plane.text(start, "start", "reference", { dx: 12, dy: -8 });
      plane.dot(z, "reference", { r: 6, hollow: true });
      plane.text(z, "z*", "reference", { dx: 9, dy: -9 });
      const turn = period(plain);
      const fate = turn === 1 ? "settles" : turn > 1 ? `repeats every ${turn} steps and never settles` : "has not settled after 60 steps";
      const at = ([a, b]) => `(${show(a)}, ${show(b)})`;
      plane.describe(`After ${k} steps the naive iteration is at ${at(plain[k])} and Peaceman-Rachford at ${at(split[k])}`);
      ui.say(
        `equilibrium z* = ${at(z)} of z = relu(Wz + c), W = [0 −${show(s)}; ${show(s)} 0]`,
        [`naive z ← relu(Wz + c): at ${at(plain[k])}; it ${fate}`, "naive"],
        [`Peaceman-Rachford: at ${at(split[k])}, distance ${show(distances(split, z)[k], 3)}`, "peaceman-rachford"],
      );
    }, stop);
  },
};
