import { useId, useRef } from "preact/hooks";
import { compareLines, type Fault } from "../lib/document.ts";
import { count, plural } from "../lib/text.ts";
import { Scroll, Text } from "./small.tsx";

/** A text with line numbers. Faults are marked at their lines and listed below, each with a way to its line. */
export function Editor({
  label,
  text,
  onText,
  faults = [],
  rows = 20,
}: {
  label: string;
  text: string;
  /** Called with each change; absent for a text that can only be read. */
  onText?: ((text: string) => void) | undefined;
  faults?: Fault[];
  rows?: number;
}) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const numbers = useRef<HTMLPreElement>(null);
  const bad = new Set(faults.map((f) => f.line));
  const goTo = (line: number) => {
    const element = area.current;
    if (!element) return;
    const from = text.split("\n", line - 1).reduce((sum, l) => sum + l.length + 1, 0);
    element.focus();
    element.setSelectionRange(from, from + (text.slice(from).split("\n", 1)[0] ?? "").length);
    element.scrollTop = Math.max(0, line - rows / 2) * lineHeight;
  };
  return (
    <div class="editor">
      <label for={id}>{label}</label>
      <div class="text">
        <pre ref={numbers} aria-hidden="true">
          {text.split("\n").map((_, i) => (
            <span class={bad.has(i + 1) ? "bad" : undefined}>{`${i + 1}\n`}</span>
          ))}
        </pre>
        <textarea
          id={id}
          ref={area}
          rows={rows}
          value={text}
          readOnly={!onText}
          spellcheck={false}
          autocomplete="off"
          wrap="off"
          dir="ltr"
          aria-invalid={faults.length > 0}
          aria-describedby={faults.length > 0 ? `${id}-faults` : undefined}
          onInput={(event) => onText?.(event.currentTarget.value)}
          onScroll={(event) => {
            if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      {faults.length > 0 && (
        <div class="faults" id={`${id}-faults`} role="alert">
          <ul>
            {faults.map((f) => (
              <li key={`${f.line} ${f.message}`}>
                {f.line > 0 && (
                  <button type="button" onClick={() => goTo(f.line)}>
                    Line {count(f.line)}
                  </button>
                )}{" "}
                <Text value={f.message} max={600} />
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}

/** In CSS pixels, as in the style sheet. */
const lineHeight = 18;

/** So many lines that did not change are shown around those that did. */
const around = 3;

/** What changes from one text to the other: the changed lines with those around them. */
export function Difference({ label, before, after }: { label: string; before: string; after: string }) {
  const all = compareLines(before, after);
  const near = all.map((_, i) => all.slice(Math.max(0, i - around), i + around + 1).some((l) => l.kind !== "same"));
  if (!near.includes(true)) return <p class="faint">The texts are equal.</p>;
  const gone = all.filter((l) => l.kind === "gone").length;
  const added = all.filter((l) => l.kind === "new").length;
  return (
    <>
      <p class="faint">
        {plural(added, "new line")}, {plural(gone, "line")} less
      </p>
      <Scroll label={label} short>
        <pre class="difference" dir="ltr">
          {all.map((l, i) =>
            near[i] ? (
              <span class={l.kind}>{`${{ same: " ", gone: "−", new: "+" }[l.kind]} ${l.text}\n`}</span>
            ) : (
              near[i - 1] && <span class="skip">{"⋯\n"}</span>
            ),
          )}
        </pre>
      </Scroll>
    </>
  );
}
