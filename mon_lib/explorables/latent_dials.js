import { clamp, html, show, stage } from "./_kit.js";
import { bytes } from "./digit_solve.maths.js";
import { FACTORS, compare, differences, frame, largest, nearest, withAlpha } from "./latent_dials.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Two dials on a latent vector");
    const [texts, sources, size, labels] = ["images", "originals", "size", "labels"].map(ui.get);
    const [height, width] = size;
    const [images, originals] = [texts.map(bytes), sources.map(bytes)];
    const paper = (name) => html("canvas", { width, height, role: "img", "aria-label": name, style: "width:92px;height:auto;image-rendering:pixelated;border-radius:3px" });
    const row = html("div", { role: "group", "aria-label": "images", style: "display:flex;flex-wrap:wrap;gap:8px;margin-bottom:8px" });
    const canvases = labels.map((name) => {
      const canvas = paper(name);
      row.append(html("figure", { style: "margin:0;width:92px;line-height:1.2;font-size:13px" }, canvas, html("figcaption", {}, name)));
      return canvas;
    });
    ui.root.prepend(row);
    const graph = ui.plot({ label: "Distance from the patches", ratio: 0.42, narrow: 0.7, width: 640, xlabel: "factor of the fine half", ylabel: "mean difference, levels of 255" });
    const format = (v) => "× " + show(FACTORS[nearest(v)]);
    const marks = () => [[1, "as it was", "ours"]];
    ui.slider("coarse", { label: "coarse half", min: 0, max: 1, step: 0.2, format, marks });
    ui.slider("fine", { label: "fine half", min: 0, max: 1, step: 0.2, format, marks });
    const top = Math.max(1, 1.1 * largest(texts, sources));

    return ui.start(() => {
      const [coarse, fine] = [ui.get("coarse"), ui.get("fine")];
      const [i, j] = [nearest(coarse), nearest(fine)];
      canvases.forEach((canvas, k) => {
        const pixels = new ImageData(withAlpha(frame(images[k], i, j)), width, height);
        canvas.getContext("2d").putImageData(pixels, 0, 0);
      });
      graph.clear([0, 1], [0, top]);
      graph.rule({ x: clamp(fine, 0, 1) }, "muted");
      const words = [];
      differences(texts, sources, i).forEach((curve, k) => {
        const colour = ["ours", "paper", "naive", "newton"][k % 4];
        graph.line(curve, colour, { width: 2.5, dots: 3 });
        graph.dot(curve[j], colour, { r: 7 });
        graph.text(curve[0], labels[k], colour, { dx: 6, dy: -6 });
        const { differ, most } = compare(frame(images[k], i, j), originals[k]);
        const all = originals[k].length;
        words.push([differ ? `${labels[k]}: ${differ} of ${all} values differ, by up to ${most} levels` : `${labels[k]}: all ${all} values come back exactly`, colour]);
      });
      const same = i === 0 && j === 0 ? "every latent vector is zero now, so all images are one" : null;
      graph.describe(`Coarse × ${show(FACTORS[i])}, fine × ${show(FACTORS[j])}`);
      ui.say(`coarse × ${show(FACTORS[i])}, fine × ${show(FACTORS[j])}`, ...words, ...(same ? [same] : []));
    });
  },
};
