"use strict";
// Shows the journal. The token lives in a variable of this page, nowhere else: it is sent in a header only.
(() => {
  const PERIOD = 3000;
  const MOST = 500;
  const SIGNS = { create: "+", update: "~", replace: "±", delete: "-" };
  const at = (id) => document.getElementById(id);
  let token = "";
  let entries = new Map();
  let after = 0;
  let identity = "";
  let now = new Date();
  let timer = 0;
  let drawn = new Map();  // cards by sequence: those that the user opened or copied stay as they are

  const made = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  const titleOf = (about) => {
    const name = about.name || `with UID ${about.uid}`;
    return about.namespace ? `${about.kind} ${about.namespace}/${name}` : `${about.kind} ${name}`;
  };

  const ago = (text) => {
    const seconds = Math.max(0, Math.round((now - new Date(text)) / 1000));
    if (seconds < 120) return `${seconds}s ago`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)}m ago`;
    return seconds < 172800 ? `${Math.floor(seconds / 3600)}h ago` : `${Math.floor(seconds / 86400)}d ago`;
  };

  const two = (number) => String(number).padStart(2, "0");

  const clock = (text) => {
    const at = new Date(text);
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  };

  const headline = (entry) => {
    if (entry.message) return entry.message;
    const lines = (entry.plan || []).map((line) => (line.reason ? `! ${line.reason}: ${line.summary}` : `${SIGNS[line.action] || "?"} ${line.place}: ${line.summary}`));
    if (lines.length) return lines.length > 1 ? `${lines[0]} and ${lines.length - 1} more` : lines[0];
    return entry.observed || "";
  };

  const copied = async (button, entry) => {
    const text = JSON.stringify(entry, null, 2);
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {  // no permission, or not a secure page: select it, so that Ctrl-C copies it
      const shown = made("pre", "mono", text);
      button.replaceWith(shown);
      window.getSelection().selectAllChildren(shown);
    }
  };

  const duration = (seconds) => (seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`);

  const list = (items) => {
    const node = made("ul");
    node.append(...items);
    return node;
  };

  const lineOf = (line) => {
    const blocked = Boolean(line.reason);
    const text = blocked ? `! ${line.reason}: ${line.summary}` : `${SIGNS[line.action] || "?"} ${line.place}: ${line.summary}`;
    const item = made("li");
    item.append(made("span", blocked ? "blocked" : line.action, text));
    const more = (line.details || []).map((detail) => made("li", "mono", detail));
    if (line.waitsFor) more.push(made("li", "", `waits for ${line.waitsFor}`));
    if (more.length) item.append(list(more));
    return item;
  };

  const callOf = (call) => {
    const many = call.items > 1 ? ` (${call.items} items)` : "";
    const failed = call.message ? `: ${call.message}` : "";
    const item = made("li");
    item.append(made("span", "mono", `${call.method}${many} ${call.result || "success"} in ${call.seconds} s${failed}`));
    const requests = (call.requests || []).map((one) =>
      made("li", "mono", `${one.request} ${one.status} in ${one.seconds} s${one.id ? `  request ${one.id}` : ""}`));
    if (requests.length) item.append(list(requests));
    return item;
  };

  const writeOf = (write) => {
    const audit = write.id ? `  audit ${write.id}` : "";
    const failed = write.message ? `: ${write.message}` : "";
    return made("li", "mono", `${write.request} ${write.status || "no answer"} in ${write.seconds} s${failed}${audit}`);
  };

  const partOf = (name, content) => {
    const value = made("dd");
    value.append(content);
    return [made("dt", "", name), value];
  };

  const cardOf = (entry) => {
    const card = made("li", entry.result);
    const head = made("div", "head");
    const title = made("button", "object", titleOf(entry.object));
    title.type = "button";
    title.addEventListener("click", () => {
      at("filter-object").value = entry.object.name || entry.object.uid;
      show();
    });
    const when = made("time", "when");
    when.dateTime = entry.at;
    when.title = entry.at;
    head.append(title, when, made("span", "by", entry.controller), made("span", "result", `${entry.result} in ${entry.seconds} s`));
    const more = made("details");
    more.append(made("summary", "", headline(entry)));
    const parts = made("dl");
    if (entry.observed) parts.append(...partOf("observed", entry.observed));
    if (entry.plan) parts.append(...partOf("plan", list(entry.plan.map(lineOf))));
    if (entry.calls) parts.append(...partOf("calls", list(entry.calls.map(callOf))));
    if (entry.writes) parts.append(...partOf("writes", list(entry.writes.map(writeOf))));
    if (entry.message) parts.append(...partOf("result", entry.message));
    if (entry.nextIn !== undefined) parts.append(...partOf("next", `pass in ${duration(entry.nextIn)}`));
    const copy = made("button", "copy", "Copy as JSON");
    copy.type = "button";
    copy.addEventListener("click", () => copied(copy, entry));
    more.append(parts, copy);
    card.append(head, more);
    return card;
  };

  const isShown = (entry) => {
    const wanted = at("filter-object").value.trim().toLowerCase();
    const kind = at("filter-kind").value;
    const result = at("filter-result").value;
    return (!wanted || titleOf(entry.object).toLowerCase().includes(wanted))
      && (!kind || entry.object.kind === kind) && (!result || entry.result === result);
  };

  const show = () => {
    const all = [...entries.values()];
    const shown = all.filter(isShown).sort((one, other) => other.sequence - one.sequence);
    drawn = new Map(all.map((entry) => [entry.sequence, drawn.get(entry.sequence) || cardOf(entry)]));
    for (const entry of all) {
      const often = entry.count > 1 ? `, ${entry.count} times` : "";
      drawn.get(entry.sequence).querySelector("time").textContent = `${clock(entry.at)} (${ago(entry.at)}${often})`;
    }
    const cards = shown.map((entry) => drawn.get(entry.sequence));
    const before = [...at("entries").children];
    if (cards.length !== before.length || cards.some((card, index) => card !== before[index])) at("entries").replaceChildren(...cards);
    at("count").textContent = all.length
      ? `${shown.length} of ${all.length} decisions, newest first. Passes that found nothing to do are not kept.` : "";
    at("empty").hidden = shown.length > 0;
    at("empty").textContent = all.length
      ? "No decision matches the filters. Clear a filter to see the others."
      : "No decisions since the manager started: cluster and cloud match the desired state. Create or change a Service or a node, and its decision appears here.";
    const names = [...new Set(all.map((entry) => entry.object.name).filter(Boolean))].sort();
    at("objects").replaceChildren(...names.map((name) => { const option = made("option"); option.value = name; return option; }));
  };

  const complain = (text) => {
    at("problem").textContent = text;
    at("problem").hidden = !text;
  };

  const explain = async (answer) => {
    const text = await answer.text();
    let said = text.trim();
    try { said = JSON.parse(text).message || said; } catch { /* plain text */ }
    if (answer.status === 401) return "The token is invalid or expired. Create a new one: kubectl create token NAME --namespace=NAMESPACE";
    if (answer.status === 403) return `${said}. Ask an administrator for the right to get /history/v1/entries.`;
    return `The manager answered ${answer.status}: ${said}`;
  };

  const signOut = (problem) => {
    token = "";
    entries = new Map();
    drawn = new Map();
    after = 0;
    identity = "";
    window.clearTimeout(timer);
    at("token").value = "";
    at("view").hidden = true;
    at("sign-in").hidden = false;
    at("leader").textContent = "";
    at("entries").replaceChildren();
    complain(problem);
  };

  const merge = (history) => {
    if (identity && identity !== history.identity) { entries = new Map(); drawn = new Map(); after = 0; }
    const isNew = identity !== history.identity;
    identity = history.identity;
    for (const entry of history.entries || []) {
      // A repeated decision replaces the earlier entry of its controller.
      if (entry.count > 1) {
        for (const [number, old] of entries) {
          if (titleOf(old.object) === titleOf(entry.object) && old.controller === entry.controller && old.first === entry.first) entries.delete(number);
        }
      }
      entries.set(entry.sequence, entry);
    }
    for (const number of [...entries.keys()].sort((a, b) => a - b).slice(0, -MOST)) entries.delete(number);
    after = isNew && after ? 0 : history.sequence;
    now = new Date(history.now);
    at("leader").textContent = `leader ${history.identity}, started ${ago(history.since)}`;
  };

  const load = async () => {
    window.clearTimeout(timer);
    if (!token) return;
    try {
      // Not Authorization: behind kubectl proxy and the API server's proxy that is another identity.
      const headers = { "X-Pileus-Authorization": `Bearer ${token}` };
      const answer = await fetch(`v1/entries?limit=${MOST}&after=${after}`, { headers, cache: "no-store", credentials: "omit" });
      if (!token) return;
      if (answer.status === 401 || answer.status === 403) { signOut(await explain(answer)); return; }
      if (!answer.ok) { complain(await explain(answer)); } else {
        const history = await answer.json();
        if (history.leading) {
          complain("");
          merge(history);
          at("sign-in").hidden = true;
          at("view").hidden = false;
          show();
        } else {
          complain(`${history.identity || "This process"} is not the leader, and decides nothing. Open the page of the leader.`);
        }
      }
    } catch (error) {
      complain(`The manager cannot be reached: ${error.message}`);
    }
    if (token && at("live").checked) timer = window.setTimeout(load, PERIOD);
  };

  at("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    at("token").value = "";
    load();
  });
  at("sign-out").addEventListener("click", () => signOut(""));
  at("live").addEventListener("change", load);
  for (const id of ["filter-object", "filter-kind", "filter-result"]) at(id).addEventListener("input", show);
})();
