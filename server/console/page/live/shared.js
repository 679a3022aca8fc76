// @ts-nocheck: it was written without types
// What the live table and the live chart share: elements, the line of state, and drawing once per frame.
// The console loads these modules as they are. A notebook loads one text: this module, then table.js or chart.js.

const WORDS = { running: "live", ended: "ended", stopped: "stopped", failed: "failed" };
const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  return filled(node, attributes, children);
}

export function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  return filled(node, attributes, children);
}

// A content security policy without inline styles refuses the attribute `style`, and lets scripts set the same property.
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") node.style.cssText = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const count = (number) => number.toLocaleString("en-US");

// The line below a widget: whether the query runs, how many rows came and come, and a button that ends it.
export function stateLine(model) {
  const state = element("span", { class: "ms-state", role: "status" });
  const figures = element("span", { class: "ms-figures" });
  const message = element("span", { class: "ms-message" });
  const stop = element("button", { type: "button", class: "ms-stop", title: "End this query" }, "Stop");
  stop.addEventListener("click", () => model.send({ kind: "stop" }));
  const node = element("div", { class: "ms-line" }, state, figures, message, stop);
  const update = (more = "") => {
    const status = model.get("_status");
    if (state.textContent !== WORDS[status.state]) state.textContent = WORDS[status.state];
    node.dataset.state = status.state;
    const rate = status.state === "running" ? ` · ${count(status.rate)} rows/s` : "";
    figures.textContent = `${count(status.received)} ${status.received === 1 ? "row" : "rows"}${rate}${more}`;
    message.textContent = status.message;
    message.hidden = !status.message;
    stop.hidden = status.state !== "running";
  };
  return { node, update };
}

// Draws when traits change, once per frame; tells Python that somebody looks, and when nobody does any more.
export function follow(model, traits, draw) {
  let frame = 0;
  const changed = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  for (const trait of traits) model.on(`change:${trait}`, changed);
  model.send({ kind: "opened" });
  draw();
  return () => {
    cancelAnimationFrame(frame);
    for (const trait of traits) model.off(`change:${trait}`, changed);
    model.send({ kind: "closed" });
  };
}
