// The frame of the console: which page is shown, the login, the line of statements, the colours.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { pieces, visible } from "./text.js";
import { editorLink, errorBox, View } from "./view.js";

/** @typedef {{ show: (view: View, name: string, parameters: URLSearchParams) => unknown }} Page */

/** @type {[string, string, string, () => Promise<Page>][]} path, name, icon, module */
const PAGES = [
  ["overview", "Overview", "◉", () => import("./pages/overview.js")],
  ["queries", "Queries", "▶", () => import("./pages/queries.js")],
  ["sources", "Streams and tables", "≋", () => import("./pages/sources.js")],
  ["topics", "Topics", "☰", () => import("./pages/topics.js")],
  ["graph", "Graph", "⟜", () => import("./pages/graph.js")],
  ["editor", "Editor", "✎", () => import("./pages/editor.js")],
  ["groups", "Consumer groups", "⋔", () => import("./pages/groups.js")],
  ["connectors", "Connectors", "⇄", () => import("./pages/connectors.js")],
  ["mirrors", "Mirrors", "⧉", () => import("./pages/mirrors.js")],
  ["registry", "Schema registry", "❏", () => import("./pages/registry.js")],
  ["cluster", "Cluster", "⬡", () => import("./pages/cluster.js")],
  ["log", "Processing log", "⚠", () => import("./pages/log.js")],
  ["settings", "Settings and rights", "⚙", () => import("./pages/settings.js")],
];
const THEMES = ["auto", "light", "dark"];
const RETRY_MS = 1000;

const title = h("h1", { tabindex: "-1" });
const main = h("main", { id: "main" });
const entries = PAGES.map(([path, name, icon]) =>
  h("a", { href: `#/${path}` }, h("span", { class: "icon", "aria-hidden": "true" }, icon), h("span", {}, name)));
const lost = h("div", { class: "lost", role: "status", hidden: true });
const calls = h("div", { class: "calls", role: "region", "aria-label": "Statements and requests of this page" });
const who = h("span", { class: "who" });
const leave = h("button", { type: "button", hidden: true, onclick: logout }, "Log out");
const theme = h("button", { type: "button", class: "theme", onclick: () => setTheme(THEMES[(THEMES.indexOf(themeNow()) + 1) % 3]) });

/** @type {View | null} */
let view = null;
let shownPath = "";

function build() {
  const brand = h("a", { class: "brand", href: "#/overview" }, h("img", { src: "icon.svg", alt: "", width: "26", height: "26" }), "Millstream");
  document.body.append(
    h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the page"),
    h("nav", { "aria-label": "Pages" }, brand, entries, h("div", { class: "nav-end" }, theme)),
    h("div", { class: "page" }, h("header", {}, title, h("div", { class: "account" }, who, leave)), lost, main, calls),
  );
  setTheme(themeNow());
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // the address names the page, not a place on it
  title.focus();
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  const at = Math.max(0, PAGES.findIndex(([each]) => each === kind));
  show(at, decoded(rest.join("/")), new URLSearchParams(query));
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {number} at @param {string} name @param {URLSearchParams} parameters */
async function show(at, name, parameters) {
  view?.end();
  for (const open of document.querySelectorAll("dialog:not(.login)")) /** @type {HTMLDialogElement} */ (open).close();
  api.calls = [];
  drawCalls();
  const root = h("div", { class: `view view-${PAGES[at][0]}` });
  const now = new View(root, (text) => {
    setText(title, visible(text));
    document.title = `${visible(text)} · Millstream`;
  });
  view = now;
  now.title(name || PAGES[at][1]);
  entries.forEach((entry, each) => (each === at ? entry.setAttribute("aria-current", "page") : entry.removeAttribute("aria-current")));
  main.replaceChildren(root);
  if (shownPath && shownPath !== location.hash) title.focus({ preventScroll: true }); // a screen reader says where we are
  shownPath = location.hash;
  scrollTo(0, 0);
  try {
    const page = await PAGES[at][3]();
    if (view === now) await page.show(now, name, parameters);
  } catch (error) {
    if (!now.signal.aborted) root.prepend(errorBox(error));
  }
}

function drawCalls() {
  const told = api.calls.slice(-12).map((call) =>
    call.kind === "statement"
      ? h("a", { class: "call", href: editorLink(call.text), title: "Open in the editor" }, pieces(short(call.text)))
      : h("span", { class: "call route", title: visible(call.text) }, pieces(short(call.text, 64))));
  calls.replaceChildren(h("span", { class: "soft" }, "This page sends"), ...told);
}

/** @param {string} text @param {number} [most] */
const short = (text, most = 120) => (text.length > most ? `${text.slice(0, most - 1)}…` : text).replaceAll(/\s+/g, " ");

// ---------------------------------------------------------------- login

/** @type {HTMLDialogElement | null} */
let asking = null;

/** @param {Error} error */
function askWho(error) {
  if (asking) return;
  view?.end();
  const name = h("input", { name: "name", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const token = h("input", { name: "token", type: "password", autocomplete: "off" });
  const place = h("div", {});
  if (api.loggedIn) place.append(errorBox(error)); // the first time it is no mistake of anybody
  const form = h("form", { method: "dialog" }, place,
    h("label", {}, "Name", name), h("label", {}, "Password", password),
    h("details", {}, h("summary", {}, "With a token"), h("label", {}, "Token", token)),
    h("button", { type: "submit", class: "primary" }, "Log in"),
    h("p", { class: "soft" }, "This page keeps them in memory, until it is closed or loaded again."));
  const node = h("dialog", { class: "login", "aria-labelledby": "login-title" }, h("h2", { id: "login-title" }, "Log in to Millstream"), form);
  token.addEventListener("input", () => {
    name.required = password.required = token.value === "";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (token.value) api.loginWithToken(token.value);
    else api.login(name.value, password.value);
    try {
      const { user } = await api.get("v1/access", { quiet: true });
      api.user = user ?? "";
      node.close();
      asking = null;
      node.remove();
      drawWho();
      route();
    } catch (refusal) {
      password.value = token.value = "";
      place.replaceChildren(errorBox(refusal));
      password.focus();
    }
  });
  node.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing to see behind it
  asking = /** @type {any} */ (node);
  document.body.append(node);
  node.showModal();
}

function drawWho() {
  who.replaceChildren(...(api.user ? pieces(api.user) : []));
  leave.hidden = !api.loggedIn;
}

function logout() {
  api.logout();
  location.reload(); // nothing of what was seen stays in memory
}

// ---------------------------------------------------------------- a server that is gone

async function waitForServer() {
  lost.hidden = false;
  const since = Date.now();
  while (!api.reachable) {
    setText(lost, `The server does not answer. Trying again (for ${Math.round((Date.now() - since) / 1000)} s now) …`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    await api.ping();
  }
}

function serverIsBack() {
  lost.hidden = true;
}

// ---------------------------------------------------------------- colours

function themeNow() {
  try {
    return localStorage.getItem("millstream.theme") ?? "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

/** @param {string} wanted */
function setTheme(wanted) {
  try {
    localStorage.setItem("millstream.theme", wanted);
  } catch {
    // then it is for this page only
  }
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  const dark = wanted === "dark" || (wanted === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.body.dataset.jpThemeLight = String(!dark); // for the chart, which knows the themes of notebooks
  setText(theme, { auto: "◐ Colours: system", light: "☀ Colours: light", dark: "☾ Colours: dark" }[wanted] ?? "");
}

build();
api.addEventListener("call", drawCalls);
api.addEventListener("login", (event) => askWho(/** @type {CustomEvent} */ (event).detail));
api.addEventListener("lost", waitForServer);
api.addEventListener("found", serverIsBack);
addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(themeNow()));
route();
