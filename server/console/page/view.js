// What pages are made of: a view that ends when the reader leaves it, panels, errors, statements that are shown before
// they run.

import { api, ServerError, Unreachable } from "./api.js";
import { h } from "./dom.js";
import { dialog, pieces, visible } from "./text.js";

/** A page on the screen: `signal` aborts when the reader leaves it. */
export class View {
  #ended = new AbortController();

  /** @param {HTMLElement} root @param {(title: string) => void} title */
  constructor(root, title) {
    this.root = root;
    this.title = title;
  }

  get signal() {
    return this.#ended.signal;
  }

  end() {
    this.#ended.abort();
  }

  /**
   * Looks at once, and again `ms` after each look, while the page is visible and the server answers. An error is shown
   * where the page begins, and goes with the next look that succeeds.
   * @param {number} ms @param {() => Promise<void>} look
   */
  async every(ms, look) {
    const place = h("div", { class: "errors" });
    this.root.prepend(place);
    while (!this.signal.aborted) {
      if (!document.hidden && api.reachable) {
        try {
          await look();
          place.replaceChildren();
        } catch (error) {
          if (this.signal.aborted) return;
          place.replaceChildren(errorBox(error));
        }
      }
      await this.#sleep(ms);
    }
  }

  /** Runs once; an error is shown in `place`. @param {HTMLElement} place @param {() => Promise<void>} run */
  async once(place, run) {
    try {
      await run();
    } catch (error) {
      if (!this.signal.aborted) place.replaceChildren(errorBox(error));
    }
  }

  /** @param {number} ms */
  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve(undefined);
      }, { once: true });
    });
  }
}

/** An error as the server tells it: the fact, the place, what to do. @param {unknown} error */
export function errorBox(error) {
  if (error instanceof Unreachable) return h("div", { class: "error", role: "alert" }, error.message);
  const box = h("div", { class: "error", role: "alert" }, h("strong", {}, pieces(messageOf(error), { lines: true })));
  if (error instanceof ServerError) {
    if (error.excerpt) box.append(h("pre", {}, pieces(error.excerpt, { lines: true })));
    if (error.hint) box.append(h("p", { class: "hint" }, pieces(error.hint, { lines: true })));
  }
  return box;
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/** A part of a page with a heading. @param {string} title @param {...any} content */
export function panel(title, ...content) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), content);
}

/** What is to be done first, where there is nothing yet. @param {string} text @param {string} [statement] for the editor */
export function firstStep(text, statement) {
  return h("div", { class: "first-step" }, h("p", {}, text), statement && statementBox(statement));
}

/** A statement with a button that opens it in the editor. @param {string} sql */
export function statementBox(sql) {
  return h("div", { class: "statement" }, h("pre", { tabindex: "0" }, pieces(sql, { lines: true })),
    h("a", { class: "button", href: editorLink(sql) }, "Open in the editor"));
}

/** @param {string} sql */
export const editorLink = (sql) => `#/editor?sql=${encodeURIComponent(sql)}`;

/** Asks before a statement runs, and shows it. Resolves to whether it ran.
 * @param {string} title @param {string} sql @param {string} consequence @returns {Promise<boolean>} */
export function confirmStatement(title, sql, consequence) {
  return new Promise((resolve) => {
    let ran = false;
    const place = h("div", {});
    const run = h("button", { type: "button", class: "primary" }, "Run");
    const node = dialog(title, h("p", {}, consequence), h("pre", { class: "code" }, sql), place,
      h("footer", {}, run, h("button", { type: "button", onclick: () => node.close() }, "Cancel")));
    run.addEventListener("click", async () => {
      run.disabled = true;
      try {
        await api.execute(sql);
        ran = true;
        node.close();
      } catch (error) {
        run.disabled = false;
        place.replaceChildren(errorBox(error));
      }
    });
    node.addEventListener("close", () => resolve(ran));
    run.focus();
  });
}

/** Pairs of a name and a value. @param {[string, any][]} pairs */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A field to search a list. @param {string} label @param {(text: string) => void} search */
export function searchField(label, search) {
  const input = h("input", { type: "search", placeholder: label, "aria-label": label, spellcheck: "false", class: "search" });
  input.addEventListener("input", () => search(input.value.trim().toLowerCase()));
  return input;
}

/** A query's state; `detail`, such as its error, is shown when the mouse rests on it. @param {string} state @param {string | null} [detail] */
export const stateBadge = (state, detail = null) =>
  h("span", { class: `state ${visible(state).toLowerCase()}`, title: detail && visible(detail) }, visible(state || "unknown"));

/** @param {string} kind @param {string} name @param {any} [text] */
export const link = (kind, name, text) =>
  h("a", { href: `#/${kind}/${encodeURIComponent(name)}` }, text ?? h("bdi", {}, pieces(name)));

/** Links with commas between them. @param {string} kind @param {string[]} names */
export const links = (kind, names) => names.flatMap((name, at) => [at > 0 && ", ", link(kind, name)]);
