//! What the README says to paste, pasted.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use ab_testkit::peers::ThirdPartyPrograms;
use ab_testkit::scripted_model::{LanguageModelStep, ScriptedLanguageModel};
use rustix::process::{Pid, Signal, kill_process};

use crate::escapes::stands;
use crate::help::all_commands;
use crate::outliving::comes;
use crate::serve;
use crate::stage::{BINARY, Ran, Stage, command, run};

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The blocks of a section, in order.
fn blocks(section: &str) -> Vec<String> {
    let readme = text("README.md");
    let (_, rest) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let pieces = section.split("```").skip(1).step_by(2);
    pieces.map(|piece| piece.split_once('\n').unwrap().1.to_owned()).collect()
}

/// A shell in a directory, that finds the program by its name.
fn shell(directory: &Path, script: &str) -> Command {
    let mut command = command("sh", directory);
    let programs = Path::new(BINARY).parent().unwrap().to_str().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{programs}:{path}")).args(["-euc", script]);
    command
}

/// A daemon as a block starts it, on a port that is free here, once it serves.
fn started(stage: &Stage, block: &str, port: &str) -> Child {
    // The daemon in place of the shell, so that it can be ended.
    let block = block.replace("3001", port).replace("\nagent-", "\nexec agent-");
    let mut daemon = shell(&stage.root(), &block);
    daemon.env("HOME", stage.outside("")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(daemon.stderr.as_mut().unwrap()).read_line(&mut notice).unwrap();
    assert!(notice.contains("agent-backend serves"), "{notice}");
    daemon
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn the_daemon_and_its_shell_work_when_pasted() {
    let [_, over_http, by_ssh] = blocks("For an MCP client").try_into().unwrap();
    let (port, stage) = (free_port(), Stage::new());
    // The port that is taken when none is said.
    let over_http = over_http.replace("agent-backend daemon", "agent-backend daemon --port 3001");
    let mut daemon = started(&stage, &over_http, &port);
    // What a person is asked once, and where the answer is kept.
    let answers = format!(
        "ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile={} ",
        stage.outside("known_hosts").display()
    );
    let by_ssh = by_ssh.replace("3001", &port).replace("ssh -o", &format!("{answers} -o"));
    let ran = run(shell(&stage.root(), &by_ssh), b"echo hello > made; exit 7\n");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert_eq!(stage.text("project/made"), "hello\n");
}

/// The row of the table of features that lists the commands.
#[test]
fn the_list_of_commands_is_complete() {
    let readme = text("README.md");
    let row = readme.lines().find(|line| line.starts_with("| command line |")).unwrap();
    let listed = row.split('`').skip(1).step_by(2).filter(|item| !item.starts_with("--"));
    let mut listed: Vec<Vec<String>> = listed
        .flat_map(|item| {
            let mut words = item.split(' ').map(str::to_owned);
            let command = words.next().unwrap();
            let inner: Vec<_> = words.map(|word| vec![command.clone(), word]).collect();
            std::iter::once(vec![command]).chain(inner)
        })
        .collect();
    let mut commands = all_commands(&Stage::new(), &[]);
    commands.retain(|words| matches!(words.len(), 1 | 2));
    listed.sort();
    commands.sort();
    assert_eq!(listed, commands);
}

#[test]
fn the_remote_example_works_when_pasted() {
    let [on_the_host, from_anywhere, in_rust] = blocks("A workspace elsewhere").try_into().unwrap();
    assert!(text("crates/agent-backend/examples/remote.rs").ends_with(&in_rust), "{in_rust}");

    let (port, stage) = (free_port(), Stage::new());
    let mut daemon = started(&stage, &on_the_host, &port);

    let ran = run(shell(&stage.root(), &from_anywhere.replace("3001", &port)), b"");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.text(),
        "notes/plan.md:1:look around\n1 notes/plan.md\nbegun\ndone\n",
        "{}",
        ran.err
    );
    assert_eq!(stage.text("project/notes/plan.md"), "look around\n");
}

/// A repository, a home, and the variables of a user who pastes the commands for a coding agent.
struct User {
    stage: Stage,
    variables: Vec<(&'static str, String)>,
}

impl User {
    fn new(variables: Vec<(&'static str, String)>) -> User {
        let stage = serve::repository();
        for name in ["home", "state/agent-backend"] {
            // A data directory is the user's alone.
            let mut directories = fs::DirBuilder::new();
            directories.recursive(true).mode(0o700).create(stage.outside(name)).unwrap();
        }
        User { stage, variables }
    }

    fn shell(&self, line: &str) -> Command {
        let mut shell = shell(&self.stage.root(), line);
        shell.env("HOME", self.stage.outside("home"));
        shell.env("XDG_STATE_HOME", self.stage.outside("state"));
        for name in ["OPENAI_API_KEY", "GOOSE_PROVIDER", "GOOSE_MODEL"] {
            shell.env_remove(name);
        }
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell
    }

    fn run(&self, line: &str) -> Ran {
        run(self.shell(line), b"")
    }

    /// A server as a line starts it, on a port that is free here, once it serves.
    fn serve(&self, line: &str) -> Served {
        // The server in place of the shell, so that it can be ended.
        let line = line.replace("agent-backend serve", "exec agent-backend serve --port 0");
        let mut server = self.shell(&line);
        let mut server = server.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut served = Served(server);
        let mut notice = String::new();
        while !notice.contains("  try ") {
            assert!(said.read_line(&mut notice).unwrap() > 0, "it ended early: {notice}");
        }
        // What it goes on to say is read, so that it never has to wait for a reader.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        assert!(served.0.try_wait().unwrap().is_none(), "{notice}");
        served
    }
}

struct Served(Child);

impl Served {
    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // One that has ended has no process to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a block that are commands, without their comments.
fn commands(block: &str) -> Vec<String> {
    let lines = block.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_task_without_a_key_works_when_pasted() {
    if !stands("bwrap") {
        return;
    }
    let blocks = blocks("A task for an agent");
    let [serve, task]: [String; 2] = commands(&blocks[0]).try_into().unwrap();
    let user = User::new(Vec::new());
    let server = user.serve(&serve);
    let ran = thread::scope(|threads| {
        let task = threads.spawn(|| user.run(&task));
        // The question is answered in another terminal.
        let asked = || user.run("agent-backend approvals list").text();
        comes("the question", || asked().contains("Write NOTES.md"));
        let list = user.run("agent-backend approvals list --json").value();
        let id = list["items"][0]["id"].as_str().unwrap().to_owned();
        let approved = user.run(&format!("agent-backend approvals approve {id}"));
        assert_eq!(approved.code, 0, "{}", approved.err);
        task.join().unwrap()
    });
    assert_eq!(ran.code, 0, "{}", ran.err);
    let shown = ran.text();
    // What the README shows of it, but ids, versions and names of branches.
    for expect in [
        "\n› Describe this repository\n",
        "\n~ The task is: Describe this repository\n",
        "\n▪ [>] Write the task and a plan to NOTES.md\n",
        "\n? the agent asks: Write NOTES.md\n",
        "\n✓ approved by admin via ",
        "\n± NOTES.md +11 -0\n",
        "\n✓ delivered branch ah/describe-this-repository-",
        "\n✓ completed\n",
    ] {
        assert!(shown.contains(expect), "no {expect:?} in\n{shown}");
    }
    assert_eq!(serve::git(&user.stage.root(), &["status", "--porcelain"]), "");
    server.end();
}

#[test]
fn the_chat_without_a_key_works_when_pasted() {
    let [chat]: [String; 1] = commands(&blocks("A task for an agent")[2]).try_into().unwrap();
    let user = User::new(Vec::new());
    let ran = run(user.shell(&chat), b"Look around\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.text().contains("The task is: Look around"), "{}", ran.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_the_commands_to_a_coding_agent_work_when_pasted() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("goose") else { return };
    if !stands("bwrap") {
        return;
    }
    let command = "printf 'fixed\\n' > FIXED.md".to_owned();
    let steps =
        vec![LanguageModelStep::Run(command), LanguageModelStep::Say("It is fixed.".to_owned())];
    let model = ScriptedLanguageModel::start(steps).await;
    // Another endpoint than the vendor's, as docs/agents.md says.
    let endpoint =
        vec![("OPENAI_HOST", model.url()), ("OPENAI_BASE_PATH", "v1/chat/completions".to_owned())];
    let checked = tokio::task::spawn_blocking(move || {
        let user = User::new(endpoint);
        let installed = user.stage.outside("state/agent-backend/agents");
        fs::create_dir_all(peers.agents_dir()).unwrap();
        symlink(peers.agents_dir(), installed).unwrap();
        let blocks = blocks("A task for an agent");
        let [install, serve, task]: [String; 3] = commands(&blocks[3]).try_into().unwrap();
        let ran = user.run(&install);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.text().starts_with("goose 1."), "{}", ran.text());
        let filled = serve.replace("OPENAI_API_KEY=…", "OPENAI_API_KEY=sk-of-this-test");
        let filled = filled.replace("GOOSE_MODEL=…", "GOOSE_MODEL=scripted");
        assert!(!filled.contains('…'), "{filled}");
        let server = user.serve(&filled);
        let ran = user.run(&task);
        let shown = ran.text();
        assert_eq!(ran.code, 0, "{shown}\n{}", ran.err);
        let branch = shown.lines().find_map(|line| line.strip_prefix("✓ delivered branch "));
        let branch = branch.unwrap_or_else(|| panic!("no branch in\n{shown}"));
        let branch = branch.split(' ').next().unwrap();
        let made = serve::git(&user.stage.root(), &["show", &format!("{branch}:FIXED.md")]);
        assert_eq!(made, "fixed\n");
        server.end();
    });
    checked.await.unwrap();
    assert!(!model.requests().is_empty(), "the model was never asked");
}
