// One WebSocket session of freeslot.v1, from the protocol's description alone: this file must never share
// code with the product.
import WebSocket from 'ws';

const OPEN_LIMIT_MS = 10_000;

export class Session {
  // handlers: { onMessage(message, session), onClose(code, reason, session) }
  constructor(url, { batchFrames, onMessage, onClose }) {
    this.url = url;
    this.frames = 0;
    this.arrays = 0;
    this.welcome = null;
    this.socket = new WebSocket(`${url}/v1/ws${batchFrames ? '?frames=batch' : ''}`, 'freeslot.v1', {
      handshakeTimeout: OPEN_LIMIT_MS,
      perMessageDeflate: false,
    });
    this.ready = new Promise((resolve, reject) => {
      this.socket.once('error', reject);
      this.socket.once('close', (code, reason) => reject(new Error(`closed with ${code} ${reason}`)));
      this.resolveReady = resolve;
    });
    this.ready.catch(() => {});
    this.socket.on('message', (data, isBinary) => {
      if (isBinary) throw new Error('a binary frame');
      this.frames++;
      const frame = JSON.parse(data.toString());
      if (Array.isArray(frame)) this.arrays++;
      if (Array.isArray(frame) && !batchFrames) throw new Error('an array although ?frames=batch was not asked for');
      for (const message of Array.isArray(frame) ? frame : [frame]) {
        if (!this.welcome) {
          if (message.type !== 'welcome') throw new Error(`the first message is ${message.type}`);
          if (message.protocol !== 'freeslot.v1') throw new Error(`protocol ${message.protocol}`);
          this.welcome = message;
          this.resolveReady();
          continue;
        }
        onMessage(message, this);
      }
    });
    this.socket.on('close', (code, reason) => onClose?.(code, reason.toString(), this));
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  close() {
    this.socket.close(1000);
  }
}
