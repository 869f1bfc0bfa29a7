//! `agent chat`: a person, or a script, talks with an agent that works in a sandbox.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::escapes::stands;
use crate::stage::{BINARY, Ran, Stage, run};

fn scenario(steps: &str) -> Stage {
    let text = format!("[[turn]]\nsteps = [{steps}]\n");
    Stage::with(&[(".agent-backend/scenario.toml", &text)])
}

/// Words that start a chat whose state is kept beside the workspace.
fn words<'a>(data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["agent", "chat", "scripted", "--data-dir", data], more].concat()
}

fn chat(stage: &Stage, more: &[&str], input: &str) -> Ran {
    let data = stage.outside("data");
    stage.run_with(&words(data.to_str().unwrap(), more), input.as_bytes())
}

#[test]
fn an_agent_changes_the_workspace_and_the_change_is_shown() {
    let stage = Stage::new();
    let ran = chat(&stage, &["--approve", "always"], "describe this\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(stage.text("NOTES.md").contains("describe this"));
    let out = ran.text();
    assert!(out.contains("✓") && out.contains("+++ ") && out.contains("NOTES.md"), "{out}");
    assert!(ran.err.starts_with("note: commands run "), "{}", ran.err);
}

#[test]
fn isolation_of_the_flag_is_in_force() {
    for isolation in ["bwrap", "landlock"] {
        if !stands(isolation) {
            continue;
        }
        let stage = Stage::new();
        let ran = chat(&stage, &["--isolation", isolation, "--approve", "always"], "go\n");
        assert_eq!(ran.code, 0, "{isolation}: {}", ran.err);
        let note = format!("note: commands run in a {isolation} sandbox");
        assert!(ran.err.starts_with(&note), "{}", ran.err);
        assert!(stage.path("NOTES.md").exists(), "{isolation}");
    }
}

#[test]
fn every_line_is_a_value_with_json() {
    let stage = Stage::new();
    let ran = chat(&stage, &["--json", "--approve", "always"], "one\n\ntwo\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text = ran.text();
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |kind: &str| values.iter().filter(|value| value["type"] == kind).count();
    assert_eq!(count("turn_ended"), 2, "{text}");
    assert!(count("message") > 0 && count("tool") > 0, "{text}");
    let file = values.iter().find_map(|value| value["tool"]["files"].get(0)).unwrap();
    assert!(file["path"].as_str().unwrap().ends_with("NOTES.md"), "{file}");
}

#[test]
fn a_person_is_asked_and_a_script_is_not() {
    let asks = r#"{ ask = { title = "Make it", path = "made" } }, { write = { path = "made", text = "x" } }"#;
    let answers: [(&[&str], bool); 2] = [(&["y\r"], true), (&["what\r", "n\r"], false)];
    for (answers, is_made) in answers {
        let stage = scenario(asks);
        let data = stage.outside("data");
        let mut exchange = vec![("> ", "go\r")];
        exchange.extend(answers.iter().map(|answer| ("allow it?", *answer)));
        exchange.push(("> ", ""));
        let shown = stage.answered(&words(data.to_str().unwrap(), &[]), &exchange);
        assert!(shown.contains("? Make it"), "{shown}");
        assert_eq!(stage.path("made").exists(), is_made, "{answers:?}: {shown}");
    }
    // The end of the input means no, and so does an answer that was typed before the question was there.
    for keys in ["go\r", "go\ry\r"] {
        let stage = scenario(asks);
        let data = stage.outside("data");
        let ran = stage.typed(&words(data.to_str().unwrap(), &[]), keys.as_bytes());
        assert!(ran.text().contains("? Make it") && ran.text().contains("allow it?"), "{ran:?}");
        assert!(!stage.path("made").exists(), "{keys:?}: {}", ran.text());
    }
    let stage = scenario(asks);
    let ran = chat(&stage, &[], "go\n");
    assert!(ran.err.contains("denied: there is no terminal to ask"), "{}", ran.err);
    assert!(!stage.path("made").exists());
}

/// Everything that the agent sent about a call is shown before the answer, and none of it is cut.
#[test]
fn a_question_shows_the_command_the_path_and_the_input() {
    let long = format!("rm -rf important; echo {}", "x".repeat(3000));
    let input = r#"{ sessionUpdate = "tool_call", toolCallId = "other", title = "Other", rawInput = { target = "production" } }"#;
    let cases = [
        (format!("{{ title = 'Do it', kind = 'execute', command = '{long}' }}"), long.as_str()),
        ("{ title = 'Do it', path = 'important.txt' }".to_owned(), "  important.txt"),
    ];
    for (ask, expect) in cases {
        let stage = scenario(&format!("{{ update = {input} }}, {{ ask = {ask} }}"));
        let out = chat(&stage, &[], "go\n").text();
        let question = &out[out.find("? Do it").unwrap()..];
        assert!(question.contains(expect), "{out}");
        let out = chat(&stage, &["--json"], "go\n").text();
        let values = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let question = values.into_iter().find(|value| value["type"] == "question").unwrap();
        assert!(question["detail"].as_str().unwrap().contains(expect.trim()), "{question}");
        let is_command = expect == long;
        assert_eq!(question["input"]["command"] == long.as_str(), is_command, "{question}");
    }
}

#[test]
fn what_is_always_allowed_is_asked_for_once() {
    let stage = scenario(
        r#"{ ask = { title = "Make it", path = "made" } }, { write = { path = "made", text = "{turn}" } }"#,
    );
    let data = stage.outside("data");
    let exchange = [("> ", "go\r"), ("allow it?", "a\r"), ("> ", "again\r"), ("> ", "")];
    let shown = stage.answered(&words(data.to_str().unwrap(), &[]), &exchange);
    assert_eq!(shown.matches("allow it?").count(), 1, "{shown}");
    assert_eq!(stage.text("made"), "2");
}

#[test]
fn only_answers_that_the_agent_offers_are_asked_for() {
    let asks = |options: &str| {
        scenario(&format!(
            r#"{{ ask = {{ title = "Make it", options = [{options}], denied = [{{ say = "rejected" }}] }} }},
               {{ write = {{ path = "made", text = "x" }} }}"#
        ))
    };
    let stage = asks(r#""reject_once""#);
    let data = stage.outside("data");
    let prompt = "the agent offers no option to allow it [n]";
    let exchange = [("> ", "go\r"), (prompt, "y\r"), (prompt, "n\r"), ("> ", "")];
    let shown = stage.answered(&words(data.to_str().unwrap(), &[]), &exchange);
    assert!(shown.contains("rejected") && !shown.contains("cancelled"), "{shown}");
    let stage = asks(r#""allow_once""#);
    let data = stage.outside("data");
    let exchange = [("> ", "go\r"), ("allow it? [y, n to cancel]", "n\r"), ("> ", "")];
    let shown = stage.answered(&words(data.to_str().unwrap(), &[]), &exchange);
    assert!(shown.contains("cancelled: the agent offers no option to deny it"), "{shown}");
    assert!(!shown.contains("rejected"), "{shown}");
    let stage = asks(r#""reject_once""#);
    let ran = chat(&stage, &["--approve", "always"], "go\n");
    assert!(ran.err.contains("cancelled: the agent offers no option to allow it"), "{}", ran.err);
    assert!(!stage.path("made").exists());
}

#[test]
fn output_of_commands_is_shown() {
    let lines: String = (1..=12).map(|number| format!("echo line{number}; ")).collect();
    let stage = scenario(&format!("{{ run = \"{lines}\" }}"));
    let out = chat(&stage, &[], "go\n").text();
    assert!(out.contains("\n  line1\n") && out.contains("\n  line10\n  … 2 more lines\n"), "{out}");
    let out = chat(&stage, &["--json"], "go\n").text();
    let values = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let outputs: Vec<Value> =
        values.filter_map(|value| value["tool"].get("output").cloned()).collect();
    assert_eq!(outputs.len(), 1, "{out}");
    assert!(outputs[0].as_str().unwrap().contains("line12"), "{out}");
}

/// Goose sends no kind.
#[test]
fn output_of_calls_without_a_kind_is_shown_and_that_of_reading_is_not() {
    let call = |id: &str, kind: &str, text: &str| {
        let content =
            format!("[{{ type = 'content', content = {{ type = 'text', text = '{text}' }} }}]");
        format!(
            "{{ update = {{ sessionUpdate = 'tool_call', toolCallId = '{id}', title = '{id}', \
             {kind} status = 'completed', content = {content} }} }}"
        )
    };
    let steps = [
        call("shell", "", "from the shell"),
        call("read", "kind = 'read',", "from a file"),
        call("search", "kind = 'search', rawInput = { command = 'rg x' },", "from a command"),
    ];
    let stage = scenario(&steps.join(", "));
    let out = chat(&stage, &[], "go\n").text();
    assert!(out.contains("\n  from the shell\n"), "{out}");
    assert!(out.contains("\n  from a command\n") && !out.contains("from a file"), "{out}");
}

#[test]
fn tool_calls_of_each_turn_are_shown_although_their_ids_are_the_same() {
    let turn = |title: &str, status: &str| {
        format!(
            "[[turn]]\nsteps = [{{ update = {{ sessionUpdate = \"tool_call\", toolCallId = \"1\", \
             title = \"{title}\", status = \"{status}\" }} }}]\n"
        )
    };
    let turns = [turn("First", "completed"), turn("Second", "pending"), turn("Third", "pending")];
    let stage = Stage::with(&[(".agent-backend/scenario.toml", &turns.concat())]);
    let out = chat(&stage, &[], "a\nb\nc\n").text();
    for title in ["→ First", "✓ First", "→ Second", "→ Third"] {
        assert!(out.contains(title), "{title}: {out}");
    }
}

#[test]
fn lines_that_were_typed_before_an_interrupt_are_dropped() {
    if !stands("bwrap") {
        return;
    }
    let turns = "[[turn]]\nsteps = [{ say = \"working\\n\" }, { hang = \"until_cancelled\" }]\n\
                 [[turn]]\nsteps = [{ say = \"got {prompt}\\n\" }]\n";
    let stage = Stage::with(&[(".agent-backend/scenario.toml", turns)]);
    let data = stage.outside("data");
    let exchange = [
        ("> ", "go\r"),
        ("working", "too early\r"),
        ("too early", "\u{3}"),
        ("the turn ended: cancelled\r\n\r\n> ", "later\r"),
        ("got ", ""),
    ];
    let shown = stage.answered(&words(data.to_str().unwrap(), &[]), &exchange);
    assert!(shown.contains("got later") && !shown.contains("got too early"), "{shown}");
}

#[test]
fn a_chat_goes_on_where_the_last_one_ended() {
    let stage = scenario(r#"{ say = "this is turn {turn}" }"#);
    let first = chat(&stage, &["--continue"], "");
    first.expect_error(2, "there is no earlier conversation");
    assert!(chat(&stage, &[], "a\nb\n").text().contains("this is turn 2"));
    assert!(chat(&stage, &["--continue"], "c\n").text().contains("this is turn 3"));
    assert!(chat(&stage, &[], "d\n").text().contains("this is turn 1"));
}

#[test]
fn the_end_of_the_agent_is_told() {
    let stage = scenario("{ exit = 9 }");
    let ran = chat(&stage, &[], "go\n");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error: scripted ended with exit code 9"), "{}", ran.err);
    let stage = scenario(r#"{ error = { message = "the model is away" } }"#);
    let ran = chat(&stage, &[], "go\n");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the model is away"), "{}", ran.err);
}

#[test]
fn what_cannot_be_started_is_refused_by_name() {
    let stage = Stage::new();
    let ran = stage.run(&["agent", "chat", "nobody-knows"]);
    ran.expect_error(2, "unknown agent \"nobody-knows\"");
    assert!(ran.err.contains("scripted"), "{}", ran.err);
    // The command to type carries the data directory.
    let data = stage.outside("data");
    let ran = stage.run(&["agent", "chat", "goose", "--data-dir", data.to_str().unwrap()]);
    let command = format!("`agent-backend agent install goose --data-dir {}`", data.display());
    ran.expect_error(4, &command);
    let ran = chat(&stage, &["--root", "missing"], "");
    ran.expect_error(1, "missing");
}

#[test]
fn the_home_directory_is_a_workspace_only_if_it_is_named() {
    let stage = Stage::new();
    let mut command = stage.command(BINARY);
    let data = stage.outside("data");
    command.args(words(data.to_str().unwrap(), &[])).env("HOME", stage.root());
    run(command, b"hi\n").expect_error(2, "is the home directory and cannot be the workspace");
}

#[test]
fn an_interrupt_cancels_the_turn_and_not_the_chat() {
    if !stands("bwrap") {
        return;
    }
    let stage = scenario(r#"{ say = "working\n" }, { hang = "until_cancelled" }"#);
    let data = stage.outside("data");
    let mut command = stage.command(BINARY);
    command.args(words(data.to_str().unwrap(), &[]));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        input.write_all(b"go\n").unwrap();
        let mut line = String::new();
        while line.trim() != "working" {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the chat ended");
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors.matches("the turn ended: cancelled").count(), 2, "{errors}");
}
