import { useEffect, useId, useState } from "preact/hooks";

/** One field of a filter. With options it is a choice, else text. */
export interface Field {
  name: string;
  label: string;
  options?: { value: string; label: string }[];
  placeholder?: string;
}

/** A filter as a row of fields. Text takes effect on Enter or when the field is left. */
export function Filter({
  label,
  fields,
  values,
  onChange,
}: {
  label: string;
  fields: Field[];
  values: Record<string, string>;
  onChange: (change: Record<string, string | undefined>) => void;
}) {
  const any = fields.some((f) => values[f.name]);
  return (
    <search aria-label={label}>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        {fields.map((f) => (
          <FilterField key={f.name} field={f} value={values[f.name] ?? ""} onChange={onChange} />
        ))}
        {any && (
          <button
            type="button"
            class="plain"
            onClick={() => onChange(Object.fromEntries(fields.map((f) => [f.name, undefined])))}
          >
            Clear
          </button>
        )}
      </form>
    </search>
  );
}

function FilterField({
  field,
  value,
  onChange,
}: {
  field: Field;
  value: string;
  onChange: (change: Record<string, string | undefined>) => void;
}) {
  const id = useId();
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const take = (text: string) => text.trim() !== value && onChange({ [field.name]: text.trim() || undefined });
  return (
    <label for={id} class={value ? "set" : undefined}>
      <span>{field.label}</span>
      {field.options ? (
        <select id={id} value={value} onChange={(event) => take(event.currentTarget.value)}>
          {field.options.map((o) => (
            <option key={o.value} value={o.value}>
              {o.label}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          value={typed}
          placeholder={field.placeholder}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onBlur={() => take(typed)}
          onKeyDown={(event) => event.key === "Enter" && take(typed)}
        />
      )}
    </label>
  );
}
