const paths = {
  overview: "M2.5 9.5h3l2-6 2.5 9 2-5h2",
  jobs: "M3 4h10M3 8h10M3 12h6",
  nodes: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  fleet:
    "M2.5 2.5h3v3h-3zM6.5 2.5h3v3h-3zM10.5 2.5h3v3h-3zM2.5 6.5h3v3h-3zM6.5 6.5h3v3h-3zM10.5 6.5h3v3h-3zM2.5 10.5h3v3h-3zM6.5 10.5h3v3h-3z",
  queues: "M2.5 4.5h7M2.5 8h11M2.5 11.5h4.5",
  dead: "M2.5 4.5h11v8h-11zM2.5 5l5.5 4.5L13.5 5",
  bulk: "M2.5 5.5h8v8h-8zM5.5 5.5v-3h8v8h-3M4.5 9.5l1.5 1.5 2.5-3",
  lists: "M3 4.5l1 1 2-2M8.5 4.5h5M3 8.5l1 1 2-2M8.5 8.5h5M3.5 12.5h2M8.5 12.5h5",
  pools: "M2.5 5.5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0M7.5 10.5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",
  tenants: "M8 2.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5zM3.5 13.5c0-6 9-6 9 0",
  chains: "M2.5 4h4v3h-4zM9.5 4h4v3h-4zM6.5 5.5h3M11.5 7v3M9.5 10h4v3h-4zM2.5 11.5h7",
  schedules: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3.5l2.5 1.5",
  replicas: "M2.5 3.5h6v6h-6zM8.5 6.5h5v6h-6v-3",
  services: "M8 2.5v4M8 6.5L4 10M8 6.5l4 3.5M2.5 10.5h3v3h-3zM10.5 10.5h3v3h-3z",
  documents: "M4 2.5h5l3 3v8H4zM9 2.5v3h3M6 8.5h4M6 11h4",
  locks: "M3.5 7.5h9v6h-9zM5.5 7.5v-2a2.5 2.5 0 0 1 5 0v2",
  audit: "M4 2.5h8v11H4zM6.5 6h3M6.5 9h3",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3.5 3.5",
  check: "M3 8.5l3.5 3.5L13 4.5",
  alert: "M8 2.5l6 11H2zM8 6.5v3.5M8 12h.01",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.5 3.5l.7.7M11.8 11.8l.7.7M3.5 12.5l.7-.7M11.8 4.2l.7-.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  list: "M3 3.5h10v9H3zM3 6.5h10M7 6.5v6",
  dot: "M8 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
