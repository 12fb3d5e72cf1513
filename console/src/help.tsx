import { builds, session } from "./lib/session.ts";
import { Dialog } from "./parts/dialog.tsx";
import { Command, Text } from "./parts/small.tsx";
import { views } from "./views/index.ts";

const keys: [string, string][] = [
  ["/", "Search: a job's id, a view, jobs of a service, tenant or node"],
  ["j  k", "Next and former row"],
  ["Enter", "Open the row"],
  ["Esc", "Close the dialog, or go back to the list"],
  ["← →", "Move the cursor of a chart that has the focus"],
  ["?", "This help"],
];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys and hints" onClose={onClose}>
      <table class="keys">
        <tbody>
          {views.map((v) => (
            <Row key={v.key} keys={`g ${v.key}`} text={v.name} />
          ))}
          {keys.map(([k, text]) => (
            <Row key={k} keys={k} text={text} />
          ))}
        </tbody>
      </table>
      <p>
        Ages go by the clock of Redis, whatever this machine's clock says. Every view and dialog shows the schedctl line
        that does the same:
      </p>
      <Command line="schedctl status" />
      <p class="faint">
        Release <Text value={builds.value.now || session.value?.build || "unknown"} />
      </p>
    </Dialog>
  );
}

function Row({ keys, text }: { keys: string; text: string }) {
  return (
    <tr>
      <th scope="row">
        {keys.split(/\s+/).map((k) => (
          <kbd key={k}>{k}</kbd>
        ))}
      </th>
      <td>{text}</td>
    </tr>
  );
}
