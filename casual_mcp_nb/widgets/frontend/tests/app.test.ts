import assert from "node:assert/strict";
import { test } from "node:test";
import { guardPage } from "../src/app/guard";
import { brief, fileName, filesOf, linkOf, readMessage, sizeOf, textOf } from "../src/app/messages";

test("a message is JSON-RPC with plain JSON, and nothing else is", () => {
  assert.deepEqual(readMessage({ jsonrpc: "2.0", id: 1, method: "ping" }), {
    kind: "request",
    id: 1,
    method: "ping",
    params: {},
  });
  assert.deepEqual(readMessage({ jsonrpc: "2.0", method: "x", params: { a: 1 } }), {
    kind: "notification",
    method: "x",
    params: { a: 1 },
  });
  assert.deepEqual(readMessage({ jsonrpc: "2.0", id: "a", error: {} }), { kind: "response", id: "a", error: true });
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  const bad = [
    null,
    "text",
    5,
    [],
    new Map(),
    { id: 1, method: "ping" },
    { jsonrpc: "1.0", id: 1, method: "ping" },
    { jsonrpc: "2.0", id: {}, method: "ping" },
    { jsonrpc: "2.0", id: Number.NaN, method: "ping" },
    { jsonrpc: "2.0", id: "x".repeat(201), method: "ping" },
    { jsonrpc: "2.0", id: null, method: "ping" },
    { jsonrpc: "2.0", id: 1, method: 5 },
    { jsonrpc: "2.0", id: 1, method: "m".repeat(101) },
    { jsonrpc: "2.0", id: 1, method: "ping", params: [] },
    { jsonrpc: "2.0", id: 1, method: "ping", params: { date: new Date() } },
    { jsonrpc: "2.0", id: 1, method: "ping", params: cycle },
    { jsonrpc: "2.0", id: 1, method: "ping", params: { text: "x".repeat(1_000_001) } },
    { jsonrpc: "2.0", id: 1, method: "ping", params: { bytes: new ArrayBuffer(5) } },
    { jsonrpc: "2.0" },
  ];
  for (const each of bad) assert.equal(typeof readMessage(each), "string");
});

test("a size is counted only up to the limit", () => {
  assert.equal(sizeOf({ a: "bc" }, 100) < 100, true);
  assert.equal(sizeOf(new Array(1_000_000).fill(1), 1000), Number.POSITIVE_INFINITY);
  assert.equal(brief({ text: "x".repeat(1_000_000), list: new Array(100_000).fill({ a: [1, 2, 3] }) }).length < 1000, true);
  assert.equal(brief({ a: [1, "b", null] }), '{"a": [1, "b", null]}');
});

test("links are web addresses, and nothing that a page could run", () => {
  assert.equal(linkOf("https://example.org/a?b=1#c"), "https://example.org/a?b=1#c");
  const bad = [
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc",
    "//x.org",
    "",
    "https://u:p@x.org",
    5,
    `https://x.org/${"a".repeat(2000)}`,
  ];
  for (const each of bad) assert.equal(linkOf(each), undefined);
});

test("a file has a plain name and comes from the message itself", () => {
  assert.equal(fileName("file:///a/../../etc/pass wd.txt?x#y"), "pass wd.txt");
  assert.equal(fileName("file:///%2e%2e%2fevil\u202etxt.exe"), "_evil_txt.exe");
  assert.equal(fileName("..\\..\\.bashrc"), "bashrc");
  assert.equal(fileName(null), "file");
  const files = filesOf([{ type: "resource", resource: { uri: "x://a.txt", text: "abc" } }]);
  assert.deepEqual(files, [{ name: "a.txt", parts: ["abc"], size: 3 }]);
  const bad = [
    [],
    "x",
    [{ type: "resource_link", uri: "https://x.org/a" }],
    [{ type: "resource", resource: { blob: "%%" } }],
    [{}],
  ];
  for (const each of bad) assert.equal(typeof filesOf(each), "string");
});

test("a message's text is that of its text blocks", () => {
  assert.equal(textOf({ type: "text", text: "one" }), "one");
  assert.equal(textOf([{ type: "text", text: "one" }, { type: "image" }, null, { type: "text", text: "two" }]), "one\ntwo");
});

test("the policy comes first in both documents, and no page ends what it is in", () => {
  const html =
    '</script><!-- <head> --><script>"</script>"</script>\u2028<meta http-equiv="Content-Security-Policy" content="x">';
  const page = guardPage(html, `default-src 'none'; img-src "><script>`, "dark");
  const head = '<!DOCTYPE html><html><head><meta http-equiv="Content-Security-Policy" content="';
  assert.equal(page.startsWith(`${head}default-src 'none'; img-src &quot;&gt;&lt;script&gt;">`), true);
  // The page is an argument: between the two script tags of the document there is no other tag at all.
  const script = page.slice(page.indexOf("<script>") + 8, page.lastIndexOf("</script>"));
  assert.equal(script.includes("</script"), false);
  assert.equal(script.includes("<!--"), false);
  const argument = /\)\("(.*)", \d+, \d+\)$/s.exec(script)?.[1];
  const inner = JSON.parse(`"${argument}"`) as string;
  assert.equal(inner.startsWith(head), true);
  assert.equal(inner.endsWith(html), true);
});
