import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { type Fault, faultsOf, parseDocument } from "../lib/document.ts";
import { may, whoMay } from "../lib/rights.ts";
import { go, href } from "../lib/route.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { full, inZone } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { Difference, Editor } from "../parts/editor.tsx";
import { Age, Command, Failed, Panel, Scroll, Text } from "../parts/small.tsx";

type Schedule = components["schemas"]["Schedule"];

/** So many of the coming runs are shown. */
export const comingRuns = 5;

/** The coming runs in the schedule's zone and in one's own. */
export function Runs({ runs, zone }: { runs: number[]; zone: string }) {
  if (runs.length === 0) return <p class="faint">It does not run again.</p>;
  return (
    <Scroll label="Next runs, as a table">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">
              In <Text value={zone} max={40} />
            </th>
            <th scope="col">Your time</th>
            <th scope="col">When</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((at) => (
            <tr key={at}>
              <th scope="row">{inZone(at, zone)}</th>
              <td>{full(at)}</td>
              <td>
                <Age at={at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

interface Form {
  name: string;
  tenant: string;
  cron: string;
  zone: string;
  missed: string;
  grace: string;
  job: string;
}

const blank: Form = {
  name: "",
  tenant: "",
  cron: "",
  zone: "UTC",
  missed: "latest",
  grace: "60000",
  job: '{\n  "service": "",\n  "payload": {}\n}',
};

function formOf(s: Schedule): Form {
  return {
    name: s.name,
    tenant: s.tenant,
    cron: s.cron,
    zone: s.time_zone,
    missed: s.on_missed,
    grace: String(s.grace_ms),
    job: JSON.stringify(s.job, null, 2),
  };
}

/** The form as one text, to compare it with. */
function textOf(f: Form): string {
  return `cron: ${f.cron}\ntime_zone: ${f.zone}\non_missed: ${f.missed}\ngrace_ms: ${f.grace}\njob: ${f.job}`;
}

interface State {
  form: Form;
  base: Form;
  /** The version that is replaced, 0 for none. */
  version: number;
  errors: Record<string, string>;
  faults: Fault[];
  other?: ApiError | undefined;
  busy?: boolean;
  /** The schedule as it would be, for the form as it is. */
  preview?: Schedule | undefined;
  newer?: { form: Form; version: number } | undefined;
}

/** Makes a schedule, or changes one. Nothing is saved before its next runs have been shown. */
export function ScheduleForm({ schedule, tenant }: { schedule?: Schedule | undefined; tenant: string }) {
  const first = schedule ? formOf(schedule) : { ...blank, tenant };
  const state = useSignal<State>({
    form: first,
    base: first,
    version: schedule?.version ?? 0,
    errors: {},
    faults: [],
  });
  const s = state.value;
  const set = (part: Partial<Form>) => {
    state.value = { ...s, form: { ...s.form, ...part }, errors: {}, faults: [], other: undefined, preview: undefined };
  };
  const refused = async (cause: unknown) => {
    const error = cause instanceof ApiError ? cause : new ApiError("internal", String(cause));
    const now = { ...state.peek(), busy: false, preview: undefined };
    state.value = now;
    if (error.code === "conflict" && error.field === "version") {
      const stored = await get("/v1/schedules/{name}", {
        path: { name: s.form.name },
        query: { tenant: s.form.tenant },
      }).catch(() => undefined);
      state.value = {
        ...now,
        newer: stored && { form: formOf(stored), version: stored.version },
        other: stored ? undefined : error,
      };
      return;
    }
    const all = error.errors.length > 0 ? error.errors : [{ field: error.field, message: error.message }];
    const ofJob = (field: string) => field === "job" || field.startsWith("job.");
    const own = all.filter((e) => e.field in fields);
    const job = all.filter((e) => ofJob(e.field));
    state.value = {
      ...now,
      errors: Object.fromEntries(own.map((e) => [e.field, e.message])),
      faults: job.length > 0 ? faultsOf(s.form.job, new ApiError(error.code, "", "", 0, job), "job") : [],
      other: own.length + job.length < all.length ? error : undefined,
    };
  };
  const send = async (dry: boolean, reason?: string): Promise<Schedule | undefined> => {
    const { form, version } = state.peek();
    const { value: job, faults } = parseDocument(form.job);
    if (faults.length > 0) {
      state.value = { ...state.peek(), faults };
      return undefined;
    }
    const query = { tenant: form.tenant, ...(dry ? { dry_run: true, runs: comingRuns } : {}) };
    return change("put", "/v1/schedules/{name}", {
      path: { name: form.name },
      query,
      body: {
        cron: form.cron,
        time_zone: form.zone,
        on_missed: form.missed,
        // What is no number is for the replica to refuse, at its field.
        grace_ms: /^\d+$/.test(form.grace.trim()) ? Number(form.grace) : form.grace,
        job,
        version,
      },
      reason,
    });
  };
  const preview = async () => {
    const { form } = state.peek();
    state.value = { ...state.peek(), busy: true, errors: {}, faults: [], other: undefined };
    try {
      const shown = await send(true);
      // What was typed meanwhile has not been looked at.
      state.value = { ...state.peek(), busy: false, preview: state.peek().form === form ? shown : undefined };
    } catch (cause) {
      await refused(cause);
    }
  };
  const file = `${s.form.name || "schedule"}.json`;
  const away = may("changeJob") ? undefined : whoMay("changeJob");
  return (
    <>
      {s.newer && (
        <div class="notice failed" role="alert">
          <strong>Version {count(s.newer.version)} came meanwhile</strong>
          <p>What you typed is below, as it was. This is how it differs from the newest version:</p>
          <Difference
            label="Your edit against the newest version"
            before={textOf(s.newer.form)}
            after={textOf(s.form)}
          />
          <button
            type="button"
            onClick={() => {
              if (s.newer) state.value = { ...s, base: s.newer.form, version: s.newer.version, newer: undefined };
            }}
          >
            Go on from version {count(s.newer.version)} with my edit
          </button>
        </div>
      )}
      <section class="panel" aria-label={schedule ? `Edit ${schedule.name}` : "New schedule"}>
        <div class="ask">
          {!schedule && (
            <>
              <Field label="Name" error={s.errors.name} value={s.form.name} onValue={(name) => set({ name })} />
              {may("see") && (
                <Field
                  label="Tenant (yours if empty)"
                  error={s.errors.tenant}
                  value={s.form.tenant}
                  onValue={(tenant) => set({ tenant })}
                />
              )}
            </>
          )}
          <Field label="When, as cron" error={s.errors.cron} value={s.form.cron} onValue={(cron) => set({ cron })} />
          <Field label="Time zone" error={s.errors.time_zone} value={s.form.zone} onValue={(zone) => set({ zone })} />
          <label>
            <span>Missed runs</span>
            <select value={s.form.missed} onChange={(event) => set({ missed: event.currentTarget.value })}>
              <option value="skip">are left out</option>
              <option value="latest">the last one is made</option>
              <option value="all">the last 100 are made</option>
            </select>
          </label>
          <Field
            label="Missed after, in ms"
            error={s.errors.grace_ms}
            value={s.form.grace}
            onValue={(grace) => set({ grace })}
          />
        </div>
        <p class="faint">Minute, hour, day, month, day of week, such as 30 4 * * 1-5; or @daily; or @every 10m.</p>
        <Editor label="Its job" text={s.form.job} onText={(job) => set({ job })} faults={s.faults} rows={12} />
        {s.other && <Failed error={s.other} />}
        <div class="acts">
          <button
            type="button"
            disabled={s.busy}
            aria-disabled={away ? true : undefined}
            title={away}
            onClick={() => !away && void preview()}
          >
            Show the next runs
          </button>
          <Act
            action={{
              label: "Save",
              title: schedule ? `Change schedule ${s.form.name}` : `Make schedule ${s.form.name}`,
              needs: "changeJob",
              not: s.newer ? "It has changed meanwhile." : s.preview ? undefined : "Show the next runs first.",
              consequence: s.preview
                ? `${schedule ? `It replaces version ${s.version}. ` : ""}${s.preview.paused ? "It stays paused." : `It runs first at ${inZone(s.preview.next_run_ms ?? 0, s.preview.time_zone)} (${s.preview.time_zone}).`}`
                : "",
              command: (reason) => schedctl(["schedules", "apply"], { tenant: s.form.tenant, file, reason }),
              run: async (reason) => {
                try {
                  const saved = await send(false, reason);
                  if (!saved) throw new ApiError("invalid_argument", "The job has faults.");
                  go(href(["schedules", saved.name], { tenant: saved.tenant }));
                  return `Schedule ${saved.name} is at version ${saved.version}.`;
                } catch (cause) {
                  await refused(cause);
                  throw cause;
                }
              },
            }}
          />
        </div>
      </section>
      <div role="status">
        {s.preview && (
          <Panel title={`The next ${plural(s.preview.next_runs_ms?.length ?? 0, "run")}`}>
            <Runs runs={s.preview.next_runs_ms ?? []} zone={s.preview.time_zone} />
          </Panel>
        )}
      </div>
      <Command line={schedctl(["schedules", "apply"], { tenant: s.form.tenant, file, "dry-run": true })} />
    </>
  );
}

const fields = { name: 1, tenant: 1, cron: 1, time_zone: 1, grace_ms: 1 };

function Field({
  label,
  error,
  value,
  onValue,
}: {
  label: string;
  error: string | undefined;
  value: string;
  onValue: (value: string) => void;
}): ComponentChildren {
  const id = useId();
  return (
    <label>
      <span>{label}</span>
      <input
        autocomplete="off"
        spellcheck={false}
        value={value}
        aria-invalid={error ? true : undefined}
        aria-describedby={error ? id : undefined}
        onInput={(event) => onValue(event.currentTarget.value)}
      />
      {error && (
        <span class="fault" id={id} role="alert">
          <Text value={error} max={400} />
        </span>
      )}
    </label>
  );
}
