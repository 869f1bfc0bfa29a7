//! The list of files that may perform an act of `acts`, each with its reason.

use super::acts::Act;

/// A file or folder that may perform an act.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// A file, or a folder that ends with a slash, from the root of the repository.
    pub(crate) place: &'static str,
    pub(crate) act: Act,
    pub(crate) why: &'static str,
}

impl Allowed {
    /// Whether this entry permits `act` in the file at `path`.
    pub(crate) fn permits(&self, act: Act, path: &str) -> bool {
        let here = if self.place.ends_with('/') {
            path.starts_with(self.place)
        } else {
            path == self.place
        };
        act == self.act && here
    }
}

const fn allow(act: Act, place: &'static str, why: &'static str) -> Allowed {
    Allowed { place, act, why }
}

// Each entry is on one line, so that a new entry is easy to see in a review.
#[rustfmt::skip]
pub(crate) const ALLOWED: &[Allowed] = &[
    allow(Act::OpenFiles, "xtask/", "tasks and tidy tests are no part of the product"),
    allow(Act::OpenFiles, "crates/ab-testkit/", "fixtures of tests; never a normal dependency"),
    allow(Act::OpenFiles, "crates/ab-host/", "the crate that opens workspace files"),
    allow(Act::OpenFiles, "crates/ab-remote/src/client/known_hosts.rs", "the known_hosts file of the user"),
    allow(Act::OpenFiles, "crates/ab-remote/src/host_key.rs", "the host key of the SSH server"),
    allow(Act::OpenFiles, "crates/ab-acp/src/scripted_agent/", "the scripted agent is the program inside the sandbox"),
    allow(Act::OpenFiles, "crates/ab-acp/src/gateway/sandbox.rs", "the directories of agent servers in the data directory"),
    allow(Act::OpenFiles, "crates/ab-acp/src/gateway/source.rs", "the directory of agents' programs that the operator names"),
    allow(Act::OpenFiles, "crates/ab-acp/src/gateway/process.rs", "whether the program of an agent exists, for the error when it cannot start"),
    allow(Act::OpenFiles, "crates/ab-acp/src/launch.rs", "whether a path of the operator is a program, which its sandbox shows"),
    allow(Act::OpenFiles, "crates/ab-acp/src/install.rs", "installed agents in the data directory"),
    allow(Act::OpenFiles, "crates/ab-acp/src/agent_readiness.rs", "whether programs and login files of an agent exist"),
    allow(Act::OpenFiles, "crates/ab-snapshot/src/area.rs", "the directory of workspaces in the data directory"),
    allow(Act::OpenFiles, "crates/ab-spaces/src/area.rs", "the directories of spaces in the data directory"),
    allow(Act::OpenFiles, "crates/ab-store/src/data_dir.rs", "makes and locks the data directory"),
    allow(Act::OpenFiles, "crates/ab-store/src/reserve.rs", "the file that keeps room in the data directory"),
    allow(Act::OpenFiles, "crates/ab-store/src/uploads/files.rs", "the files of uploads in the data directory"),
    allow(Act::OpenFiles, "crates/ab-executor/src/local/program.rs", "the path of an agent's program, which its sandbox shows"),
    allow(Act::OpenFiles, "crates/ab-acp/src/login_files.rs", "the operator's login files of an agent"),
    allow(Act::OpenFiles, "crates/ab-executor/src/local/endpoint_socket.rs", "the directory of a session's socket, beside its workspace"),
    allow(Act::OpenFiles, "crates/ab-executor/src/local/conversation.rs", "the id of a conversation, beside the workspace in the data directory"),
    allow(Act::OpenFiles, "crates/agent-backend/src/journal/json_lines.rs", "the journal file that the caller names"),
    allow(Act::OpenFiles, "crates/agent-backend/src/remote.rs", "the private key file that the caller names"),
    allow(Act::OpenFiles, "crates/agent-backend/src/mcp/shim.rs", "a private directory for the socket of a shim"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/chat.rs", "the path of the workspace that the user names"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/chat/place.rs", "the home of a chat's agent, in the data directory"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/daemon/defaults.rs", "memory and control groups of the host, from /proc and /sys"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/daemon/served_root.rs", "the path of the directory that the operator serves"),
    allow(Act::OpenFiles, "crates/ab-cli/src/config/", "the configuration file, and the programs that it names"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/daemon/footprint.rs", "the memory map of this process, from /proc"),
    allow(Act::OpenFiles, "crates/ab-cli/src/backup/", "the data directory, and its copies that the operator names"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/agent.rs", "the script of the scripted agent in the current directory"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/input.rs", "files that the user names as input"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/exec/input.rs", "the kind of standard input"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/exec/live.rs", "whether both outputs are one file"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/fs/transfer.rs", "the file that the user names to copy from or to"),
    allow(Act::OpenFiles, "crates/ab-cli/src/jobs/files.rs", "records and output of background commands in the state directory"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/mcp.rs", "the directory of the socket that the shim connects to"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/server.rs", "the directory that the operator serves, and homes of agents in the data directory"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/task.rs", "the path of the repository that the user names"),
    allow(Act::OpenFiles, "crates/ab-cli/src/commands/task/", "files and directories that the user names to send"),
    allow(Act::OpenFiles, "crates/ab-cli/src/data_dir.rs", "the token of the server in the data directory"),
    allow(Act::OpenFiles, "crates/ab-cli/src/remote.rs", "whether the socket of the user's SSH agent exists"),
    allow(Act::OpenFiles, "crates/ab-cli/src/secrets.rs", "files with secrets that the user names"),
    allow(Act::OpenFiles, "crates/ab-cli/src/stdio.rs", "the kind of the standard streams"),
    allow(Act::OpenFiles, "crates/ab-cli/src/toolchains.rs", "directories of toolchains that commands see"),
    allow(Act::OpenFiles, "crates/ab-cli/src/git_identity.rs", "the name in git's configuration of the user"),
    allow(Act::OpenFiles, "crates/ab-cli/src/workspace.rs", "the directory that the user names as the workspace"),

    allow(Act::Spawn, "xtask/", "tasks run cargo, git and other tools"),
    allow(Act::Spawn, "crates/ab-testkit/", "tests run real peers"),
    allow(Act::Spawn, "crates/ab-host/src/child_program.rs", "starts a program of ours and ends it when dropped"),
    allow(Act::Spawn, "crates/ab-host/src/host_features/program.rs", "asks a program of the host for its version, within a deadline"),
    allow(Act::Spawn, "crates/ab-host/src/process/child.rs", "the one place that starts commands"),
    allow(Act::Spawn, "crates/ab-cli/src/commands/session/ide.rs", "starts the IDE or program that the user names"),
    allow(Act::Spawn, "crates/ab-acp/src/install.rs", "runs npm, and asks Node.js for its version"),
    allow(Act::Spawn, "crates/ab-acp/src/scripted_agent/workspace.rs", "the scripted agent is the program inside the sandbox"),

    allow(Act::ReadEnvironment, "xtask/", "tasks take arguments and variables of the shell"),
    allow(Act::ReadEnvironment, "crates/ab-testkit/", "tests are tuned by variables"),
    allow(Act::ReadEnvironment, "crates/ab-local/src/builder.rs", "the path of our own executable, which agents see as a read-only file"),
    allow(Act::ReadEnvironment, "crates/ab-cli/src/", "the binary: variables and arguments become configuration here"),

    allow(Act::HoldSql, "crates/ab-store/", "the only crate with SQL"),

    allow(Act::MakeUnboundedChannel, "xtask/", "a task reads the output of a tool; the tool bounds it"),
    allow(Act::MakeUnboundedChannel, "crates/ab-host/src/process/spawner.rs", "each order holds a slot of the process table, whose number is bounded"),
    allow(Act::MakeUnboundedChannel, "crates/ab-remote/src/client/keeper.rs", "one message per caller that waits"),
    allow(Act::MakeUnboundedChannel, "crates/ab-remote/src/client/session.rs", "one message per dropped handle, and handles are bounded; a destructor cannot wait"),
    allow(Act::MakeUnboundedChannel, "crates/ab-remote/src/client/process.rs", "the window of the channel bounds the bytes"),
    allow(Act::MakeUnboundedChannel, "crates/ab-remote/src/client/plain/command/carry.rs", "the window of the channel bounds the bytes"),

    allow(Act::StartTask, "xtask/", "a task reads the output of a tool on a thread that it joins"),
    allow(Act::StartTask, "crates/ab-testkit/", "a crowd of callers that the test awaits"),
    allow(Act::StartTask, "crates/ab-host/src/blocking.rs", "bounded threads for files that live as long as the process"),
    allow(Act::StartTask, "crates/ab-host/src/exec.rs", "one task per process; the process table waits for it when the driver closes"),
    allow(Act::StartTask, "crates/ab-host/src/host_features.rs", "one thread per probe, waited for until the deadline"),
    allow(Act::StartTask, "crates/ab-host/src/host_features/program.rs", "waits for a child, which is killed at the deadline"),
    allow(Act::StartTask, "crates/ab-host/src/process/child.rs", "a thread that is joined in the same function"),
    allow(Act::StartTask, "crates/ab-host/src/process/spawner.rs", "threads that start children and live as long as the process"),
    allow(Act::StartTask, "crates/ab-host/src/process/table.rs", "follows one process; ends with its reader or its process"),
    allow(Act::StartTask, "crates/ab-local/src/launcher.rs", "carries the streams of one program; its handle aborts it"),
    allow(Act::StartTask, "crates/ab-policy/src/guard.rs", "judges a long command on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-remote/src/client/dial/client.rs", "reads known_hosts on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-remote/src/client/dial/tls.rs", "reads the certificates of the system on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-remote/src/client/keeper.rs", "keeps one connection; ends when its handle is dropped"),
    allow(Act::StartTask, "crates/ab-remote/src/client/session.rs", "sends the last requests of dropped handles; ends with the session"),
    allow(Act::StartTask, "crates/ab-remote/src/lanes.rs", "threads that `Lanes::end` waits for"),
    allow(Act::StartTask, "crates/ab-mcp/src/lines.rs", "one refusal at a time, awaited before the next message"),
    allow(Act::StartTask, "crates/ab-mcp/src/outgoing.rs", "encodes large answers on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-mcp/src/http/disconnect_watcher.rs", "watches one answer; its tracker owns it"),
    allow(Act::StartTask, "crates/ab-acp/src/scripted_agent/http.rs", "carries MCP requests; aborted when its client is dropped"),
    allow(Act::StartTask, "crates/ab-store/src/uploads/writing.rs", "writes and reads files on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-store/src/store.rs", "the one writer; `Store::close` joins it"),
    allow(Act::StartTask, "crates/ab-executor/src/local/endpoint_socket.rs", "answers one session's socket; aborted with the session"),
    allow(Act::StartTask, "crates/ab-executor/src/local/launch.rs", "pumps the events of one agent; aborted when its handle is dropped"),
    allow(Act::StartTask, "crates/ab-server/src/port.rs", "the accept loop; `Running::close` joins it"),
    allow(Act::StartTask, "crates/ab-server/src/routes/daemon/ssh.rs", "a WebSocket, tracked by the tracker of the daemon or of the sessions"),
    allow(Act::StartTask, "crates/agent-backend/src/mcp/shim.rs", "serves one shim; the server handle aborts it"),
    allow(Act::StartTask, "crates/agent-backend/src/agent/sandbox/daemon.rs", "reads the log of a sandbox's daemon; aborted with it"),
    allow(Act::StartTask, "crates/agent-backend/src/mcp/elsewhere.rs", "carries MCP requests; the server handle aborts it"),
    allow(Act::StartTask, "crates/agent-backend/src/pool/tasks.rs", "the tasks of a pool, which it ends and joins"),
    allow(Act::StartTask, "crates/ab-cli/src/approver.rs", "reads one line from the terminal, and awaits it"),
    allow(Act::StartTask, "crates/ab-cli/src/commands/daemon/ssh.rs", "the SSH listener; `Serving` ends it"),
    allow(Act::StartTask, "crates/ab-cli/src/commands/doctor.rs", "probes the host on another thread, and awaits it"),
    allow(Act::StartTask, "crates/ab-cli/src/commands/exec/live.rs", "reads standard input; a blocked read ends only with the process"),
    allow(Act::StartTask, "crates/ab-cli/src/jobs/follow.rs", "reads the files of one job; ends with it, or when its process is dropped"),
    allow(Act::StartTask, "crates/ab-cli/src/commands/input.rs", "reads standard input; a blocked read ends only with the process"),
    allow(Act::StartTask, "crates/ab-cli/src/keyboard.rs", "reads the keyboard; a blocked read ends only with the process"),
    allow(Act::StartTask, "crates/ab-cli/src/traces.rs", "sends traces; the exporter joins it"),
    allow(Act::StartTask, "crates/ab-cli/src/process.rs", "the command itself, joined or ended with the runtime"),
];
