//! Skills: what is found, every problem, and what a model gets.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use ab_testkit::gate::{GuardLog, ScriptedGuard, ScriptedGuardBehavior};
use agent_backend::agent::{
    AgentDefinition, AgentTools, DiscoveredSkills, FilesystemToolset, MAX_SKILL_BYTES,
    SessionOptions, ShellToolset, SkillsToolset,
};
use agent_backend::{Backend, Guards, NarrowOptions, Verb, memory};
use serde_json::json;

use super::{call, failed, local, session, worked};

fn skill(name: &str, description: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n{body}")
}

async fn found(backend: &Backend, directories: &[&str]) -> (Vec<String>, Vec<String>) {
    let DiscoveredSkills { skills, problems } =
        DiscoveredSkills::discover(backend, directories).await;
    let names = skills.iter().map(|skill| skill.name.clone()).collect();
    (names, problems.iter().map(ToString::to_string).collect())
}

/// Checks that nothing is found, and that the one problem says this of this path.
async fn one_problem(backend: &Backend, directories: &[&str], path: &str, says: &str) {
    let (names, problems) = found(backend, directories).await;
    let [problem] = problems.as_slice() else { panic!("{names:?} {problems:?}") };
    assert!(names.is_empty(), "{names:?}");
    assert!(problem.starts_with(path) && problem.contains(says), "{problem}");
}

/// The tools of a session that also reads files.
async fn beside_files(backend: &Backend, skills: SkillsToolset) -> AgentTools {
    let definition = AgentDefinition::builder()
        .backend(backend.clone())
        .toolset(skills)
        .toolset(FilesystemToolset::new())
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    session.tools().await.unwrap()
}

#[tokio::test]
async fn paths_of_skills_count_from_the_backend() {
    let foo = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(foo.path().join("skills/greet")).unwrap();
    let text = skill("greet", "Greets people", "Say hello.\n");
    std::fs::write(foo.path().join("skills/greet/SKILL.md"), text).unwrap();
    let backend = local(foo.path());
    for directory in ["./skills", "/skills", "skills"] {
        let toolset = SkillsToolset::in_directories([directory]);
        let tools = beside_files(&backend, toolset).await;
        assert!(tools.instructions().contains("- greet: Greets people"), "{directory}");
        let used = call(&tools, "use_skill", json!({ "skillName": "greet" })).await;
        let text = worked(used);
        assert!(
            text.starts_with("Say hello.\n[files of this skill are in 'skills/greet'"),
            "{text}"
        );
    }
    let (_session, tools) = session(&backend, SkillsToolset::new()).await;
    assert_eq!(tools.all_tools().len(), 1, "the directory skills is looked at by default");
    let (_session, tools) = session(&memory(), SkillsToolset::new()).await;
    assert!(tools.all_tools().is_empty() && tools.instructions().is_empty(), "and may be missing");
}

#[tokio::test]
async fn scripts_of_a_skill_run_through_the_backend() {
    let root = tempfile::tempdir().unwrap();
    let backend = local(root.path());
    let body = "Run scripts/count.sh with a file.";
    backend.write("skills/count/SKILL.md", skill("count", "Counts lines", body)).await.unwrap();
    backend.write("skills/count/scripts/count.sh", "wc -l < \"$1\"\n").await.unwrap();
    backend.write("poem.txt", "a\nb\nc\n").await.unwrap();
    let definition = AgentDefinition::builder()
        .backend(backend)
        .toolset(SkillsToolset::new())
        .toolset(ShellToolset::new())
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let used = call(&tools, "use_skill", json!({ "skillName": "count" })).await;
    let data = used.data.clone().unwrap();
    assert_eq!(data["files"], json!(["skills/count/scripts/count.sh"]));
    let told = worked(used);
    let place = root.path().canonicalize().unwrap().join("skills/count");
    assert!(told.contains(place.to_str().unwrap()), "{told}");
    let script = data["files"][0].as_str().unwrap();
    let ran = call(&tools, "exec", json!({ "command": format!("sh {script} poem.txt") })).await;
    assert_eq!(worked(ran).trim(), "3");
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_is_a_problem() {
    let backend = memory();
    backend.write("file", "x").await.unwrap();
    one_problem(&backend, &["nowhere"], "nowhere: cannot be listed", "").await;
    one_problem(&backend, &["file"], "file: cannot be listed", "").await;
    one_problem(&backend, &["../out"], "../out: cannot be listed", "").await;
    // Whatever refuses, the model is told, and other skills are there.
    backend.write("skills/a/SKILL.md", skill("a", "Does a", "")).await.unwrap();
    let log = GuardLog::default();
    let refuses =
        ScriptedGuard::new(0, ScriptedGuardBehavior::Refuse, &log).only_for_verbs(&[Verb::List]);
    let guards = Guards { policy: vec![Arc::new(refuses)], ..Guards::default() };
    let closed = backend.narrow(NarrowOptions { guards, ..NarrowOptions::default() }).unwrap();
    let (_session, tools) = session(&closed, SkillsToolset::in_directories(["skills"])).await;
    assert!(tools.instructions().contains("skills: cannot be listed"), "{}", tools.instructions());
    let toolset = SkillsToolset::in_directories(["nowhere", "skills"]);
    let (_session, tools) = session(&backend, toolset).await;
    let told = tools.instructions();
    assert!(told.contains("- a: Does a") && told.contains("- nowhere: cannot be listed"), "{told}");
}

#[tokio::test]
async fn a_skill_that_cannot_be_read_is_a_problem() {
    let backend = memory();
    backend.write("skills/a/SKILL.md/inside", "a directory").await.unwrap();
    one_problem(&backend, &["skills"], "skills/a/SKILL.md: cannot be read", "").await;
    // Readable when it was found and gone when it is used: the model is told.
    let backend = memory();
    backend.write("skills/b/SKILL.md", skill("b", "Does b", "body")).await.unwrap();
    let (_session, tools) = session(&backend, SkillsToolset::new()).await;
    backend.rm("skills/b/SKILL.md", Default::default()).await.unwrap();
    let used = call(&tools, "use_skill", json!({ "skillName": "b" })).await;
    failed(used, "skills/b/SKILL.md");
}

#[tokio::test]
async fn a_skill_behind_a_link_out_of_the_workspace_is_a_problem() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("SKILL.md"), skill("out", "Leads out", "")).unwrap();
    std::fs::create_dir_all(root.path().join("skills")).unwrap();
    symlink(outside.path(), root.path().join("skills/out")).unwrap();
    let backend = local(root.path());
    one_problem(&backend, &["skills"], "skills/out/SKILL.md: cannot be read", "").await;
    // One that stays inside is followed.
    backend.write("shared/in/SKILL.md", skill("in", "Stays in", "")).await.unwrap();
    symlink("../shared/in", root.path().join("skills/in")).unwrap();
    assert_eq!(found(&backend, &["skills"]).await.0, ["in"]);
}

#[tokio::test]
async fn of_two_skills_with_one_name_the_later_is_used_and_the_earlier_named() {
    let backend = memory();
    backend.write("base/fmt/SKILL.md", skill("fmt", "Old", "old")).await.unwrap();
    backend.write("team/fmt/SKILL.md", skill("fmt", "New", "new")).await.unwrap();
    let (names, problems) = found(&backend, &["base", "team"]).await;
    assert_eq!(names, ["fmt"]);
    assert_eq!(problems, ["base/fmt: the skill fmt of team/fmt is used instead of this one"]);
    let toolset = SkillsToolset::in_directories(["base", "team"]);
    let (_session, tools) = session(&backend, toolset).await;
    let used = call(&tools, "use_skill", json!({ "skillName": "fmt" })).await;
    assert!(worked(used).starts_with("new\n"));
}

#[tokio::test]
async fn frontmatter_that_is_not_as_it_should_be_is_a_problem() {
    for (text, says) in [
        ("---\nname: [unclosed\n---\n", "invalid frontmatter"),
        ("---\nname: a\n---\n", "description"),
        ("# Just text\n", "no frontmatter"),
        ("---\nname: a\ndescription: b\n", "no end"),
        ("---\nname: A B\ndescription: b\n---\n", "invalid name"),
        ("", "no frontmatter"),
    ] {
        let backend = memory();
        backend.write("skills/a/SKILL.md", text).await.unwrap();
        one_problem(&backend, &["skills"], "skills/a/SKILL.md", says).await;
    }
    let backend = memory();
    backend.write("skills/a/SKILL.md", vec![b'-', b'-', b'-', b'\n', 0xff, 0xfe]).await.unwrap();
    one_problem(&backend, &["skills"], "skills/a/SKILL.md", "not UTF-8").await;
    // Another name than its directory is told, and the skill is there.
    let backend = memory();
    backend.write("skills/dir/SKILL.md", skill("other", "Does it", "")).await.unwrap();
    let (names, problems) = found(&backend, &["skills"]).await;
    assert_eq!(names, ["other"]);
    assert!(problems[0].contains("both names must be the same"), "{problems:?}");
    // Directories without a skill and hidden ones are none.
    let backend = memory();
    backend.write("skills/plain/readme.md", "x").await.unwrap();
    backend.write("skills/.hidden/SKILL.md", "x").await.unwrap();
    backend.write("skills/file.md", "x").await.unwrap();
    assert_eq!(found(&backend, &["skills"]).await, (vec![], vec![]));
}

#[tokio::test]
async fn a_large_skill_is_shown_in_part_and_one_that_is_too_large_is_a_problem() {
    let backend = memory();
    let line = "a line of sixteen\n";
    let head = skill("big", "Is big", "");
    let body = line.repeat((MAX_SKILL_BYTES as usize - head.len()) / line.len());
    backend.write("skills/big/SKILL.md", format!("{head}{body}")).await.unwrap();
    let tools = beside_files(&backend, SkillsToolset::new()).await;
    let text = worked(call(&tools, "use_skill", json!({ "skillName": "big" })).await);
    assert!(text.len() < 110 * 1024, "{}", text.len());
    let (_, rest) = text.split_once("and offset ").unwrap();
    let offset: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    // Reading goes on with the next line.
    let shown = text.matches(line).count() as u64;
    assert_eq!(offset, shown + 4 + 1, "four lines of frontmatter come before");
    let large = format!("{head}{body}{line}{line}");
    assert!(large.len() as u64 > MAX_SKILL_BYTES);
    backend.write("skills/big/SKILL.md", large).await.unwrap();
    one_problem(&backend, &["skills"], "skills/big/SKILL.md", "too large").await;
    // Frontmatter that never ends is not read to its end.
    let endless = format!("---\nname: {}", "x".repeat(1024 * 1024));
    backend.write("skills/big/SKILL.md", endless).await.unwrap();
    one_problem(&backend, &["skills"], "skills/big/SKILL.md", "no end").await;
}

#[tokio::test]
async fn use_skill_with_wrong_arguments_says_what_there_is() {
    let backend = memory();
    for name in ["one", "two"] {
        let path = format!("skills/{name}/SKILL.md");
        backend.write(&path, skill(name, "Does it", "x")).await.unwrap();
    }
    let (_session, tools) = session(&backend, SkillsToolset::new()).await;
    for (arguments, says) in [
        (json!({}), "needs 'skillName', one of one, two"),
        (json!({ "skillName": 1 }), "needs 'skillName'"),
        (json!({ "skillName": "three" }), "there is no skill 'three'; the skills are one, two"),
        (json!({ "skillName": "../one" }), "there is no skill"),
        (json!({ "name": "one" }), "has no argument 'name'"),
    ] {
        failed(call(&tools, "use_skill", arguments).await, says);
    }
    // The model is told of 20 problems and how many more there are.
    for number in 0..25 {
        backend.write(&format!("skills/p{number}/SKILL.md"), "no").await.unwrap();
    }
    let (_session, tools) = session(&backend, SkillsToolset::new()).await;
    assert_eq!(tools.instructions().matches("no frontmatter").count(), 20);
    assert!(tools.instructions().ends_with("and 5 more"), "{}", tools.instructions());
}
