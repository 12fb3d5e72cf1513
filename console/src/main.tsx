import { render } from "preact";
import { startIdle } from "./lib/idle.ts";
import { startKeys } from "./lib/keys.ts";
import { startLive } from "./lib/live.ts";
import { startPrefs } from "./lib/prefs.ts";
import { href, startRouting } from "./lib/route.ts";
import { readSession } from "./lib/session.ts";
import { startClock } from "./lib/time.ts";
import { Shell } from "./shell.tsx";
import { views } from "./views/index.ts";

startPrefs();
startIdle();
// Where no replica answers, the next connection brings the time.
startClock(() => void readSession().catch(() => {}));
startRouting();
startKeys(Object.fromEntries(views.map((v) => [v.key, href([v.path].filter(Boolean))])));
const app = document.getElementById("app");
if (app) render(<Shell />, app);
startLive();
