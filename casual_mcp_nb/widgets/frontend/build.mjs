// Bundle each widget into one file of JavaScript and one of CSS: `node build.mjs`.
// `--check` compares with the bundles that are there instead; `--test` bundles the tests for `node --test`.

import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const STATIC = join(HERE, "..", "static");
const options = {
  absWorkingDir: HERE,
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  write: false,
  metafile: true,
  logLevel: "warning",
};

async function entries(folder, pattern) {
  return (await readdir(join(HERE, folder))).filter((name) => pattern.test(name)).map((name) => `${folder}/${name}`);
}

/** Return the licences of the packages that are part of the bundles: they go where the code goes. */
async function licences(inputs) {
  const packages = new Set(inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
  const texts = await Promise.all(
    [...packages].sort().map(async (name) => {
      const folder = join(HERE, "node_modules", name);
      const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
      const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
      return `${name} ${version} (${license})\n\n${file ? (await readFile(join(folder, file), "utf8")).trim() : ""}\n`;
    }),
  );
  return `The JavaScript files in this folder contain these packages.\n\n${texts.join("\n----\n\n")}`;
}

async function bundles() {
  const result = await build({ ...options, entryPoints: await entries("src/entries", /\.tsx$/), outdir: STATIC, minify: true });
  const files = new Map(result.outputFiles.map(({ path, text }) => [basename(path), text]));
  return files.set("LICENSES.txt", await licences(Object.keys(result.metafile.inputs)));
}

async function check(files) {
  const there = new Set(await readdir(STATIC));
  const stale = [];
  for (const [name, text] of files)
    if (!there.delete(name) || (await readFile(join(STATIC, name), "utf8")) !== text) stale.push(name);
  if (!stale.length && !there.size) return;
  console.error(`static/ does not match the sources: ${[...stale, ...there].join(", ")}. Run: npm run build`);
  process.exitCode = 1;
}

async function write(files) {
  await rm(STATIC, { recursive: true, force: true });
  const { mkdir } = await import("node:fs/promises");
  await mkdir(STATIC);
  for (const [name, text] of files) await writeFile(join(STATIC, name), text);
}

if (process.argv.includes("--test")) {
  await build({
    ...options,
    entryPoints: await entries("tests", /\.test\.tsx?$/),
    outdir: join(HERE, ".tests"),
    outExtension: { ".js": ".mjs" },
    platform: "node",
    write: true,
  });
} else {
  const files = await bundles();
  await (process.argv.includes("--check") ? check(files) : write(files));
}
