import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "./api.ts";
import { type TopicState, useTopic } from "./live.ts";
import { now } from "./time.ts";

/** What is known of something that is read once and then followed. */
export interface Followed<T> {
  data: T | undefined;
  /** When data was true, by Redis' clock; 0 without data. */
  at: number;
  /** Why it is not known now. Data may be there all the same, from before. */
  error: { code: string; message: string } | undefined;
  again: () => void;
}

/** An answer, and what the topic had said last when it came. */
interface Answer<T> {
  name: string;
  data?: T;
  at: number;
  good: number;
  error?: ApiError | undefined;
}

/** Reads by the API at once, then follows a topic with the same data. An empty name follows none. */
export function useFollow<T>(topicName: string, read: (signal: AbortSignal) => Promise<T>): Followed<T> {
  const live = useTopic<T>(topicName);
  const topic: TopicState<T> = live.value;
  const state = useSignal<Answer<T>>(none(topicName));
  const asked = useSignal(0);
  const reader = useRef(read);
  reader.current = read;
  useEffect(() => {
    const stop = new AbortController();
    state.value = state.peek().name === topicName ? { ...state.peek(), error: undefined } : none(topicName);
    reader.current(stop.signal).then(
      (data) => {
        if (!stop.signal.aborted) state.value = { name: topicName, data, at: now(), good: live.peek().good };
      },
      (cause) => {
        if (stop.signal.aborted) return;
        const error = cause instanceof ApiError ? cause : new ApiError("internal", String(cause));
        state.value = { ...state.peek(), error };
      },
    );
    return () => stop.abort();
  }, [topicName, asked.value]);
  const answer = state.value.name === topicName ? state.value : none<T>(topicName);
  // After an action the answer is newer than the topic, until that speaks again.
  const newer = topic.data === undefined || (answer.data !== undefined && answer.good === topic.good);
  const data = newer ? answer.data : topic.data;
  return {
    data,
    at: newer ? answer.at : topic.good,
    error: topic.error ?? (data === undefined ? answer.error : undefined),
    again: () => {
      asked.value++;
    },
  };
}

function none<T>(name: string): Answer<T> {
  return { name, at: 0, good: 0 };
}
