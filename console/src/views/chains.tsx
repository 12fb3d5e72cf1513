import { useCallback, useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { usePages } from "../lib/pages.ts";
import { go, href, route } from "../lib/route.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { Age, Command, Empty, Failed, Heading, Loading, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { OneChain } from "./chain.tsx";

type Head = components["schemas"]["ChainHead"];

/** Chains of rules over lists, and what they decide. */
export function Chains() {
  const name = route.value.path[1];
  return name ? (
    <OneChain key={name} name={name} />
  ) : (
    <div class="view">
      <ChainTable />
    </div>
  );
}

const columns: Column<Head>[] = [
  { name: "Chain", width: "minmax(96px, 1.4fr)", cell: (c) => <Text value={c.name} max={80} />, sort: (c) => c.name },
  { name: "Version", width: "80px", cell: (c) => count(c.version), sort: (c) => c.version, end: true },
  { name: "Shadow", width: "80px", cell: (c) => (c.shadowed ? "yes" : "–"), sort: (c) => (c.shadowed ? 0 : 1) },
  { name: "Written", width: "96px", cell: (c) => <Age at={c.at_ms} />, sort: (c) => -c.at_ms, wide: true },
  { name: "By", width: "minmax(80px, 1fr)", cell: (c) => <Text value={c.author || "–"} max={80} />, wide: true },
  { name: "Note", width: "minmax(96px, 2fr)", cell: (c) => <Text value={c.note || "–"} max={160} />, wide: true },
];

function ChainTable() {
  const read = useCallback(async (after: string, signal: AbortSignal) => {
    const page = await get("/v1/chains", { query: { after, limit: 200 }, signal });
    return { rows: page.chains ?? [], cursor: page.after };
  }, []);
  const list = usePages("chains", read);
  const [name, setName] = useState("");
  return (
    <>
      <Heading title="Chains" list={list} />
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={4} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title="There is no chain yet">
          A chain decides by rules over lists, attributes, percentages and times. Name one below to write it.
        </Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Chains"
          columns={columns}
          rows={list.rows}
          id={(c) => c.name}
          to={(c) => href(["chains", c.name])}
          more={list.more}
          foot={list.busy ? "Reading on…" : plural(list.rows.length, "chain")}
        />
      )}
      <form
        class="ask"
        onSubmit={(event) => {
          event.preventDefault();
          if (name) go(href(["chains", name]));
        }}
      >
        <label>
          <span>Name of a chain</span>
          <input
            value={name}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setName(event.currentTarget.value.trim())}
          />
        </label>
        <button type="submit" disabled={name === ""}>
          Open or write it
        </button>
      </form>
      <Command line={schedctl(["lists", "chain", "ls"])} />
    </>
  );
}
