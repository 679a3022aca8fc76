// @ts-nocheck: it was written without types
// The live chart: lines or bars in SVG, with axes, a legend that hides series, a tooltip for pointer and keyboard,
// and the same numbers as a table for who cannot see it.

import { element, follow, shape, stateLine } from "./shared.js";

const HEIGHT = 280;
const MARGIN = { top: 10, right: 14, bottom: 38, left: 52 };
const COLOURS = 12;
const DASHED_FROM = 8; // colours that come later are like earlier ones
const DOTS_MAX = 60; // of a series; more points than that are a line only
const TABLE_ROWS_MAX = 50;
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const TIME_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR,
  12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY, 365 * DAY,
];
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 2 });
const exact = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

function numberStep(span, wanted) {
  const raw = span / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
}

function ticksBetween(low, high, step) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step + 0); // not -0
  return found;
}

// UTC, as fine as the step is.
function timeText(ms, step) {
  if (!Number.isFinite(ms)) return "";
  const text = new Date(ms).toISOString();
  if (step >= DAY) return text.slice(0, 10);
  if (step >= MINUTE) return text.slice(11, 16);
  return step >= SECOND ? text.slice(11, 19) : text.slice(11, 23);
}

// Where points stand from left to right: `at` gives pixels for an x, `band` how wide a bar's place is.
function xScale(kind, scale, xs, width) {
  const inner = Math.max(40, width - MARGIN.left - MARGIN.right);
  if (scale === "category") {
    const band = inner / Math.max(1, xs.length);
    const places = new Map(xs.map((x, index) => [x, MARGIN.left + band * (index + 0.5)]));
    const every = Math.ceil(xs.length / Math.max(1, Math.floor(inner / 70)));
    const ticks = xs.filter((_, index) => index % every === 0).map((x) => ({ x, text: shortened(x, band * every) }));
    return { at: (x) => places.get(x), band, ticks, gap: 1 };
  }
  let gap = Infinity;
  for (let i = 1; i < xs.length; i++) gap = Math.min(gap, xs[i] - xs[i - 1]);
  if (!Number.isFinite(gap)) gap = scale === "time" ? MINUTE : 1;
  let [low, high] = [xs[0], xs[xs.length - 1]];
  const margin = kind === "bar" ? gap / 2 : low === high ? gap / 2 : 0;
  low -= margin;
  high += margin;
  const wanted = Math.max(2, Math.floor(inner / 90));
  const step = scale === "time"
    ? TIME_STEPS.find((each) => (high - low) / each <= wanted) ?? TIME_STEPS[TIME_STEPS.length - 1]
    : numberStep(high - low, wanted);
  const at = (x) => MARGIN.left + ((x - low) / (high - low)) * inner;
  const ticks = ticksBetween(low, high, step).map((x) => ({
    x, text: scale === "time" ? timeText(x, step) : compact.format(x),
  }));
  return { at, band: Math.min(inner, (gap / (high - low)) * inner), ticks, gap };
}

function yScale(kind, values) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (kind === "bar" || (low > 0 && low < high * 0.6)) low = Math.min(0, low);
  if (kind === "bar") high = Math.max(0, high);
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  const step = numberStep(high - low, 5);
  low = Math.floor(low / step + 1e-9) * step;
  high = Math.ceil(high / step - 1e-9) * step;
  const inner = HEIGHT - MARGIN.top - MARGIN.bottom;
  const at = (y) => MARGIN.top + (1 - (y - low) / (high - low)) * inner;
  return { at, ticks: ticksBetween(low, high, step), zero: at(Math.min(high, Math.max(low, 0))) };
}

function shortened(text, pixels) {
  const fits = Math.max(3, Math.floor(pixels / 7));
  return text.length > fits ? `${text.slice(0, fits - 1)}…` : text;
}

// Which points follow a gap: windows that are missing between two points stay empty, since nobody knows their value.
// Windows are as far apart as the two nearest of them; days of a time zone and months differ by less than half.
function gapsBefore(xs, gap) {
  return xs.map((x, i) => i > 0 && x - xs[i - 1] > gap * 1.5);
}

// The series' value at x, or the last one up to there.
function valueAt(series, x, exactly) {
  if (exactly) {
    const place = series.x.lastIndexOf(x);
    return place < 0 ? null : series.y[place];
  }
  let found = null;
  for (let i = 0; i < series.x.length && series.x[i] <= x; i++) found = series.y[i];
  return found;
}

function render({ model, el }) {
  const axes = model.get("_axes");
  const line = stateLine(model);
  const legend = element("div", { class: "ms-legend", role: "group", "aria-label": "Series" });
  const tip = element("div", { class: "ms-tip", "aria-live": "polite" });
  const svg = shape("svg", { height: HEIGHT, role: "img", tabindex: "0" });
  const empty = element("div", { class: "ms-empty" }, "No points yet");
  const plot = element("div", { class: "ms-plot" });
  if (axes.title) plot.append(element("div", { class: "ms-title" }, axes.title));
  plot.append(legend, svg, empty, tip);
  const numbers = element("div");
  const details = element("details", {}, element("summary", {}, "The numbers"), numbers);
  el.classList.add("millstream");
  el.append(element("div", { class: "ms-card" }, plot, details, line.node));

  const colours = new Map(); // a series keeps its colour
  const hidden = new Set();
  let shown = null; // { xs, series, x, y }: what is drawn
  let pointed = null; // the x that the tooltip tells of
  tip.hidden = true;

  const colourOf = (name) => {
    if (!colours.has(name)) colours.set(name, `var(--ms-${(colours.size % COLOURS) + 1})`);
    return colours.get(name);
  };

  function draw() {
    const all = model.get("_series");
    all.map((series) => series.name).sort().forEach(colourOf);
    drawLegend(all);
    const series = all.filter((each) => !hidden.has(each.name) && each.x.length);
    empty.hidden = series.length > 0;
    svg.toggleAttribute("hidden", !series.length);
    shown = null;
    if (series.length) drawPlot(series);
    const leftOut = model.get("_left_out");
    line.update(leftOut ? ` · ${leftOut} more series` : "");
    svg.setAttribute("aria-label", spoken(series));
    drawTip();
    if (details.open) drawNumbers();
  }

  function drawPlot(series) {
    const width = Math.max(260, plot.clientWidth - 24 || 640);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const together = [...new Set(series.flatMap((each) => each.x))];
    const xs = axes.scale === "category" ? together : together.sort((a, b) => a - b);
    const x = xScale(axes.kind, axes.scale, xs, width);
    const y = yScale(axes.kind, series.flatMap((each) => each.y));
    shown = { xs, series, x, y };
    const marks = axes.kind === "bar" ? bars(series, x, y) : lines(series, x, y);
    svg.replaceChildren(...scaffold(x, y, width), ...marks, shape("line", { class: "ms-cross", visibility: "hidden" }));
  }

  function scaffold(x, y, width) {
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    const nodes = y.ticks.flatMap((value) => [
      shape("line", { class: "ms-grid", x1: MARGIN.left, x2: right, y1: y.at(value), y2: y.at(value) }),
      shape("text", { x: MARGIN.left - 8, y: y.at(value) + 4, "text-anchor": "end" }, compact.format(value)),
    ]);
    nodes.push(shape("line", { class: "ms-axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
    for (const tick of x.ticks) {
      const at = x.at(tick.x);
      nodes.push(shape("line", { class: "ms-axis", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
      const half = tick.text.length * 3.2; // about; a text at the edge stays inside
      const middle = Math.min(width - half, Math.max(half, at));
      nodes.push(shape("text", { x: middle, y: bottom + 16, "text-anchor": "middle" }, tick.text));
    }
    const title = axes.scale === "time" ? `${axes.x}, UTC${dayOf(x.ticks)}` : axes.x;
    nodes.push(shape("text", { x: right, y: HEIGHT - 5, "text-anchor": "end" }, title));
    nodes.push(shape("text", { x: MARGIN.left, y: HEIGHT - 5 }, `↑ ${axes.y}`));
    return nodes;
  }

  // The day that all ticks are in, which the ticks themselves do not tell.
  function dayOf(ticks) {
    const days = new Set(ticks.map((tick) => timeText(tick.x, DAY)));
    return days.size === 1 && !ticks.some((tick) => tick.text.length === 10) ? ` ${[...days][0]}` : "";
  }

  function lines(series, x, y) {
    return series.map((each) => {
      const points = each.x.map((at, i) => [x.at(at), y.at(each.y[i])]);
      const gaps = gapsBefore(each.x, axes.windows ? x.gap : Infinity);
      const step = (i) => (i === 0 || gaps[i] ? "M" : "L");
      const path = points.map(([left, top], i) => `${step(i)}${left.toFixed(1)} ${top.toFixed(1)}`).join("");
      const alone = (i) => step(i) === "M" && (i + 1 === points.length || gaps[i + 1]); // a line would not show it
      const dashes = [...colours.keys()].indexOf(each.name) >= DASHED_FROM ? "; stroke-dasharray: 7 4" : "";
      const stroke = `stroke: ${colourOf(each.name)}${dashes}`;
      const group = shape("g", {}, shape("path", { class: "ms-curve", d: path, style: stroke }));
      const fill = `fill: ${colourOf(each.name)}`;
      const dotted = points.filter((_, i) => points.length <= DOTS_MAX || alone(i));
      group.append(...dotted.map(([cx, cy]) => shape("circle", { cx, cy, r: 2.5, style: fill })));
      return group;
    });
  }

  function bars(series, x, y) {
    const place = Math.min(x.band * 0.8, 72 * series.length);
    const wide = place / series.length;
    return series.flatMap((each, number) =>
      each.x.map((at, i) => {
        const top = y.at(each.y[i]);
        return shape("rect", {
          x: x.at(at) - place / 2 + number * wide,
          y: Math.min(top, y.zero),
          width: Math.max(1, wide - 1),
          height: Math.max(0.5, Math.abs(y.zero - top)),
          rx: Math.min(2, wide / 4),
          style: `fill: ${colourOf(each.name)}`,
        });
      }),
    );
  }

  function drawLegend(all) {
    const there = new Set(all.map((series) => series.name));
    const names = [...colours.keys()].filter((name) => there.has(name)); // each stays in its place
    const buttons = [...legend.children];
    legend.hidden = names.length < 2;
    if (buttons.map((button) => button.textContent).join("\n") !== names.join("\n")) {
      legend.replaceChildren(...names.map(legendButton));
    }
  }

  function legendButton(name) {
    const attributes = { type: "button", "aria-pressed": String(!hidden.has(name)), title: "Show or hide" };
    const button = element("button", attributes, name);
    button.style.setProperty("--ms-colour", colourOf(name));
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      draw();
    });
    return button;
  }

  const xText = (x) => axes.scale === "time"
    ? new Date(x).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "")
    : axes.scale === "number" ? exact.format(x) : x;

  function drawTip() {
    const cross = svg.querySelector(".ms-cross");
    const found = shown !== null && pointed !== null && shown.xs.includes(pointed);
    tip.hidden = !found;
    if (!found) {
      cross?.setAttribute("visibility", "hidden");
      return;
    }
    const left = shown.x.at(pointed);
    const exactly = !axes.arrival; // between arrivals a value holds, between windows it does not
    const rows = shown.series
      .map((each) => ({ name: each.name, value: valueAt(each, pointed, exactly) }))
      .filter((row) => row.value !== null)
      .map(({ name, value }) => {
        const row = element("div", {}, name, element("span", {}, exact.format(value)));
        row.style.setProperty("--ms-colour", colourOf(name));
        return row;
      });
    tip.replaceChildren(element("b", {}, xText(pointed)), ...rows);
    for (const [name, value] of Object.entries({ x1: left, x2: left, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom })) {
      cross.setAttribute(name, value);
    }
    cross.setAttribute("visibility", "visible");
    const scale = svg.clientWidth / svg.viewBox.baseVal.width || 1;
    const right = left * scale + 24 + tip.offsetWidth > plot.clientWidth;
    tip.style.left = `${right ? left * scale - tip.offsetWidth : left * scale + 24}px`;
    tip.style.top = `${svg.getBoundingClientRect().top - plot.getBoundingClientRect().top + MARGIN.top}px`;
  }

  function point(event) {
    if (shown === null) return;
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const distance = (x) => Math.abs(shown.x.at(x) - at);
    pointed = shown.xs.reduce((best, x) => (distance(x) < distance(best) ? x : best));
    drawTip();
  }

  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") pointed = null;
    else if (by === undefined || shown === null) return;
    else {
      const from = shown.xs.indexOf(pointed);
      const last = shown.xs.length - 1;
      pointed = shown.xs[from < 0 ? last : Math.min(last, Math.max(0, from + by))];
    }
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own use for these keys
    drawTip();
  }

  function leave() {
    pointed = null;
    drawTip();
  }

  function drawNumbers() {
    if (shown === null) return numbers.replaceChildren();
    const { xs, series } = shown;
    const titles = [axes.x, ...series.map((each) => each.name)];
    const listed = axes.scale === "category" ? xs.slice(0, TABLE_ROWS_MAX) : xs.slice(-TABLE_ROWS_MAX).reverse();
    const rows = listed.map((x) => {
      const values = series.map((each) => valueAt(each, x, true));
      const cells = values.map((value) => element("td", { class: "ms-number" }, value === null ? "" : exact.format(value)));
      return element("tr", {}, element("th", { scope: "row" }, String(xText(x))), ...cells);
    });
    const head = element("tr", {}, ...titles.map((title, at) => element("th", { scope: "col", class: at ? "ms-number" : "" }, title)));
    numbers.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  function spoken(series) {
    const latest = series.map((each) => `${each.name} ${exact.format(each.y[each.y.length - 1])}`).join(", ");
    return `${axes.kind === "bar" ? "Bars" : "Lines"} of ${axes.y} over ${axes.x}. Latest: ${latest || "none"}`;
  }

  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("keydown", step);
  svg.addEventListener("blur", leave);
  details.addEventListener("toggle", () => details.open && drawNumbers());
  const resized = new ResizeObserver(() => requestAnimationFrame(draw));
  const end = follow(model, ["_series", "_status"], draw);
  resized.observe(plot);
  return () => {
    resized.disconnect();
    end();
  };
}

export default { render };
