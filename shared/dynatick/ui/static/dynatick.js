// What HTML alone can't do: the colour scheme that was chosen, and the key of the search field.
(() => {
  const root = document.documentElement;
  const kept = localStorage.getItem("dynatick-theme");
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (button) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const dark = root.dataset.theme
          ? root.dataset.theme === "dark"
          : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
        localStorage.setItem("dynatick-theme", root.dataset.theme);
      });
    }
    const local = document.getElementById("zone-local"); // only the browser knows where it is
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (local && zone && ![local.dataset.shown, "UTC", "Etc/UTC"].includes(zone)) {
      const address = new URL(local.href);
      address.searchParams.set("tz", zone);
      local.href = address.href;
      local.textContent = zone;
      local.hidden = false;
    }
    document.getElementById("copy")?.addEventListener("click", async (event) => { // without a script it leads there
      const link = event.currentTarget;
      event.preventDefault();
      try {
        const answer = await fetch(link.href, { headers: { Accept: "text/plain" } });
        await navigator.clipboard.writeText(location.origin + await answer.text());
        link.textContent = "Copied";
      } catch {
        location.assign(link.href);
      }
    });
    document.addEventListener("keydown", (event) => {
      const field = document.getElementById("search");
      const typing = event.target.closest("input, textarea, select");
      if (event.key === "/" && field && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.focus();
      }
      const question = event.target.closest("details.ask[open]");
      if (event.key === "Escape" && question) {
        question.open = false;
        question.querySelector("summary").focus();
      }
    });
    document.addEventListener("change", ({ target }) => {
      if (!target.matches("input[data-all]")) return;
      for (const row of target.form.querySelectorAll("input[name=id]")) row.checked = target.checked;
    });
    document.addEventListener("toggle", ({ target }) => {
      if (target.open && target.matches("details.ask")) target.querySelector("input:not([type=hidden]), form button").focus();
    }, true); // it does not bubble
  });
})();
