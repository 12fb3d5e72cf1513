// The frames of docs/node-protocol.md.

import type { ErrorBody, Job, JobError } from "../frames.js";

export interface Service {
  name: string;
  version?: string;
}

export interface Profile {
  max_concurrency: number;
  installed_services: Service[];
  capabilities: { asr_languages?: string[]; tts_languages?: string[]; semantic_languages?: string[] };
  pool_ids?: string[];
  labels?: Record<string, string>;
  features_supported?: Record<string, boolean>;
}

export interface Delivery {
  attempt: string;
  tenant: string;
  job?: Job;
}

export interface Report {
  attempt: string;
  seq: number;
  value: unknown;
}

/** How an attempt ended. */
export interface Completion {
  attempt: string;
  state: "succeeded" | "failed" | "cancelled";
  error?: JobError;
  next?: "retry" | "hand_back";
  retry_delay_ms?: number;
}

export type Request =
  | { type: "hello"; node: string; epoch: string; connection: number; version: string; check?: boolean }
  | { type: "register"; profile: Profile; replaces?: string }
  | { type: "heartbeat"; status: "online" | "draining"; running: string[]; now?: true }
  | ({ type: "complete" } & Completion)
  | { type: "progress"; reports: Report[] }
  | { type: "spec"; job_id: string }
  | { type: "deregister" };

export interface Welcome {
  protocol: string;
  session: string;
  replica: string;
  version: string;
  heartbeat_limit_ms: number;
  max_frame_bytes: number;
  inline_bytes: number;
  max_requests: number;
  max_slots: number;
  max_attempts: number;
  replaces?: string;
  in_use?: boolean;
}

/** A message of a gateway; `type` tells which fields count. */
export interface Answer extends Partial<Welcome>, ErrorBody {
  type: string;
  id?: number;
  lost?: string[];
  start?: string[];
  stop?: string[];
  cancel?: string[];
  outcome?: "completed" | "completed_before" | "stale";
  outcomes?: ("taken" | "cancel" | "stale")[];
  begun?: Delivery[];
  jobs?: Delivery[];
  attempts?: string[];
  tenant?: string;
  job?: Job;
  large?: boolean;
  reason?: string;
}
