import { clamp, ink, show, stage, svg } from "./_kit.js";
import { SIZE, WIDEST, compare } from "./wrap_around.maths.js";

const [LOW, HIGH] = [-WIDEST - 0.5, SIZE + WIDEST - 0.5];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "A response that wraps round, and a border that stops it");
    const [state, leaked] = ["The state on the torus", "What came round the edge"].map((label) => ui.plot({ label, equal: true, bare: true, width: 400, basis: 230 }));
    const keep = (q) => q.map((v) => clamp(v, 0, SIZE - 1));
    state.handle("at", { label: "input pixel", keep });
    ui.slider("border", { label: "border w", min: 0, max: WIDEST, step: 1, digits: 0 });
    ui.slider("k", { label: "kernel k", min: 3, max: 5, step: 2, digits: 0 });
    ui.slider("h", { label: "drift h", min: -3, max: 3, step: 0.1, digits: 1 });

    // Squares of SIZE x SIZE values, the strength as opacity.
    function squares(plot, values, top, colour) {
      values.forEach((v, p) => {
        const opacity = Math.min(1, Math.sqrt(Math.abs(v) / top));
        if (opacity < 0.03) return;
        const [x, y] = [p % SIZE, SIZE - 1 - Math.floor(p / SIZE)];
        const [[left, high], [right, low]] = [plot.at([x - 0.5, y + 0.5]), plot.at([x + 0.5, y - 0.5])].map((q) => q.map(Math.round));
        const size = { x: left, y: high, width: right - left, height: low - high };
        plot.raw(svg("rect", { ...size, fill: ink(colour), "fill-opacity": opacity.toFixed(3) }));
      });
    }
    const frame = (plot, w, colour, pen) => {
      const [a, b] = [-0.5 - w, SIZE - 0.5 + w];
      plot.line([[a, a], [b, a], [b, b], [a, b]], colour, { close: true, ...pen });
    };

    return ui.start(() => {
      const [w, k, h, at] = ["border", "k", "h", "at"].map(ui.get);
      const { z, free, leak } = compare(k, h, w, at);
      const top = Math.max(...free);
      const safe = 2 * w >= k - 1;
      for (const [plot, title] of [[state, "state z*"], [leaked, "what came round: |z* − z°|"]]) {
        plot.clear([LOW, HIGH], [LOW, HIGH + 1.2]);
        frame(plot, w, "muted", { width: 1, dash: "3 3", fill: w ? 0.12 : 0 });
        frame(plot, 0, "ground", { width: 0, fill: 1 });
        frame(plot, 0, "reference", { width: 1.5 });
        plot.text([-0.5 - w, SIZE - 0.5 + w], title, "reference", { dy: -8 });
      }
      squares(state, z, top, "peaceman-rachford");
      squares(leaked, z.map((v, p) => v - free[p]), top, "naive");
      const none = leak < 1e-12;
      const share = none ? "nothing" : `${show(leak, 3)} of the energy of z°`;
      state.describe(`Border ${w}, kernels ${k} by ${k}, input at column ${show(at[0] + 1, 1)}`);
      leaked.describe(`Leaked: ${share}`);
      ui.say(
        [`2w = ${2 * w} ${safe ? "≥" : "<"} k − 1 = ${k - 1}: W ${safe ? "does not reach round the edge" : "reaches round the edge"}`, safe ? "peaceman-rachford" : "naive"],
        `leaked: ${share}`,
        w ? "dashed: the seam of the torus; z°: the equilibrium with zeros beyond the picture" : "without a border the picture's own edge is the seam of the torus; z°: with zeros beyond the picture",
      );
    });
  },
};
