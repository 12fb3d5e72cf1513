// Checks the descriptions of freeslot's interfaces: OpenAPI, AsyncAPI and JSON Schema. A warning is
// a failure.
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { fromFile, Parser } from "@asyncapi/parser";
import { createConfig, lint } from "@redocly/openapi-core";
import Ajv2020 from "ajv/dist/2020.js";

const path = (name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
let failed = false;

function report(name, problems) {
	for (const problem of problems) console.error(`${name}: ${problem}`);
	console.log(`${name}: ${problems.length} problems`);
	failed ||= problems.length > 0;
}

const openapi = "internal/api/testdata/openapi.json";
const problems = await lint({ ref: path(openapi), config: await createConfig({ extends: ["recommended"] }) });
report(openapi, problems.map((p) => `${p.severity} ${p.ruleId} at ${p.location[0]?.pointer}: ${p.message}`));

for (const name of ["docs/asyncapi.yaml", "docs/asyncapi-node.yaml"]) {
	const { document, diagnostics } = await fromFile(new Parser(), path(name)).parse();
	const found = diagnostics.map((d) => `${d.code} at ${d.path.join(".")}: ${d.message}`);
	report(name, document ? found : [...found, "it is not AsyncAPI"]);
}

for (const name of ["docs/schema/client-frames.json", "docs/schema/node-frames.json"]) {
	const ajv = new Ajv2020({ strict: true, strictRequired: false, discriminator: true, allErrors: true });
	const found = [];
	try {
		ajv.compile(JSON.parse(await readFile(path(name), "utf8")));
	} catch (error) {
		found.push(error.message);
	}
	report(name, found);
}
process.exitCode = failed ? 1 : 0;
