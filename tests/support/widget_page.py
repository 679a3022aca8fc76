"""A page that shows a widget as a notebook does: its module, its style sheet, a model between it and Python."""

from __future__ import annotations

import json
import time
from typing import Any

from browser import Browser

# What anywidget gives a module: https://anywidget.dev/en/afm/
HOST = """
window.errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
window.host = { state: {}, listeners: {}, sent: [] };
host.model = {
  get: (name) => host.state[name],
  set: (name, value) => { host.state[name] = value; },
  save_changes: () => {},
  on: (event, call) => (host.listeners[event] ??= []).push(call),
  off: (event, call) => { host.listeners[event] = (host.listeners[event] ?? []).filter((each) => each !== call); },
  send: (content) => { host.sent.push(content); },
};
host.update = (traits) => {
  for (const [name, value] of Object.entries(traits)) {
    if (JSON.stringify(host.state[name]) === JSON.stringify(value)) continue;
    host.state[name] = value;
    for (const call of host.listeners[`change:${name}`] ?? []) call();
  }
};
host.show = async (source, css, traits) => {
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  host.update(traits);
  const module = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  host.end = await module.default.render({ model: host.model, el: document.querySelector("#here") });
};
"""
PAGE = '<!doctype html><html lang="en"><body style="margin:16px"><div id="here"></div></body></html>'


class WidgetPage:
    """Carries traits from the widget to the page and messages back, whenever `carry` is called."""

    def __init__(self, browser: Browser, widget: Any, *, dark: bool = False) -> None:
        self._browser = browser
        self._widget = widget
        browser.call("Page.navigate", url="about:blank")
        frame = browser.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        browser.call("Page.setDocumentContent", frameId=frame, html=PAGE)
        if dark:
            browser.run("document.body.dataset.jpThemeLight = 'false'; document.body.style.background = '#111'; 1")
        browser.run(HOST + "; 1")
        source, css, traits = (json.dumps(each) for each in (widget._esm, widget._css, self._traits()))
        browser.run(f"host.show({source}, {css}, {traits})")

    def carry(self) -> None:
        self._browser.run(f"host.update({json.dumps(self._traits())})")
        for content in self._browser.run("host.sent.splice(0)"):
            self._widget._told(self._widget, content, [])
        assert self._browser.run("errors") == []

    def until(self, script: str, seconds: float = 60.0) -> Any:
        """The script's value once it is true; traits and messages are carried meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            self.carry()
            if found := self._browser.run(script):
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s: {script}"
            time.sleep(0.03)

    def _traits(self) -> dict[str, Any]:
        own = ("_columns", "_keyed", "_rows", "_status", "_axes", "_series", "_left_out")
        return {name: getattr(self._widget, name) for name in own if self._widget.has_trait(name)}
