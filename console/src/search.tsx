import { useRef, useState } from "preact/hooks";
import { go, href } from "./lib/route.ts";
import { session } from "./lib/session.ts";
import { Dialog } from "./parts/dialog.tsx";
import { Text } from "./parts/small.tsx";
import { viewAt, views } from "./views/index.ts";

interface Hit {
  text: string;
  what: string;
  to: string;
}

/** The ways on from what was typed. A job's id leads straight to the job. */
export function hits(typed: string): Hit[] {
  const text = typed.trim();
  const named = views
    .filter((v) => v.name.toLowerCase().includes(text.toLowerCase()))
    .map((v) => ({ text: v.name, what: "view", to: href([v.path].filter(Boolean)) }));
  if (text === "") return named;
  const found: Hit[] = [];
  const jobs = viewAt("jobs") !== undefined;
  if (jobs && /^\d+-[0-9A-HJKMNP-TV-Z]{26}$/i.test(text)) {
    found.push({ text, what: "job", to: href(["jobs", text.toUpperCase()]) });
  }
  if (viewAt("nodes")) found.push({ text, what: "node", to: href(["nodes", text]) });
  if (jobs) {
    for (const by of ["service", "tenant", "node"]) {
      found.push({ text, what: `jobs by ${by}`, to: href(["jobs"], { [by]: text }) });
    }
    const tenant = session.value?.tenant;
    found.push({ text, what: "job by idempotency key", to: href(["jobs"], { key: text, tenant }) });
  }
  return [...(found[0]?.what === "job" ? found.slice(0, 1) : []), ...named, ...found.filter((h) => h.what !== "job")];
}

export function Search({ onClose }: { onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const found = hits(typed);
  const open = (hit: Hit | undefined) => {
    if (!hit) return;
    onClose();
    go(hit.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      setAt((at + by + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(found[at]);
    }
  };
  return (
    <Dialog title="Search" onClose={onClose}>
      <input
        class="search"
        role="combobox"
        aria-label="A job's id or key, a view, a service, tenant or node"
        aria-expanded="true"
        aria-controls="hits"
        aria-activedescendant={found[at] ? `hit-${at}` : undefined}
        placeholder="Job id or key, view, service, tenant, node"
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div id="hits" class="hits" role="listbox" aria-label="Where to go" ref={list}>
        {found.map((hit, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the focus, and its keys choose
          <div key={hit.to} id={`hit-${i}`} role="option" aria-selected={i === at} onClick={() => open(hit)}>
            <Text value={hit.text} max={60} /> <span class="faint">{hit.what}</span>
          </div>
        ))}
        {found.length === 0 && (
          <div role="option" aria-disabled="true" aria-selected="false" class="faint">
            Nothing fits
          </div>
        )}
      </div>
    </Dialog>
  );
}
