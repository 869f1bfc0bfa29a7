//! Two sessions on one repository at once, one of them hostile: neither sees nor changes the other's tree, home or
//! cache, and nothing of the server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::fixture::{Fixture, git};
use crate::escapes::stands;
use crate::outliving::comes;
use crate::stage::BINARY;

/// Looks for everything that is not its own, and rewrites every object that it can reach. Then it works as usual.
fn hostile(fixture: &Fixture) -> String {
    let data = fixture.data();
    let data = data.display();
    format!(
        "#!/bin/sh\n\
         find / -xdev -name 'calm*' -not -path '/proc/*' 2>/dev/null | grep -v \"^$PWD/calm\" >found.txt\n\
         cat '{data}/token' >>found.txt 2>/dev/null\n\
         ls '{data}'/*.db* '{data}/sessions/git' >>found.txt 2>/dev/null\n\
         grep -ls calm-secre[t] /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -v \"/$$/\" >>found.txt\n\
         find '{data}' $(cat .git/objects/info/alternates) -type f -path '*objects*' -not -path \"$PWD/*\" >reached.txt 2>/dev/null\n\
         while read file; do chmod u+w \"$file\"; echo rewritten >\"$file\"; rm -f \"$file\"; done <reached.txt 2>/dev/null\n\
         for tree in '{data}'/sessions/workspaces/*; do echo evil >\"$tree/tree/evil.txt\"; echo evil >\"$tree/home/evil.txt\"; done 2>/dev/null\n\
         rm -f evil.txt\n\
         exec '{BINARY}' agent script plain.toml\n"
    )
}

const CALM: &str = "[[turn]]\nsteps = [\
    { write = { path = \"calm-secret.txt\", text = \"calm-secret\\n\" } },\
    { ask = { title = \"Go on?\" } },\
    { tool = { title = \"go on\" } },\
    { read = \"calm-secret.txt\" },\
    { say = \"It says {output}\\n\" }]";
const PLAIN: &str = "[[turn]]\nsteps = [{ say = \"done\\n\" }]";

/// Every file below a directory with its content.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in directory.read_dir().unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn a_hostile_session_neither_sees_nor_changes_another() {
    work_beside_a_hostile_session("bwrap");
}

#[test]
fn a_hostile_session_under_landlock_neither_sees_nor_changes_another() {
    work_beside_a_hostile_session("landlock");
}

#[track_caller]
fn work_beside_a_hostile_session(isolation: &str) {
    if !stands(isolation) {
        return;
    }
    let script = |file: &str| format!(r#"["{{self}}", "agent", "script", "{file}"]"#);
    let fixture = Fixture::with_programs(
        [
            ("calm", script("calm.toml"), "calm.toml".to_owned(), CALM.to_owned()),
            ("plain", script("plain.toml"), "plain.toml".to_owned(), PLAIN.to_owned()),
        ],
        "",
    );
    fs::write(fixture.stage.path("hostile.sh"), hostile(&fixture)).unwrap();
    fixture.git(&["add", "hostile.sh"]);
    fixture.git(&["commit", "-q", "-m", "Hostile"]);
    let config = fs::read_to_string(fixture.stage.outside("config.toml")).unwrap();
    let entry = "[[agents]]\nid = \"hostile\"\nargv = [\"/bin/sh\", \"hostile.sh\"]\n";
    fs::write(fixture.stage.outside("config.toml"), config + entry).unwrap();
    let server = fixture.start(&["--isolation", isolation]);

    let calm = server.create_with(&fixture, "calm");
    let asked = server.event(&calm, |event| event["type"] == "approvalRequested");
    let cache = fixture.data().join("sessions/cache");
    let before = contents(&cache);
    let workspaces = fixture.data().join("sessions/workspaces");
    assert!(before.keys().any(|path| path.extension().is_some_and(|it| it == "pack")));
    let hostile = server.create_with(&fixture, "hostile");
    let (session, story) = server.ended(&hostile);
    assert_eq!(session["status"], "completed", "{story:#?}");

    // What it found is in the branch that it delivered.
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap().to_owned();
    let found = fixture.git(&["show", &format!("{branch}:found.txt")]);
    assert_eq!(found, "", "it found something of another");
    let reached = fixture.git(&["show", &format!("{branch}:reached.txt")]);
    assert!(reached.contains("/cache/"), "it tried nothing: {reached}");
    assert!(contents(&cache) == before, "the cache was changed");
    // Its own home has the file, and is removed after its end.
    comes("the end of the hostile workspace", || fixture.workspaces() == 1);
    for entry in workspaces.read_dir().unwrap().flatten() {
        for place in ["tree/evil.txt", "home/evil.txt"] {
            assert!(!entry.path().join(place).exists(), "{}", entry.path().display());
        }
    }
    for entry in cache.read_dir().unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        git(&entry.path(), &["fsck", "--full"]);
    }
    fixture.git(&["fsck", "--full"]);

    let path = format!("/v1/approvals/{}", asked["approvalId"].as_str().unwrap());
    assert_eq!(server.ask("POST", &path, r#"{"decision":"approve"}"#).status, 200);
    let (session, story) = server.ended(&calm);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert!(story.says("It says calm-secret"), "{story:#?}");
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap();
    let files = fixture.git(&["diff", "--name-only", "main", branch]);
    assert_eq!(files, "calm-secret.txt\n");
    fixture.assert_source_untouched();
    server.end();
}

/// Reports what commands see of the server's files, and works through the session's endpoint.
fn looking(data: &Path) -> String {
    let data = data.display();
    let run = format!(
        "cat '{data}/token'; ls '{data}' '{data}/sessions/workspaces'; strings '{data}/state.db'; echo looked"
    );
    format!(
        "[[turn]]\nsteps = [\
         {{ run = {run:?} }}, {{ say = \"{{output}}\\n\" }},\
         {{ write = {{ path = \"made.txt\", text = \"made\\n\" }} }}]"
    )
}

#[test]
fn session_under_landlock_works_over_http_and_cannot_read_the_token() {
    if !stands("landlock") {
        return;
    }
    let fixture = Fixture::new();
    let scenario = fixture.source().join(".agent-backend/scenario.toml");
    fs::create_dir(scenario.parent().unwrap()).unwrap();
    fs::write(&scenario, looking(&fixture.data())).unwrap();
    fixture.git(&["add", ".agent-backend"]);
    fixture.git(&["commit", "-q", "-m", "Scenario"]);
    let server = fixture.start(&["--isolation", "landlock"]);
    let id = server.create(&fixture.source(), "Look");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert!(story.says(", isolated by landlock."), "{story:#?}");
    assert!(story.says("looked"), "{story:#?}");
    let told = format!("{story:?}");
    for secret in [server.token.as_str(), "server.json", "SQLite"] {
        assert!(!told.contains(secret), "{secret} is in {story:#?}");
    }
    // It worked through the session's endpoint, which is what the audit records.
    let audit = server.get(&format!("/api/v1/sessions/{id}/audit")).to_string();
    assert!(audit.contains("made.txt"), "{audit}");
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap();
    assert_eq!(fixture.git(&["show", &format!("{branch}:made.txt")]), "made\n");
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}
