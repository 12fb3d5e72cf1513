import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { ApiError } from "../lib/api.ts";
import { link } from "../lib/live.ts";
import { may, type Right, whoMay } from "../lib/rights.ts";
import { Dialog } from "./dialog.tsx";
import { Command, Failed, Text } from "./small.tsx";

/** Something that changes the system. */
export interface Action {
  /** The button's text, a verb first: "Drain". */
  label: string;
  /** The dialog's title, with the name of what is changed. */
  title: string;
  needs: Right;
  /** Why it cannot be done now; the button is greyed. */
  not?: string | undefined;
  danger?: boolean;
  /** What will happen, in a sentence or two. */
  consequence: ComponentChildren;
  /** The name or count that must be typed, of what cannot be undone or is wide. */
  typed?: string;
  /** The schedctl line that does the same, with the reason as it is typed. */
  command: (reason: string) => string;
  /** Does it, and returns a sentence about what came of it. */
  run: (reason: string) => Promise<string>;
  undo?: { label: string; run: () => Promise<string> };
}

/**
 * A button that opens the dialog of an action. The dialog keeps what the page showed when it was opened, so that it
 * does what was asked for, and the replica refuses what no longer holds.
 */
export function Act({ action }: { action: Action }) {
  const [open, setOpen] = useState<Action>();
  const away = link.value.mode === "stale" && "The replica does not answer.";
  const why = may(action.needs) ? action.not || away || undefined : whoMay(action.needs);
  return (
    <>
      <button
        type="button"
        class={action.danger ? "danger" : undefined}
        aria-disabled={why ? true : undefined}
        title={why}
        onClick={() => !why && setOpen(action)}
      >
        {action.label}
        {why && <span class="hidden">: {why}</span>}
      </button>
      {open && <Confirm action={open} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function Confirm({ action, onClose }: { action: Action; onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const running = useRef(false);
  const id = useId();
  const ready = (!action.typed || typed === action.typed) && (!action.danger || reason.trim() !== "");
  const submit = async (event: Event) => {
    event.preventDefault();
    // A double click comes before the button is greyed.
    if (!ready || running.current) return;
    running.current = true;
    setBusy(true);
    setError(undefined);
    try {
      toast(await action.run(reason.trim()), action.undo);
      onClose();
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError("internal", String(cause)));
    } finally {
      running.current = false;
      setBusy(false);
    }
  };
  return (
    <Dialog title={action.title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="consequence">{action.consequence}</div>
        {action.typed && (
          <label for={`${id}-typed`}>
            <span>
              Type <Text value={action.typed} /> to confirm
            </span>
            <input
              id={`${id}-typed`}
              autocomplete="off"
              spellcheck={false}
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        <label for={`${id}-reason`}>
          <span>Reason, for the audit{action.danger ? "" : " (optional)"}</span>
          <input
            id={`${id}-reason`}
            autocomplete="off"
            maxLength={80}
            required={Boolean(action.danger)}
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </label>
        {error && <Failed error={error} />}
        <Command line={action.command(reason.trim())} />
        <footer>
          <button type="button" onClick={onClose}>
            Keep as it is
          </button>
          <button type="submit" class={action.danger ? "danger solid" : "solid"} disabled={!ready || busy}>
            {busy ? "Working…" : action.label}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Toast {
  id: number;
  text: string;
  undo?: Action["undo"];
}

const toasts = signal<Toast[]>([]);
let nextToast = 1;
const toastFor = 12_000;

/** Says at the page's foot what happened. */
export function toast(text: string, undo?: Action["undo"]): void {
  const id = nextToast++;
  toasts.value = [...toasts.value.slice(-3), undo ? { id, text, undo } : { id, text }];
  setTimeout(() => dismiss(id), toastFor);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((t) => t.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((t) => (
        <div class="toast" key={t.id}>
          <Text value={t.text} max={300} />
          {t.undo && (
            <button type="button" onClick={() => void undo(t)}>
              {t.undo.label}
            </button>
          )}
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(t.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}

async function undo(t: Toast): Promise<void> {
  dismiss(t.id);
  try {
    toast((await t.undo?.run()) ?? "");
  } catch (cause) {
    toast(cause instanceof Error ? cause.message : String(cause));
  }
}
