//! The form for a new task.

use ab_api::Violations;
use maud::{Markup, html};

use super::layout::{Chrome, Live, Section, frame};

/// What the form holds, as the person wrote it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskForm {
    pub(crate) prompt: String,
    pub(crate) repo: String,
    pub(crate) branch: String,
    pub(crate) agent: String,
    pub(crate) delivery: String,
    pub(crate) keep_open: bool,
}

/// The form, with what was wrong with the last try beside each field.
pub(crate) fn task_form(
    chrome: Chrome,
    form: &TaskForm,
    agents: &[String],
    problems: &Violations,
) -> Markup {
    let errors = problems.errors();
    let invalid = |field: &str| errors.contains_key(field).then_some("true");
    let problem = |field: &str| {
        let told = errors.get(field).map(Vec::as_slice).unwrap_or_default();
        html! { @for said in told { span.problem { (said) } } }
    };
    let body = html! {
        h1 { "New task" }
        form.task method="post" action="/ui/new" {
            label {
                "What shall the agent do?"
                textarea name="prompt" required autofocus aria-invalid=[invalid("prompt")] { (form.prompt) }
                (problem("prompt"))
            }
            label {
                "Repository"
                span.hint { "A path on the server's machine, or an address that its git can clone." }
                input name="repo" required value=(form.repo) aria-invalid=[invalid("repo.url")];
                (problem("repo.url"))
            }
            div.pair {
                label {
                    "Agent"
                    select name="agent" aria-invalid=[invalid("agent.type")] {
                        @for agent in agents { option value=(agent) selected[*agent == form.agent] { (agent) } }
                    }
                    (problem("agent.type"))
                }
                label {
                    "Result"
                    select name="delivery" {
                        option value="branch" selected[form.delivery != "patch"] { "a new branch" }
                        option value="patch" selected[form.delivery == "patch"] { "a patch" }
                    }
                    (problem("delivery.mode"))
                }
            }
            label {
                "Branch"
                span.hint { "An existing branch is where the work starts; a new name is what the result is called. May stay empty." }
                input name="branch" value=(form.branch) aria-invalid=[invalid("repo.branch")];
                (problem("repo.branch"))
            }
            label.check {
                input type="checkbox" name="keep_open" value="true" checked[form.keep_open];
                "Keep the session open for further prompts"
            }
            div.actions { button.primary type="submit" { "Start" } a href="/ui" { "Cancel" } }
        }
    };
    frame(chrome, "New task", Section::NewTask, &Live::default(), body)
}
