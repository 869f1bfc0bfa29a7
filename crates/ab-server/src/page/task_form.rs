//! The form for a new task.

use ab_api::FieldViolations;
use maud::{Markup, html};

use super::layout::{Chrome, Live, Section, frame};

/// The values of the form, as the user entered them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskForm {
    pub(crate) prompt: String,
    pub(crate) repo: String,
    pub(crate) branch: String,
    pub(crate) agent: String,
    pub(crate) delivery: String,
    pub(crate) keep_open: bool,
}

/// The choices that the form offers.
#[derive(Debug)]
pub(crate) struct FormOffers {
    pub(crate) agents: Vec<String>,
    /// Repositories that recent sessions have used.
    pub(crate) repositories: Vec<String>,
}

/// Renders the form, with the errors of the last attempt next to each field.
pub(crate) fn task_form(
    chrome: Chrome,
    form: &TaskForm,
    offers: &FormOffers,
    problems: &FieldViolations,
) -> Markup {
    let errors = problems.messages_by_field();
    let invalid = |field: &str| errors.contains_key(field).then_some("true");
    let described = |field: &str| errors.contains_key(field).then(|| problem_id(field));
    let problem = |field: &str| {
        let told = errors.get(field).map(Vec::as_slice).unwrap_or_default();
        html! { @if !told.is_empty() { span.problem id=(problem_id(field)) { (told.join("; ")) } } }
    };
    let shown = ["prompt", "repo.url", "repo.branch", "agent.type", "delivery.mode"];
    let others = errors.iter().filter(|(field, _)| !shown.contains(&field.as_str()));
    let body = html! {
        h1 { "New task" }
        p.quiet { "The agent works on a copy of the repository, in a sandbox. You watch, approve, and get a branch." }
        form.task.card method="post" action="/ui/new" {
            @for (field, told) in others { p.callout data-tone="bad" { (field) ": " (told.join("; ")) } }
            label {
                "What shall the agent do?"
                textarea name="prompt" rows="6" required autofocus aria-invalid=[invalid("prompt")] aria-describedby=[described("prompt")] { (form.prompt) }
                (problem("prompt"))
            }
            label {
                "Repository"
                input name="repo" required value=(form.repo) list="repositories" autocomplete="off" spellcheck="false" aria-invalid=[invalid("repo.url")] aria-describedby=[described("repo.url")];
                (problem("repo.url"))
                span.hint { "A directory on the server's machine, or an address that its git can clone." }
            }
            datalist #repositories { @for repository in &offers.repositories { option value=(repository) {} } }
            div.pair {
                label {
                    "Agent"
                    select name="agent" aria-invalid=[invalid("agent.type")] aria-describedby=[described("agent.type")] {
                        @for agent in &offers.agents { option value=(agent) selected[*agent == form.agent] { (agent) } }
                    }
                    (problem("agent.type"))
                }
                label {
                    "Result"
                    select name="delivery" aria-invalid=[invalid("delivery.mode")] aria-describedby=[described("delivery.mode")] {
                        option value="branch" selected[form.delivery != "patch"] { "a new branch" }
                        option value="patch" selected[form.delivery == "patch"] { "a patch" }
                    }
                    (problem("delivery.mode"))
                }
            }
            label {
                span { "Branch " span.hint { "optional" } }
                input name="branch" value=(form.branch) autocomplete="off" spellcheck="false" aria-invalid=[invalid("repo.branch")] aria-describedby=[described("repo.branch")];
                (problem("repo.branch"))
                span.hint { "One that exists is where the work starts. A new name is what the result is called." }
            }
            label.check {
                input type="checkbox" name="keep_open" value="true" checked[form.keep_open];
                "Keep the session open for further prompts"
            }
            div.actions { button.primary type="submit" { "Start" } a.button href="/ui" { "Back" } }
        }
    };
    frame(chrome, "New task", Section::NewTask, &Live::default(), body)
}

fn problem_id(field: &str) -> String {
    format!("problem-{}", field.replace('.', "-"))
}
