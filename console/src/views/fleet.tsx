import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  ageText,
  calm,
  figures,
  onFigures,
  places,
  type Row,
  roster,
  rows,
  seenAt,
  states,
  trouble,
  useFleet,
} from "../lib/fleet.ts";
import { arrange, draw, fit, type Group, type Kind, kinds, palette, tile } from "../lib/map.ts";
import { theme } from "../lib/prefs.ts";
import { go, href, route, setQuery } from "../lib/route.ts";
import { systemDark } from "../lib/screen.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { now } from "../lib/time.ts";
import { type Field, Filter } from "../parts/filter.tsx";
import { Command, Empty, Failed, Loading, Stale, Text } from "../parts/small.tsx";
import { Table } from "../parts/table.tsx";
import { PlanButton } from "./bulk.tsx";
import { columns as nodeColumns, percent } from "./nodes.tsx";

const names: Record<Kind, string> = {
  load: "Slots used",
  state: "State",
  age: "Heartbeat",
  cpu: "Processor",
  memory: "Memory",
  gpu: "Graphics processor",
};

const fields: Field[] = [
  { name: "by", label: "Colour", options: kinds.map((k) => ({ value: k === "load" ? "" : k, label: names[k] })) },
  {
    name: "group",
    label: "Group",
    options: ["", "pool", "service", "label", "cell"].map((value) => ({ value, label: value || "none" })),
  },
  { name: "label", label: "Label", placeholder: "its name" },
  {
    name: "status",
    label: "Status",
    options: ["", ...states.slice(1)].map((value) => ({ value, label: value || "any" })),
  },
  { name: "name", label: "Find", placeholder: "a part of a name" },
];

/** What groups are named by, for each node. */
function grouping(group: string, label: string): (r: Row) => string {
  const by: Record<string, (r: Row) => string> = {
    pool: (r) => r.pools.join(", ") || "in no pool",
    service: (r) => r.services.join(", ") || "no services",
    label: (r) => (label ? (r.profile?.labels?.[label] ?? `without ${label}`) : "name a label"),
  };
  const name = by[group];
  if (name) return (r) => (r.profile ? name(r) : "not known yet");
  return group === "cell" ? (r) => `cell ${places.cell[r.place] ?? 0}` : () => "All nodes";
}

/** Who and what a node is, in words. */
function sentence(r: Row): string {
  const figures = (["cpu", "memory", "gpu"] as const)
    .map((k) => [names[k].toLowerCase(), percent(k, r)] as const)
    .filter(([, text]) => text !== "–")
    .map(([name, text]) => `, ${name} ${text}`);
  const pools = r.pools.length > 0 ? `, in ${r.pools.join(", ")}` : "";
  return `${r.name}: ${r.status}, ${r.used} of ${r.max} slots${figures.join("")}, heartbeat ${ageText(r.age, places.unit)} ago${pools}`.replace(
    "never ago",
    "never",
  );
}

/** All nodes at a glance. */
export function Fleet() {
  useFleet();
  const query = route.value.query;
  const values = Object.fromEntries(fields.map((f) => [f.name, query.get(f.name) ?? ""] as const));
  const { by = "", group = "", label = "", status = "", name = "" } = values;
  const all = useMemo(rows, [roster.value]);
  // The view itself is rendered again only when these change, not with each push.
  const seen = useComputed(() => seenAt.value > 0).value;
  const staleMS = useComputed(() => (figures.value > 0 ? places.staleMS : 0)).value;
  const picked = useSignal<ReadonlySet<string>>(new Set());
  const meant = useMemo(() => {
    if (picked.value.size > 0) return all.filter((r) => picked.value.has(r.name));
    if (!status && !name) return undefined;
    const part = name.toLowerCase();
    return all.filter((r) => (!status || r.status === status) && r.name.toLowerCase().includes(part));
  }, [all, picked.value, status, name, calm.value]);
  const table = query.get("as") === "table";
  const chosen = picked.value.size > 0 ? (meant ?? []) : [];
  const shown = fields.filter((f) => f.name !== "label" || group === "label");
  return (
    <div class="view">
      <header class="bar">
        <h1>Fleet</h1>
        <span class="faint">{seen && plural(all.length, "node")}</span>
        <button type="button" aria-pressed={table} onClick={() => setQuery({ as: table ? undefined : "table" })}>
          As a table
        </button>
      </header>
      <Filter label="Map" fields={shown} values={values} onChange={setQuery} />
      {trouble.value && <Failed error={trouble.value} />}
      {staleMS > 0 && (
        <Stale since={now() - staleMS} why="Redis does not answer, so this is what the replica knew last." />
      )}
      {!seen && !trouble.value && <Loading rows={8} />}
      {seen && all.length === 0 && (
        <Empty title="No node has registered">Start an agent: nodeagent -c agent.yaml.</Empty>
      )}
      {all.length > 0 && (
        <div class="acts picked" role="group" aria-label="Chosen nodes">
          <span role="status">
            {chosen.length > 0
              ? `${plural(chosen.length, "node")} chosen`
              : meant
                ? `${plural(meant.length, "node")} found`
                : "Draw a rectangle to choose nodes"}
          </span>
          {chosen.length > 0 && (
            <>
              {(["drain", "undrain"] as const).map((verb) => (
                <PlanButton key={verb} verb={verb} ids={chosen.map((r) => r.name)} />
              ))}
              <button type="button" class="plain" onClick={() => (picked.value = new Set())}>
                Choose none
              </button>
            </>
          )}
        </div>
      )}
      {all.length > 0 && !table && (
        <NodeMap
          all={all}
          kind={(kinds as readonly string[]).includes(by) ? (by as Kind) : "load"}
          name={grouping(group, label)}
          grouped={`${group} ${label}`}
          meant={meant}
          pick={(set) => {
            picked.value = set;
          }}
        />
      )}
      {all.length > 0 && table && (
        <Table
          label="Nodes"
          columns={nodeColumns}
          rows={meant ?? all}
          id={(r) => r.name}
          to={(r) => href(["nodes", r.name])}
          foot={`${count((meant ?? all).length)} of ${plural(all.length, "node")}`}
        />
      )}
      <Command line={schedctl(["nodes"], { status: status === "silent" ? "" : status })} />
    </div>
  );
}

const heading = 28;
const sizes = [5, 10, 15, 20, 30, 40];

/** Where a node is on the map: in columns and rows over all groups. */
interface Spot {
  x: number;
  y: number;
}

function NodeMap({
  all,
  kind,
  name,
  grouped,
  meant,
  pick,
}: {
  all: Row[];
  kind: Kind;
  name: (r: Row) => string;
  grouped: string;
  meant: Row[] | undefined;
  pick: (names: Set<string>) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const query = route.value.query;
  const height = Math.max(240, innerHeight - 330);
  // The groups' sizes decide how many columns fit, and these where each node is.
  const { groups, columns, size } = useMemo(() => {
    const counts = arrange(all, name, 1).map((g) => g.rows.length);
    const fitted = fit(counts, Math.max(100, width - 16), height, heading);
    return { groups: arrange(all, name, fitted.columns), ...fitted };
  }, [all, grouped, width, height]);
  const zoom = Number(query.get("zoom")) || 0;
  const shownSize = sizes[Math.min(sizes.length - 1, Math.max(0, sizes.indexOf(size) + zoom))] ?? size;
  const at = query.get("at") ?? "";
  const spots = useMemo(() => {
    const found = new Map<string, Spot>();
    for (const g of groups)
      g.rows.forEach((r, i) => {
        found.set(r.name, { x: i % columns, y: g.top + Math.floor(i / columns) });
      });
    return found;
  }, [groups, columns]);
  const cursor = spots.get(at);
  const anchor = useRef<Spot | undefined>(undefined);
  const [lasso, setLasso] = useState<{ from: [number, number]; to: [number, number] }>();
  const cursorRow = useMemo(() => all.find((r) => r.name === at), [all, at]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  // Zooming keeps the middle where it is.
  const before = useRef(shownSize);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || before.current === shownSize) return;
    const ratio = shownSize / before.current;
    before.current = shownSize;
    element.scrollLeft = (element.scrollLeft + element.clientWidth / 2) * ratio - element.clientWidth / 2;
    element.scrollTop = (element.scrollTop + element.clientHeight / 2) * ratio - element.clientHeight / 2;
  }, [shownSize]);
  useEffect(() => {
    box.current?.querySelector(".cursor")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at]);

  const rowAt = (s: Spot): Row | undefined => {
    const g = groups.find((o) => s.y >= o.top && s.y < o.top + o.height);
    return s.x >= 0 && s.x < columns ? g?.rows[(s.y - g.top) * columns + s.x] : undefined;
  };
  const within = (a: Spot, b: Spot): Set<string> => {
    const found = new Set<string>();
    for (let y = Math.min(a.y, b.y); y <= Math.max(a.y, b.y); y++)
      for (let x = Math.min(a.x, b.x); x <= Math.max(a.x, b.x); x++) {
        const r = rowAt({ x, y });
        if (r) found.add(r.name);
      }
    return found;
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && cursorRow) return go(href(["nodes", cursorRow.name]));
    if (event.key === "Escape") {
      anchor.current = undefined;
      return pick(new Set());
    }
    if (event.key === "+" || event.key === "-") return setZoom(event.key === "+" ? 1 : -1);
    if (!step) return;
    event.preventDefault();
    const [dx = 0, dy = 0] = step;
    const from = cursor ?? { x: 0, y: 0 };
    let to = cursor ? { x: from.x + dx, y: from.y + dy } : from;
    // The last row of a group may be short.
    while (to.x > 0 && dy !== 0 && !rowAt(to) && rowAt({ x: 0, y: to.y })) to = { x: to.x - 1, y: to.y };
    const r = rowAt(to);
    if (!r) return;
    if (event.shiftKey) {
      anchor.current ??= from;
      pick(within(anchor.current, to));
    } else anchor.current = undefined;
    setQuery({ at: r.name });
  };
  const setZoom = (by: number) => {
    const next = Math.min(sizes.length - 1, Math.max(0, sizes.indexOf(size) + zoom + by)) - sizes.indexOf(size);
    setQuery({ zoom: next ? String(next) : undefined });
  };
  // The rectangle of the pointer, in the groups' own columns and rows.
  const choose = (l: { from: [number, number]; to: [number, number] }) => {
    const [left, right] = [Math.min(l.from[0], l.to[0]), Math.max(l.from[0], l.to[0])];
    const [top, bottom] = [Math.min(l.from[1], l.to[1]), Math.max(l.from[1], l.to[1])];
    const found = new Set<string>();
    for (const [i, g] of groups.entries()) {
      const y = top - groupTop(i);
      const to = bottom - groupTop(i);
      if (to < 0 || y > g.height * shownSize) continue;
      const rect = within(
        { x: Math.floor(left / shownSize), y: g.top + Math.max(0, Math.floor(y / shownSize)) },
        { x: Math.floor(right / shownSize), y: g.top + Math.min(g.height - 1, Math.floor(to / shownSize)) },
      );
      for (const n of rect) found.add(n);
    }
    return found;
  };
  const groupTop = (i: number) => (i + 1) * heading + (groups[i]?.top ?? 0) * shownSize;
  const point = (event: PointerEvent): [number, number] => {
    const r = box.current?.querySelector(".plane")?.getBoundingClientRect();
    return [event.clientX - (r?.left ?? 0), event.clientY - (r?.top ?? 0)];
  };
  const faint = useMemo(() => meant && new Set(meant.map((r) => r.place)), [meant]);
  return (
    <div class="panel fleet">
      <header>
        <Legend kind={kind} />
        <span class="acts">
          {([-1, 1] as const).map((n) => (
            <button key={n} type="button" aria-label={n > 0 ? "Zoom in" : "Zoom out"} onClick={() => setZoom(n)}>
              {n > 0 ? "+" : "−"}
            </button>
          ))}
          <button type="button" disabled={!zoom} onClick={() => setQuery({ zoom: undefined })}>
            Fit
          </button>
        </span>
      </header>
      <p class="hidden" id="map-keys">
        Arrows move the cursor, with Shift they choose nodes, Enter opens one, Escape chooses none, + and - zoom.
      </p>
      <div
        ref={box}
        class="map"
        style={{ maxHeight: `${height}px` }}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the map takes the arrow keys
        tabIndex={0}
        role="application"
        aria-label={`Map of ${plural(all.length, "node")} by ${names[kind].toLowerCase()}`}
        aria-describedby="map-keys"
        onKeyDown={onKey}
      >
        <div
          class="plane"
          style={{ width: `${columns * shownSize}px` }}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            setLasso({ from: point(event), to: point(event) });
          }}
          onPointerMove={(event) => lasso && setLasso({ ...lasso, to: point(event) })}
          onPointerUp={() => {
            if (!lasso) return;
            setLasso(undefined);
            const small = Math.hypot(lasso.to[0] - lasso.from[0], lasso.to[1] - lasso.from[1]) < 4;
            const found = choose(lasso);
            if (!small) return pick(found);
            pick(new Set());
            setQuery({ at: [...found][0] });
          }}
        >
          {groups.map((g) => (
            <section key={g.name} aria-label={g.name}>
              <h2>
                <Text value={g.name} max={80} /> <small>{count(g.rows.length)}</small>
              </h2>
              <Tiles group={g} columns={columns} size={shownSize} kind={kind} meant={faint} />
            </section>
          ))}
          {cursor && (
            <div
              class="cursor"
              style={{
                left: `${cursor.x * shownSize}px`,
                top: `${groupTop(groups.findIndex((g) => cursor.y < g.top + g.height)) + (cursor.y - (groups.find((g) => cursor.y < g.top + g.height)?.top ?? 0)) * shownSize}px`,
                width: `${shownSize}px`,
                height: `${shownSize}px`,
              }}
            />
          )}
          {lasso && (
            <div
              class="lasso"
              style={{
                left: `${Math.min(lasso.from[0], lasso.to[0])}px`,
                top: `${Math.min(lasso.from[1], lasso.to[1])}px`,
                width: `${Math.abs(lasso.to[0] - lasso.from[0])}px`,
                height: `${Math.abs(lasso.to[1] - lasso.from[1])}px`,
              }}
            />
          )}
        </div>
      </div>
      <p class="said" aria-live="polite">
        {cursorRow ? (
          <>
            {calm.value > 0 && sentence(cursorRow)} <a href={href(["nodes", cursorRow.name])}>Open</a>
          </>
        ) : (
          "Arrow keys or a click read out a node."
        )}
      </p>
    </div>
  );
}

function useColours() {
  return useMemo(() => {
    const style = getComputedStyle(document.documentElement);
    const dark = theme.value === "dark" || (theme.value === "system" && systemDark.value);
    return palette(dark, (name) => style.getPropertyValue(name));
  }, [theme.value, systemDark.value]);
}

/** The tiles of a group: a small bitmap, which the browser enlarges without smoothing. */
function Tiles({
  group: g,
  columns,
  size,
  kind,
  meant,
}: {
  group: Group<Row>;
  columns: number;
  size: number;
  kind: Kind;
  meant: Set<number> | undefined;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useColours();
  const [width, height] = [columns * tile, g.height * tile];
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const index = new Map<number, number>();
    g.rows.forEach((r, i) => {
      index.set(r.place, i);
    });
    // One for all: each frame draws thousands of nodes.
    const n = { place: 0, state: 0, used: 0, max: 0, age: 0 };
    const one = (place: number, i: number) => {
      n.place = place;
      n.state = places.state[place] ?? 0;
      n.used = places.used[place] ?? 0;
      n.max = places.max[place] ?? 0;
      n.age = places.age[place] ?? 0;
      const faint = meant !== undefined && !meant.has(place);
      draw(pixels, width, i % columns, Math.floor(i / columns), kind, n, colours, faint);
    };
    for (const [place, i] of index) one(place, i);
    context.putImageData(image, 0, 0);
    let due = 0;
    const stop = onFigures((changed) => {
      let any = false;
      for (const place of changed) {
        const i = index.get(place);
        if (i === undefined) continue;
        one(place, i);
        any = true;
      }
      if (!any || due) return;
      due = requestAnimationFrame(() => {
        due = 0;
        context.putImageData(image, 0, 0);
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(due);
    };
  }, [g, columns, kind, meant, colours]);
  return (
    <canvas
      ref={canvas}
      width={width}
      height={height}
      aria-hidden="true"
      style={{ width: `${columns * size}px`, height: `${g.height * size}px` }}
    />
  );
}

/** What shapes and colours mean. */
function Legend({ kind }: { kind: Kind }) {
  const counts = useMemo(() => {
    const by = states.map(() => 0);
    for (let i = 0; i < places.size; i++) by[places.state[i] ?? 0] = (by[places.state[i] ?? 0] ?? 0) + 1;
    return by;
  }, [figures.value]);
  return (
    <div class="legend">
      {states.map(
        (s, i) =>
          i > 0 && (
            <span key={s}>
              <Sample kind="state" state={i} /> {s} {count(counts[i] ?? 0)}
            </span>
          ),
      )}
      {kind !== "state" && (
        <span>
          {kind === "age" ? ageText(0, places.unit) : "0 %"}
          {[0, 25, 50, 75, 100].map((v) => (
            <Sample key={v} kind={kind} state={1} share={v} />
          ))}
          {kind === "age" ? ageText(25, places.unit) : "100 %"}
        </span>
      )}
    </div>
  );
}

function Sample({ kind, state, share = 0 }: { kind: Kind; state: number; share?: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useColours();
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(tile, tile);
    const n = { place: -1, state, used: share, max: 100, age: 0 };
    draw(new Uint32Array(image.data.buffer), tile, 0, 0, kind === "state" ? kind : "load", n, colours, false);
    context.putImageData(image, 0, 0);
  }, [kind, state, share, colours]);
  return <canvas ref={canvas} class="sample" width={tile} height={tile} aria-hidden="true" />;
}
