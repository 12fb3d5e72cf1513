// Writes the types of all frames from docs/schema:  node scripts/frames.ts [--check]

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Schema {
  $ref?: string;
  const?: string;
  enum?: string[];
  type?: string;
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  oneOf?: Schema[];
  anyOf?: Schema[];
  description?: string;
}

const root = join(import.meta.dirname, "../../..");

/** The values that are any JSON: their types are parameters. */
const parameters: Record<string, [name: string, field: string]> = {
  Job: ["P", "payload"],
  JobStatus: ["R", "result"],
  Progress: ["V", "value"],
};

function typeOf(schema: Schema): string {
  if (schema.$ref) return schema.$ref.replace("#/$defs/", "");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices && !schema.properties) return choices.map(typeOf).join(" | ");
  switch (schema.type) {
    case "array": {
      const item = typeOf(schema.items ?? {});
      return item.includes(" ") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      return `Record<string, ${typeof schema.additionalProperties === "object" ? typeOf(schema.additionalProperties) : "unknown"}>`;
    case "integer":
    case "number":
      return "number";
    case "string":
      return "string";
    case "boolean":
      return "boolean";
    case undefined:
      return "unknown";
    default:
      throw new Error(`unknown type ${schema.type}`);
  }
}

function comment(schema: Schema, indent = ""): string[] {
  return schema.description ? [`${indent}/** ${schema.description} */`] : [];
}

function definition(name: string, schema: Schema): string[] {
  if (!schema.properties) return [...comment(schema), `export type ${name} = ${typeOf(schema)};`, ""];
  const [parameter, field] = parameters[name] ?? [];
  const lines = [...comment(schema), `export interface ${name}${parameter ? `<${parameter} = unknown>` : ""} {`];
  for (const [key, value] of Object.entries(schema.properties)) {
    const type = key === field ? parameter : typeOf(value);
    lines.push(...comment(value, "  "), `  ${key}${schema.required?.includes(key) ? "" : "?"}: ${type};`);
  }
  return [...lines, "}", ""];
}

function generate(schemaFile: string): string {
  const schema = JSON.parse(readFileSync(join(root, schemaFile), "utf8")) as { $defs: Record<string, Schema> };
  const names = Object.keys(schema.$defs).sort();
  const lines = [`// Code generated from ${schemaFile} by scripts/frames.ts. DO NOT EDIT.`, ""];
  for (const name of names) lines.push(...definition(name, schema.$defs[name] as Schema));
  return lines.join("\n");
}

for (const [schemaFile, file] of [
  ["docs/schema/client-frames.json", "src/schema.ts"],
  ["docs/schema/node-frames.json", "src/worker/schema.ts"],
] as const) {
  const path = join(import.meta.dirname, "..", file);
  const text = generate(schemaFile);
  if (process.argv[2] !== "--check") writeFileSync(path, text);
  else if (readFileSync(path, "utf8") !== text) {
    console.error(`${file} is not what ${schemaFile} makes; run npm run frames, and commit it`);
    process.exitCode = 1;
  }
}
