import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, signIn } from "./lib/api.ts";
import { reconnect, stale } from "./lib/live.ts";
import { readSession, session } from "./lib/session.ts";
import { Dialog } from "./parts/dialog.tsx";
import { Failed } from "./parts/small.tsx";

/** Asks for a token. With again it lies over the view, which keeps all that was typed. */
export function SignIn({ again }: { again?: boolean }) {
  if (!again)
    return (
      <section class="signin" aria-labelledby="signin">
        <h1 id="signin">Sign in to freeslot</h1>
        <Form />
      </section>
    );
  return (
    <Dialog title="Your session has ended">
      <p>Sign in again to go on. What you typed is still there.</p>
      <Form again />
    </Dialog>
  );
}

function Form({ again }: { again?: boolean }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  // Whoever signed in at the provider, in another tab, comes back to this one.
  useEffect(() => {
    if (!again) return;
    const look = () => void readSession().then((s) => s.signed_in && reconnect(), stale);
    addEventListener("focus", look);
    return () => removeEventListener("focus", look);
  }, [again]);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || token === "") return;
    setBusy(true);
    try {
      await signIn(token.trim());
      setToken("");
      reconnect();
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError("internal", String(cause)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      {/* A password manager files the token under a name. */}
      <input
        class="hidden"
        name="username"
        autocomplete="username"
        value="freeslot"
        readOnly
        tabIndex={-1}
        aria-hidden="true"
      />
      <label>
        <span>Token</span>
        <input
          ref={field}
          type="password"
          name="token"
          autocomplete="current-password"
          required
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
      </label>
      {error && <Failed error={error} />}
      <footer>
        {session.value?.oidc && (
          <a
            class="button"
            href={`oidc/start?to=${encodeURIComponent(location.hash || "#/")}`}
            // This tab keeps what was typed.
            target={again ? "_blank" : undefined}
            rel="noopener"
          >
            Single sign-on{again ? ", in another tab" : ""}
          </a>
        )}
        <button type="submit" class="solid" disabled={busy || token === ""}>
          {busy ? "Working…" : "Sign in"}
        </button>
      </footer>
    </form>
  );
}
