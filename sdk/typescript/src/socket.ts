/** Certificates in PEM, for Node. Browsers have their own. */
export interface TlsOptions {
  /** The certificates that may sign the replicas'; the system's if absent. */
  ca?: string;
  /** The program's own certificate, for replicas that ask for one. */
  cert?: string;
  key?: string;
  /** The name in the replicas' certificates; the address' host if absent. */
  servername?: string;
}

export interface DialOptions {
  url: URL;
  protocol: string;
  token?: string | undefined;
  userAgent: string;
  tls?: TlsOptions | undefined;
  maxMessageBytes: number;
  /** Gives the handshake up. */
  signal: AbortSignal;
  /** Called once, before any message. */
  onOpen(socket: Socket): void;
  onMessage(text: string): void;
  /** Called once, after the handshake; 1006 if the connection broke. */
  onClose(code: number, reason: string): void;
}

/** An open WebSocket. */
export interface Socket {
  /** Counts what has come, to see whether the other side lives. */
  readonly received: number;
  /** The bytes that wait to be sent. */
  readonly bufferedAmount: number;
  send(text: string): void;
  /** Resolves when fewer bytes than that wait to be sent, or the socket has closed. */
  drained(below: number): Promise<void>;
  /** Sends a ping; absent in browsers. */
  ping?(): void;
  /** Says goodbye, and cuts the connection if no answer comes. onClose follows. */
  close(): void;
  /** Ends the connection at once. onClose follows. */
  cut(): void;
}

/** A handshake that failed. Browsers do not tell why. */
export class Refused extends Error {
  constructor(
    message: string,
    /** The HTTP status; 0 if there was no answer. */
    readonly status: number,
    readonly body = "",
  ) {
    super(message);
  }
}

export const goodbyeMs = 5_000;

export const CLOSE_NORMAL = 1000;
export const CLOSE_BROKEN = 1006;
