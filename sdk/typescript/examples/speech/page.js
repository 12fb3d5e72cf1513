// Submits text to the service "tts" and plays the speech that comes back.

import { Client } from "./browser.js";

const [form, text, language, state, audio] = ["form", "#text", "#language", "#state", "#speech"].map((selector) =>
  document.querySelector(selector),
);
const { urls, token } = await (await fetch("config.json")).json();
const client = await Client.connect(urls, { token });
let speaking = new AbortController();

async function speak(signal) {
  const handle = await client.submit(
    {
      service: "tts",
      payload: { text: text.value },
      requirement: { target_language: language.value },
      timeout_ms: 60_000,
    },
    { signal },
  );
  // Whoever speaks again does not need this speech any more.
  signal.addEventListener("abort", () => client.cancel(handle.id).catch(() => {}), { once: true });
  state.textContent = handle.position > 0 ? `waiting at place ${handle.position}` : "speaking";
  const { wav, seconds } = await handle.result({ signal });
  audio.src = `data:audio/wav;base64,${wav}`;
  audio.hidden = false;
  state.textContent = `${seconds.toFixed(1)} s of speech from ${handle.assignment?.node}`;
  await audio.play();
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  speaking.abort();
  speaking = new AbortController();
  const { signal } = speaking;
  try {
    await speak(signal);
  } catch (err) {
    if (!signal.aborted) state.textContent = `${err.code ?? err.name}: ${err.message}`;
  }
});

state.textContent = "connected";
