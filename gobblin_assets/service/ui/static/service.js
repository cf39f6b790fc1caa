// Fragments that follow the server, and the plan beside a form. Every page works without this script.
"use strict";
const POLL_EVERY_MS = 2000;
const EXPLAIN_AFTER_MS = 400;
const SUGGEST_AGAIN_MS = 1000;
const offline = document.getElementById("offline");
let answeredAt = new Date();
function sayWhetherOnline(isOnline) {
  if (isOnline) answeredAt = new Date();
  offline.hidden = isOnline;
  offline.querySelector("span").textContent = answeredAt.toLocaleTimeString();
}

// Moments in the reader's words; the title has the reader's clock.
const ago = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const STEPS = [["day", 86400], ["hour", 3600], ["minute", 60]];
function sayTimes() {
  for (const each of document.querySelectorAll("time")) {
    const at = new Date(each.dateTime);
    const seconds = (Date.now() - at) / 1000;
    const [unit, size] = STEPS.find((step) => Math.abs(seconds) >= step[1]) ?? ["second", 0];
    const said = size ? ago.format(-Math.trunc(seconds / size), unit) : "just now";
    if (each.textContent !== said) each.textContent = said;
    each.title = at.toLocaleString();
  }
}

// What a person opened stays open, and what has the focus keeps it.
function swap(target, html) {
  const active = target.contains(document.activeElement) ? document.activeElement : null;
  if (active && active.matches("input, select, textarea")) return false;
  const place = active && [...target.querySelectorAll("a, button, summary")].indexOf(active);
  const open = [...target.querySelectorAll("details")].map((each) => each.open);
  target.innerHTML = html;
  [...target.querySelectorAll("details")].forEach((each, number) => { each.open = open[number] || each.open; });
  if (active) target.querySelectorAll("a, button, summary")[place]?.focus();
  sayTimes();
  return true;
}

// The server answers with all parts of the page that follow it; those that it did not change stay as they are.
function poll(targets) {
  const shown = new Map(targets.map((each) => [each, each.innerHTML]));
  let etag = "";
  function show(html) {
    const made = new DOMParser().parseFromString(html, "text/html");
    for (const target of targets) {
      const now = made.getElementById(target.id).innerHTML;
      if (now !== shown.get(target) && swap(target, now)) shown.set(target, now);
    }
    return targets.every((each) => shown.get(each) === made.getElementById(each.id).innerHTML);
  }
  async function look() {
    if (!document.hidden) {
      const headers = { "X-Fragment": "1", ...(etag && { "If-None-Match": etag }) };
      try {
        const answer = await fetch(location.href, { headers, cache: "no-store" });
        sayWhetherOnline(answer.status < 500);
        if (answer.status === 401 || answer.status === 404) return location.reload();
        if (answer.status === 200) etag = show(await answer.text()) ? answer.headers.get("ETag") : "";
      } catch {
        sayWhetherOnline(false);
      }
    }
    setTimeout(look, POLL_EVERY_MS);
  }
  setTimeout(look, POLL_EVERY_MS);
}

// The answer to a form: null if there is none, undefined if the form was sent there again meanwhile.
const sent = {};
async function send(form, address) {
  const number = sent[address] = (sent[address] ?? 0) + 1;
  const body = new URLSearchParams(new FormData(form));
  const answer = await fetch(address, { method: "POST", body }).catch(() => null);
  sayWhetherOnline(answer !== null && answer.status < 500);
  const html = answer?.status === 200 ? await answer.text().catch(() => null) : null;
  return number === sent[address] ? html : undefined;
}

function explainBeside(form) {
  const target = document.getElementById("explanation");
  let timer = 0;
  async function explain() {
    target.setAttribute("aria-busy", "true");
    const html = await send(form, form.dataset.explain);
    if (html) swap(target, html);
    if (html !== undefined) target.removeAttribute("aria-busy");
  }
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(explain, EXPLAIN_AFTER_MS); });
}

// What the source has, as soon as an executor has told it.
function suggestFor(form) {
  const target = form.querySelector("[data-suggest]");
  if (!target) return;
  async function ask() {
    const html = await send(form, target.dataset.suggest);
    if (!html) return;
    swap(target, html);
    if (target.querySelector("[data-again]")) setTimeout(ask, SUGGEST_AGAIN_MS);
  }
  let isTyped = false;
  form.addEventListener("input", () => { isTyped = true; });
  setTimeout(() => isTyped || target.querySelector("[data-late]")?.click(), SUGGEST_AGAIN_MS);
  form.elements.source.addEventListener("change", ask);
  if (!target.querySelector("[name=pick]")) ask();
}

sayTimes();
setInterval(sayTimes, 10 * POLL_EVERY_MS);
const followed = [...document.querySelectorAll("[data-poll]")];
if (followed.length) poll(followed);
document.querySelectorAll("form[data-explain]").forEach((form) => { explainBeside(form); suggestFor(form); });
// A form that was sent is not sent again by a second click.
document.querySelectorAll('form[method="post"]').forEach((form) => form.addEventListener("submit", (event) => {
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
  setTimeout(() => delete form.dataset.sent, POLL_EVERY_MS);
}));
