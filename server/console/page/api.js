// The client half: statements and routes, as any client of the server sends them. Credentials live in this module's
// memory and nowhere else: not in an address, a cookie or a store.

const ROWS = "application/vnd.millstream.rows.v1";
const CALLS_MAX = 200;
const AWAY = [50302, 50303, 50304, 50305]; // it starts, it stops, or another node is about to take over

/** What the server refused, with its hint and its place in the text. */
export class ServerError extends Error {
  /** @param {string} text @param {number} code @param {number} [status] */
  constructor(text, code, status = 0) {
    const { message, excerpt, hint, place } = readMessage(text);
    super(message);
    this.name = "ServerError";
    this.code = code;
    this.status = status;
    this.excerpt = excerpt;
    this.hint = hint;
    this.place = place;
  }
}

/** Whether an error of this code passes when one tries again. @param {number} code */
export const isAway = (code) => AWAY.includes(code);

/** Nobody answers. */
export class Unreachable extends Error {}

/** A message as the server renders it: the fact, an excerpt with carets, a hint.
 * @param {string} text */
export function readMessage(text) {
  const lines = text.split("\n");
  const hintAt = lines.findIndex((line) => line.startsWith("hint: "));
  const hint = hintAt < 0 ? "" : lines.slice(hintAt).join("\n").slice("hint: ".length);
  const before = hintAt < 0 ? lines : lines.slice(0, hintAt);
  const caretAt = before.findIndex((line) => /^\s*\|\s*\^+/.test(line));
  if (caretAt < 1) return { message: before.join("\n"), excerpt: "", hint, place: null };
  const numbered = /^\s*(\d+) \| /.exec(before[caretAt - 1]);
  const bar = before[caretAt].indexOf("|") + 2;
  const carets = /\^+/.exec(before[caretAt]);
  const place = numbered && carets
    ? { line: Number(numbered[1]), column: carets.index - bar + 1, length: carets[0].length }
    : null;
  return { message: before.slice(0, caretAt - 1).join("\n"), excerpt: before.slice(caretAt - 1, caretAt + 1).join("\n"), hint, place };
}

/** @typedef {{ kind: "statement" | "route", text: string }} Call */

/** Events: `call` after something was sent, `login` where the server asks who we are, `lost` and `found` as the server
 * stops and starts to answer. */
class Api extends EventTarget {
  #authorization = "";
  /** @type {Call[]} */
  calls = [];
  /** The user's name, where we are logged in. @type {string} */
  user = "";
  reachable = true;

  get loggedIn() {
    return this.#authorization !== "";
  }

  /** @param {string} user @param {string} password */
  login(user, password) {
    const bytes = new TextEncoder().encode(`${user}:${password}`);
    this.#authorization = `Basic ${btoa(String.fromCharCode(...bytes))}`;
    this.user = user;
  }

  /** @param {string} token */
  loginWithToken(token) {
    this.#authorization = `Bearer ${token}`;
    this.user = "";
  }

  logout() {
    this.#authorization = "";
    this.user = "";
  }

  /** Runs statements. @param {string} sql @param {{ properties?: Record<string, string>, signal?: AbortSignal, quiet?: boolean }} [options]
   * @returns {Promise<any[]>} */
  async execute(sql, { properties = {}, signal, quiet = false } = {}) {
    if (!quiet) this.#called({ kind: "statement", text: sql });
    const response = await this.#send("ksql", { ksql: sql, streamsProperties: properties }, { signal });
    return response.json();
  }

  /** The first answer of a statement. @param {string} sql @param {{ signal?: AbortSignal }} [options] @returns {Promise<any>} */
  async one(sql, options = {}) {
    return (await this.execute(sql, options))[0];
  }

  /** @param {string} path below the server's root @param {{ signal?: AbortSignal, quiet?: boolean }} [options] @returns {Promise<any>} */
  async get(path, { signal, quiet = false } = {}) {
    if (!quiet) this.#called({ kind: "route", text: `GET /${path}` });
    return (await this.#send(path, null, { signal })).json();
  }

  /** @param {string} path @param {{ signal?: AbortSignal }} [options] */
  async text(path, { signal } = {}) {
    this.#called({ kind: "route", text: `GET /${path}` });
    return (await this.#send(path, null, { signal })).text();
  }

  /** @param {string} path @param {unknown} body @param {{ signal?: AbortSignal, quiet?: boolean }} [options] @returns {Promise<any>} */
  async post(path, body, { signal, quiet = false } = {}) {
    if (!quiet) this.#called({ kind: "route", text: `POST /${path} ${JSON.stringify(body)}` });
    return (await this.#send(path, body, { signal })).json();
  }

  /**
   * The lines of a SELECT's or a PRINT's answer, in batches as they come. Ends with the query, or with `signal`.
   * @param {string} sql @param {{ properties?: Record<string, string>, signal: AbortSignal }} options
   * @returns {AsyncGenerator<string[]>}
   */
  async *lines(sql, { properties = {}, signal }) {
    this.#called({ kind: "statement", text: sql });
    const response = await this.#send("query-stream", { sql, properties }, { signal, accept: ROWS });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    try {
      while (true) {
        const { done, value } = await reader.read().catch((error) => {
          if (signal.aborted) throw error;
          this.#reached(false);
          throw new Unreachable("The server stopped answering in the middle of the rows.");
        });
        const parts = (rest + decoder.decode(value, { stream: !done })).split("\n");
        rest = done ? "" : parts.pop() ?? "";
        const lines = parts.filter((line) => line !== "");
        if (lines.length) yield lines;
        if (done) return;
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** Resolves once the server answers. @param {AbortSignal} signal */
  async back(signal) {
    while (!signal.aborted && !(await this.ping())) await new Promise((resolve) => setTimeout(resolve, 500));
  }

  /** Whether the server answers, and takes statements. */
  async ping() {
    try {
      const response = await fetch("../readyz", { credentials: "omit", cache: "no-store" });
      this.#reached(response.ok);
    } catch {
      this.#reached(false);
    }
    return this.reachable;
  }

  /** @param {string} path @param {unknown} body null is a GET @param {{ signal?: AbortSignal, accept?: string }} options */
  async #send(path, body, { signal, accept = "application/json, text/plain;q=0.5" }) {
    /** @type {Record<string, string>} */
    const headers = { accept };
    if (this.#authorization) headers.authorization = this.#authorization;
    if (body !== null) headers["content-type"] = "application/json";
    let response;
    try {
      response = await fetch(`../${path}`, {
        // `omit`: no browser asks for a password on its own, or remembers one.
        method: body === null ? "GET" : "POST", headers, signal, credentials: "omit", cache: "no-store",
        body: body === null ? undefined : JSON.stringify(body), redirect: "error",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      this.#reached(false);
      throw new Unreachable("The server does not answer.");
    }
    this.#reached(true);
    if (response.ok) return response;
    const error = await this.#refusal(response);
    if (response.status === 401) this.dispatchEvent(new CustomEvent("login", { detail: error }));
    throw error;
  }

  /** @param {Response} response */
  async #refusal(response) {
    const text = await response.text();
    try {
      const { message, error_code: code } = JSON.parse(text);
      return new ServerError(message, code, response.status);
    } catch {
      return new ServerError(`HTTP ${response.status}: ${text.slice(0, 500)}`, response.status * 100, response.status);
    }
  }

  /** @param {boolean} reached */
  #reached(reached) {
    if (reached === this.reachable) return;
    this.reachable = reached;
    this.dispatchEvent(new Event(reached ? "found" : "lost"));
  }

  /** @param {Call} call */
  #called(call) {
    this.calls = this.calls.filter((other) => other.text !== call.text);
    this.calls.push(call);
    this.calls.splice(0, this.calls.length - CALLS_MAX);
    this.dispatchEvent(new Event("call"));
  }
}

export const api = new Api();
