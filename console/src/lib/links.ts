/** What the address of a link may name in braces, beside the trace. */
interface Linked {
  job_id: string;
  node: string;
  tenant: string;
  service: string;
  attempt: number;
  trace?: string | undefined;
}

/** The links of a job. A link that needs what the job does not have is left out. */
export function linksOf(
  links: { name: string; url: string }[] | undefined,
  job: Linked,
): { name: string; url: string }[] {
  const values: Record<string, string | number | undefined> = { ...job, id: job.job_id };
  return (links ?? []).flatMap(({ name, url }) => {
    let whole = /^https?:\/\//.test(url);
    const filled = url.replace(/\{(\w+)\}/g, (_, part: string) => {
      const value = values[part];
      whole &&= Boolean(value);
      return encodeURIComponent(value ?? "");
    });
    return whole ? [{ name, url: filled }] : [];
  });
}
