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
    const made = document.createElement("template");
    made.innerHTML = html;
    for (const target of targets) {
      const now = made.content.getElementById(target.id).innerHTML;
      if (now !== shown.get(target) && swap(target, now)) shown.set(target, now);
    }
    return targets.every((each) => shown.get(each) === made.content.getElementById(each.id).innerHTML);
  }
  async function look() {
    if (!document.hidden) {
      const headers = { "X-Fragment": "1" };
      if (etag) headers["If-None-Match"] = etag;
      try {
        const answer = await fetch(location.href, { headers, cache: "no-store" });
        sayWhetherOnline(answer.status < 500);
        if (answer.status === 401 || answer.status === 404) return location.reload();
        if (answer.status === 200) {
          etag = show(await answer.text()) ? answer.headers.get("ETag") : "";
        }
      } catch {
        sayWhetherOnline(false);
      }
    }
    setTimeout(look, POLL_EVERY_MS);
  }
  setTimeout(look, POLL_EVERY_MS);
}

function explainBeside(form) {
  const target = document.getElementById("explanation");
  let timer = 0;
  let latest = 0;
  async function explain() {
    const number = ++latest;
    target.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.dataset.explain, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      const html = await answer.text();
      // An answer that was overtaken by a later one says what is no longer typed.
      if (number === latest && answer.status === 200) swap(target, html);
      sayWhetherOnline(answer.status < 500);
    } catch {
      sayWhetherOnline(false);
    }
    if (number === latest) target.removeAttribute("aria-busy");
  }
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(explain, EXPLAIN_AFTER_MS);
  });
}

// What the source has, as soon as an executor has told it.
function suggestFor(form) {
  const target = form.querySelector("[data-suggest]");
  let latest = 0;
  async function ask() {
    const number = ++latest;
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(target.dataset.suggest, { method: "POST", body }).catch(() => null);
    if (number !== latest || answer?.status !== 200) return;
    swap(target, await answer.text());
    if (target.querySelector("[data-again]")) setTimeout(ask, SUGGEST_AGAIN_MS);
  }
  if (!target) return;
  let isTyped = false;
  form.addEventListener("input", () => { isTyped = true; });
  setTimeout(() => isTyped || target.querySelector("[data-late]")?.click(), SUGGEST_AGAIN_MS);
  form.elements.source.addEventListener("change", ask);
  if (!target.querySelector("[name=pick]")) ask();
}

// A form that was sent is not sent again by a second click.
function sendOnce(form) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
    setTimeout(() => delete form.dataset.sent, POLL_EVERY_MS);
  });
}

sayTimes();
setInterval(sayTimes, 10 * POLL_EVERY_MS);
const followed = [...document.querySelectorAll("[data-poll]")];
if (followed.length) poll(followed);
document.querySelectorAll("form[data-explain]").forEach(explainBeside);
document.querySelectorAll("form[data-explain]").forEach(suggestFor);
document.querySelectorAll('form[method="post"]').forEach(sendOnce);
