// What the scripts of this folder share: the published client, and how it reaches the daemon.
//
//   node SCRIPT.mjs URL TOKEN ROOT [SSH]
//
// SSH is the address of the port for plain SSH; where it is given, files and commands go over it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

export const require = createRequire(`${process.env.AB_PEERS}/npm/`);
export const published = require("agent-backend");

const [url, token, rootDir, ssh] = process.argv.slice(2);
export const root = rootDir;
const { hostname, port } = new URL(url);
const [sshHost, sshPort] = ssh?.split(":") ?? [];

// Nothing that the tests ask for takes this long: a call that hangs is a failure with a name.
const operationTimeoutMs = 20_000;

export const config = ssh
  ? {
      host: sshHost,
      port: Number(sshPort),
      transport: "ssh",
      sshAuth: { type: "password", credentials: { username: "agent", password: "secret" } },
      rootDir,
      operationTimeoutMs,
    }
  : { host: hostname, port: Number(port), authToken: token, rootDir, operationTimeoutMs };

export const connect = (more = {}) =>
  new published.RemoteFilesystemBackend({ ...config, ...more });

// A call that must fail, with a code of the client's, and words of the daemon's.
export async function fails(call, code, says, what) {
  const told = await call.then(
    (value) => assert.fail(`${what} answered ${JSON.stringify(value)}`),
    (error) => error,
  );
  assert.equal(told.code, code, `${what}: ${told.stack}`);
  assert.match(told.message, says, what);
}
