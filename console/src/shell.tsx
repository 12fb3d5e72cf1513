import { useComputed, useSignal } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Help } from "./help.tsx";
import { signOut } from "./lib/api.ts";
import { pushKeys } from "./lib/keys.ts";
import { link, reconnect, stale } from "./lib/live.ts";
import { type Theme, theme, zone } from "./lib/prefs.ts";
import { may } from "./lib/rights.ts";
import { fragment, go, href, route } from "./lib/route.ts";
import { builds, expired, readSession, session } from "./lib/session.ts";
import { clock, moment, span } from "./lib/time.ts";
import { Toasts, toast } from "./parts/act.tsx";
import { Icon, type IconName } from "./parts/icon.tsx";
import { Denied, Empty, Loading, Text } from "./parts/small.tsx";
import { Search } from "./search.tsx";
import { SignIn } from "./signin.tsx";
import { viewAt, views } from "./views/index.ts";

/** The page around every view. */
export function Shell() {
  const help = useSignal(false);
  const search = useSignal(false);
  useEffect(() => {
    void load();
    return pushKeys({
      "?": () => {
        help.value = true;
      },
      "/": () => {
        search.value = true;
      },
      Escape: () => {
        const { path } = route.peek();
        if (path.length > 1) go(href(path.slice(0, 1)));
      },
    });
  }, []);
  const s = session.value;
  const signedOut = s && !s.open && !s.signed_in;
  return (
    <>
      <a class="skip" href="#main" onClick={toMain}>
        Skip to the view
      </a>
      <Header
        onHelp={() => {
          help.value = true;
        }}
        onSearch={() => {
          search.value = true;
        }}
      />
      <Nav />
      <main id="main" tabIndex={-1} class={link.value.mode === "stale" ? "old" : undefined}>
        <Banner />
        {!s ? <Waiting /> : signedOut && !expired.value ? <SignIn /> : <CurrentView />}
      </main>
      {expired.value && <SignIn again />}
      {help.value && (
        <Help
          onClose={() => {
            help.value = false;
          }}
        />
      )}
      {search.value && (
        <Search
          onClose={() => {
            search.value = false;
          }}
        />
      )}
      <Toasts />
    </>
  );
}

// The page is static, so it loads in any outage; the session comes when a replica answers again.
async function load(): Promise<void> {
  for (let n = 0; ; n++) {
    try {
      await readSession();
      reconnect();
      return;
    } catch {
      stale();
      await new Promise((done) => setTimeout(done, Math.random() * Math.min(30_000, 1000 * 2 ** n)));
    }
  }
}

function toMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Waiting() {
  if (link.value.mode !== "stale") return <Loading />;
  return (
    <Empty title="The replica does not answer">
      The page asks again by itself. Since {moment(link.value.since)}; schedctl status asks the other replicas.
    </Empty>
  );
}

function CurrentView() {
  const name = route.value.path[0] ?? "";
  const view = viewAt(name);
  const at = fragment.value;
  // Says which address is on the screen, for tests and other tools that wait for it.
  useEffect(() => {
    document.documentElement.dataset.view = at;
  }, [at]);
  useEffect(() => {
    document.title = view ? `${view.name} · freeslot` : "freeslot";
  }, [view]);
  if (!view)
    return (
      <Empty title="There is no such view">
        <h1 class="hidden">No such view</h1>
        <Text value={`#/${route.value.path.join("/")}`} /> is not an address of this release.{" "}
        <a href="#/">Go to the overview.</a>
      </Empty>
    );
  if (!may(view.needs)) {
    // Who may not see the overview begins with what there is to see.
    const first = name === "" ? views.find((v) => may(v.needs)) : undefined;
    return first ? <first.component /> : <Denied needs={view.needs} />;
  }
  return (
    <Guard key={name}>
      <view.component />
    </Guard>
  );
}

/** Keeps a defect of one view from emptying the page. */
class Guard extends Component<{ children: ComponentChildren }, { error?: Error }> {
  static override getDerivedStateFromError(error: Error) {
    return { error };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Empty title="This view has a defect">
        <Text value={String(this.state.error)} max={400} />. Reload the page to try again; the other views still work.
      </Empty>
    );
  }
}

function Header({ onHelp, onSearch }: { onHelp: () => void; onSearch: () => void }) {
  const s = session.value;
  const clockText = `${moment(clock.value, zone.value, clock.value).slice(0, 5)} ${zone.value === "utc" ? "UTC" : "local"}`;
  return (
    <header class="top">
      <a class="brand" href="#/" aria-label="freeslot, overview">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <path class="full" d="M4 4h11v11H4zM17 4h11v11H17zM4 17h11v11H4z" />
          <path class="free" d="M18 18h9v9h-9z" />
        </svg>
        freeslot
      </a>
      {(s?.open || s?.signed_in) && <Link />}
      <span class="who">
        {s?.replica && (
          <span title="The replica that serves this page">
            <span class="faint">at</span> <Text value={link.value.replica || s.replica} max={40} />
          </span>
        )}
        <Role />
      </span>
      <span class="tools">
        <button type="button" class="plain" onClick={onSearch} title="Search ( / )" aria-label="Search">
          <Icon name="search" />
        </button>
        <button
          type="button"
          class="plain zone"
          title="Switch between local time and UTC"
          aria-label={`${clockText}, switch to ${zone.value === "utc" ? "local time" : "UTC"}`}
          onClick={() => {
            zone.value = zone.value === "utc" ? "local" : "utc";
          }}
        >
          {clockText}
        </button>
        <ThemeButton />
        <button type="button" class="plain" onClick={onHelp} title="Help ( ? )" aria-label="Help">
          ?
        </button>
        {s?.signed_in && !s.open && (
          <button type="button" class="plain" onClick={() => void leave()}>
            Sign out
          </button>
        )}
      </span>
    </header>
  );
}

async function leave(): Promise<void> {
  try {
    await signOut();
    reconnect();
  } catch (cause) {
    toast(cause instanceof Error ? cause.message : String(cause));
  }
}

function Role() {
  const s = session.value;
  if (!s) return null;
  if (s.open) return <span class="role open">Everybody on this machine is admin</span>;
  if (!s.signed_in) return null;
  return (
    <span class="role">
      <Text value={s.name || s.tenant} max={32} /> <b>{s.role}</b>
    </span>
  );
}

function Link() {
  const { mode, since } = link.value;
  const text = useComputed(() => {
    switch (link.value.mode) {
      case "live":
        return "live";
      case "polling":
        return "every 10 s";
      case "stale":
        return `stale since ${moment(link.value.since)}`;
      default:
        return "connecting";
    }
  });
  const title =
    mode === "polling"
      ? "Something on the way blocks WebSockets, so the page asks every 10 seconds."
      : `Since ${moment(since)}, ${span(Math.max(0, clock.value - since))}`;
  return (
    <span class={`link ${mode}`} role="status" title={title}>
      {text}
    </span>
  );
}

const themes: Record<Theme, [next: Theme, icon: IconName]> = {
  system: ["light", "auto"],
  light: ["dark", "sun"],
  dark: ["system", "moon"],
};

function ThemeButton() {
  const [next, icon] = themes[theme.value];
  return (
    <button
      type="button"
      class="plain"
      title={`Colours: ${theme.value}`}
      aria-label={`Colours: ${theme.value}, switch to ${next}`}
      onClick={() => {
        theme.value = next;
      }}
    >
      <Icon name={icon} />
    </button>
  );
}

function Nav() {
  const here = route.value.path[0] ?? "";
  const bar = useRef<HTMLElement>(null);
  // On a phone the bar is wider than the screen.
  useEffect(() => {
    const at = bar.current?.querySelector<HTMLElement>("[aria-current]");
    if (bar.current && at) bar.current.scrollLeft = at.offsetLeft - (bar.current.clientWidth - at.offsetWidth) / 2;
  }, [here]);
  return (
    <nav aria-label="Views" ref={bar}>
      <ul>
        {views
          .filter((v) => may(v.needs))
          .map((v) => (
            <li key={v.path}>
              <a href={href([v.path].filter(Boolean))} aria-current={here === v.path ? "page" : undefined}>
                <Icon name={v.icon} />
                {v.name}
                <kbd aria-hidden="true">g {v.key}</kbd>
              </a>
            </li>
          ))}
      </ul>
    </nav>
  );
}

/** What concerns the whole page: another release, or no connection. */
function Banner() {
  const { first, now } = builds.value;
  return (
    <>
      {first !== now && (
        <div class="banner" role="status">
          This replica runs another release, <Text value={now} max={60} />. Reload when you are ready; nothing that you
          typed is lost until then.{" "}
          <button type="button" onClick={() => location.reload()}>
            Reload
          </button>
        </div>
      )}
      {link.value.mode === "stale" && session.value && (
        <div class="banner warn" role="status">
          The replica does not answer since {moment(link.value.since)}. What you see is from then. The page connects
          again by itself.
        </div>
      )}
    </>
  );
}
