// The frames of docs/node-protocol.md.

import type { ErrorBody } from "../frames.js";
import type {
  AgentMessage,
  BeatMessage,
  CancelMessage,
  CompletedMessage,
  CompleteMessage,
  GoawayMessage,
  JobsMessage,
  Node,
  ProgressedMessage,
  RegisteredMessage,
  SpecAnswerMessage,
  WelcomeMessage,
} from "./schema.js";

export type { Delivery, Report } from "./schema.js";

type WithoutId<T> = T extends unknown ? Omit<T, "id"> : never;

/** A message of an agent; the connection adds the id. */
export type Request = WithoutId<AgentMessage>;

/** The name of the node is the session's. */
export type Profile = Omit<Node, "node_id">;

/** How an attempt ended. The result is added as JSON. */
export type Completion = Omit<CompleteMessage, "type" | "id" | "result">;

export type Welcome = WelcomeMessage;

type Fields<T> = Partial<Omit<T, "type" | "id">>;

/** A message of a gateway; `type` tells which fields count. */
export type Answer = { type: string; id?: number } & Fields<WelcomeMessage> &
  Fields<RegisteredMessage> &
  Fields<BeatMessage> &
  Fields<CompletedMessage> &
  Fields<ProgressedMessage> &
  Fields<SpecAnswerMessage> &
  Fields<JobsMessage> &
  Fields<CancelMessage> &
  Fields<GoawayMessage> &
  ErrorBody;
