// What a page says of itself while it stays open: when it was read, and whether the installation is in trouble, in its
// title and its icon too.
(() => {
  const PREFIXES = { late: "⚠ needs attention", none: "⚠ no tick yet", paused: "⏸ paused", unread: "⚠ not read" };
  const TEXTS = { unread: "not read" };
  let updated = Date.now();

  const state = () => document.getElementById("state");
  const word = () => state()?.dataset.state;

  function age() {
    const node = document.getElementById("updated");
    if (!node) return;
    const seconds = Math.max(0, Math.round((Date.now() - updated) / 1000));
    node.textContent = seconds < 60 ? `updated ${seconds} s ago` : `updated ${Math.floor(seconds / 60)} min ago`;
    node.classList.toggle("old", seconds >= 60);
  }

  // The title and the icon say what the state says.
  function head() {
    const prefix = PREFIXES[word()];
    const plain = document.title.replace(/^[⚠⏸][^·]* · /u, "");
    const title = prefix ? `${prefix} · ${plain}` : plain;
    if (document.title !== title) document.title = title;
    const icon = document.querySelector("link[rel=icon]");
    const wanted = icon.dataset[word()] || icon.dataset.running;
    if (icon.getAttribute("href") !== wanted) icon.setAttribute("href", wanted);
  }

  // What is shown may be old: it is greyed, and nothing is green.
  function unread() {
    document.body.classList.add("stale");
    const node = state();
    if (node) {
      node.className = "state unread";
      node.dataset.state = "unread";
      node.lastChild.textContent = ` ${TEXTS.unread}`;
    }
    head();
  }

  function read() {
    document.body.classList.remove("stale");
    document.getElementById("trouble").replaceChildren();
  }

  // The browser writes 09:13:00 of a page as 09:13, so times are compared as such.
  const isChanged = (field) => {
    if (["checkbox", "radio"].includes(field.type)) return field.checked !== field.defaultChecked;
    if (field.type === "datetime-local") return !Object.is(field.valueAsNumber, Date.parse(`${field.defaultValue}Z`));
    return field.value !== field.defaultValue;
  };
  const isBusy = (target) => target.querySelector("details[open]")
    || [...target.querySelectorAll("input, textarea")].some(isChanged)
    || (target.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"))
    || (!getSelection().isCollapsed && target.contains(getSelection().anchorNode));
  const byTick = (detail) => ["tick", "every"].some((name) => detail.requestConfig?.triggeringEvent?.type?.startsWith(name));

  document.addEventListener("DOMContentLoaded", () => {
    head();
    age();
    setInterval(age, 1000);
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && window.htmx) window.htmx.trigger("#live", "seen");
    });
  });
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.path.startsWith("/live")) detail.parameters.state = word();
    if (detail.triggeringEvent?.type === "tick") detail.headers["Dynatick-Follows"] = "tick";
  });
  document.addEventListener("htmx:beforeRequest", (event) => { // nobody sees it
    const kind = event.detail.requestConfig.triggeringEvent?.type;
    if (document.hidden && (kind === undefined || kind === "tick")) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { detail } = event;
    if (detail.target.id === "trouble" && detail.target.textContent.trim() && detail.serverResponse.includes(detail.target.querySelector("strong")?.textContent)) detail.shouldSwap = false;
    if (byTick(detail) && isBusy(detail.target)) detail.shouldSwap = false;
  });
  document.addEventListener("htmx:responseError", ({ detail }) => {
    if (detail.xhr.getResponseHeader("HX-Retarget") === "#trouble") unread();
  });
  document.addEventListener("htmx:sendError", () => {
    const place = document.getElementById("trouble");
    const gone = document.getElementById("gone");
    if (!place.textContent.trim() && gone) place.append(gone.content.cloneNode(true));
    unread();
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!detail.successful) return;
    updated = Date.now();
    age();
    if (detail.pathInfo.requestPath.startsWith("/live") && document.body.classList.contains("stale")) {
      read();
      window.htmx.trigger(document.body, "tick"); // what could not be read
      window.htmx.trigger(document.body, "again");
    }
  });
  document.addEventListener("htmx:afterSettle", head);
})();
