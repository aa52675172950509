import { clamp, show, stage } from "./_kit.js";
import { epochSeconds, race, within } from "./error_race.maths.js";

const [SMALLEST, LARGEST] = [8, 1024];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Error by epoch and by second");
    const byEpoch = ui.plot({ label: "Error by epoch", ratio: 0.75, narrow: 0.7, width: 400, xlabel: "epoch", ylabel: "error, %" });
    const bySecond = ui.plot({ label: "Error by second", ratio: 0.75, narrow: 0.8, width: 500, logx: true, xlabel: "seconds", ylabel: "error, %" });
    ui.slider("seconds", { label: "clock, seconds", min: 0.001, max: 10000, log: true, step: 0.02, format: (v) => show(v, 3) });
    ui.slider("batch", { label: "batch N", min: 8, max: 1024, log: true, step: 0.02, format: (v) => String(Math.round(v)) });

    return ui.start(() => {
      const names = ["labels", "colours", "errors", "once", "each", "images", "batch", "seconds"];
      const { labels, colours, errors, once, each, images, batch, seconds } = Object.fromEntries(names.map((k) => [k, ui.get(k)]));
      const runners = race({ errors, once, each, images, batch, seconds });
      const top = 1.1 * Math.max(...errors.flat());
      const room = (1 + 0.12 * labels.length) * top; // for the names
      const most = Math.max(...errors.map((row) => row.length));
      // One time axis for all batch sizes, so that a curve moves and not the axis.
      const fastest = Math.min(...once.map((o, i) => epochSeconds(o, each[i], images, LARGEST)));
      const slowest = Math.max(...errors.map((row, i) => row.length * epochSeconds(once[i], each[i], images, SMALLEST)));
      byEpoch.clear([0.8, most + 0.2], [0, top], errors[0].map((_, k) => [k + 1, String(k + 1)]));
      bySecond.clear([fastest / 1.5, 1.5 * slowest], [0, room]);
      bySecond.rule({ x: clamp(seconds, fastest / 1.5, 1.5 * slowest) }, "reference");
      runners.forEach(({ points, epochs }, i) => {
        const row = errors[i].map((e, k) => [k + 1, e]);
        byEpoch.line(row, colours[i], { width: 1.5, dash: "2 4" });
        bySecond.line(points, colours[i], { width: 1.5, dash: "2 4" });
        byEpoch.line(row.slice(0, epochs), colours[i], { width: 3 });
        bySecond.line(points.slice(0, epochs), colours[i], { width: 3 });
        if (epochs) {
          byEpoch.dot(row[epochs - 1], colours[i], { r: 5 });
          bySecond.dot(points[epochs - 1], colours[i], { r: 5 });
        }
        const last = i === runners.length - 1;
        bySecond.text([points[0][0], room], labels[i], colours[i], { dy: 14 + 17 * i, anchor: last && i ? "end" : "start" });
      });
      const N = Math.round(batch);
      const words = runners.map(({ perEpoch, epochs, error }, i) => {
        const state = epochs ? `${epochs} epoch${epochs > 1 ? "s" : ""} done, error ${show(error, 1)} %` : "still in its first epoch";
        const slower = i ? `, ${show(perEpoch / runners[0].perEpoch, 1)} times ${labels[0]}` : "";
        return [`${labels[i]}: ${state} (${show(perEpoch, 2)} s an epoch${slower})`, colours[i]];
      });
      const near = labels.slice(1).map((label, i) => {
        const from = within(2, once[0], each[0], once[i + 1], each[i + 1]);
        return `${label} ${from < Infinity ? `from N = ${from}` : "at no N"}`;
      });
      byEpoch.describe(runners.map((r, i) => `${labels[i]} ${r.epochs}`).join(", "));
      bySecond.describe(`Batch ${N}, clock ${show(seconds, 2)} s`);
      ui.say(`after ${show(seconds, 2)} s with batches of ${N}`, ...words, `at most twice the time of ${labels[0]}: ${near.join(", ")}`);
    });
  },
};
