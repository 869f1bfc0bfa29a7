//! The rules of a task request.

use std::collections::BTreeMap;

use super::{
    DeliveryMode, NetworkMode, RepoMode, RepoSource, RequestedAgent, RequestedDelivery,
    RequestedLimits, RequestedRuntime, RequestedWorkspace, RuntimeType, SnapshotProvider, Task,
};
use crate::agent_setting::check_settings;
use crate::available::TaskCapabilities;
use crate::budget::budget;
use crate::fields::{self, Fields, not_one_of, one_of};
use crate::id::UploadId;
use crate::prompt::check_prompt;
use crate::upload::TaskAttachment;
use crate::violation::FieldViolations;

const MAX_URL_BYTES: usize = 2048;
const MAX_REF_BYTES: usize = 200;
const MAX_NAME_BYTES: usize = 64;
const MAX_LABELS: usize = 64;
const MAX_LABEL_VALUE_BYTES: usize = 256;
const MAX_PREFERENCES: usize = 16;
const MAX_ATTACHMENTS: usize = 32;
/// Maximum number of sessions of one task.
const MAX_SESSIONS: usize = 16;
const MAX_CPU: f64 = 1024.0;
const MIN_MEMORY_MIB: f64 = 16.0;
const MAX_MEMORY_MIB: f64 = 16.0 * 1024.0 * 1024.0;

const REPO_MODES: &[(&str, RepoMode)] =
    &[("git", RepoMode::Git), ("upload", RepoMode::Upload), ("none", RepoMode::None)];
const RUNTIME_TYPES: &[(&str, RuntimeType)] = &[
    ("local", RuntimeType::Local),
    ("disabled", RuntimeType::Disabled),
    ("devcontainer", RuntimeType::Devcontainer),
];
const DELIVERY_MODES: &[(&str, DeliveryMode)] =
    &[("branch", DeliveryMode::Branch), ("patch", DeliveryMode::Patch), ("pr", DeliveryMode::Pr)];
const PROVIDERS: &[(&str, SnapshotProvider)] = &[
    ("zfs", SnapshotProvider::Zfs),
    ("btrfs", SnapshotProvider::Btrfs),
    ("overlay", SnapshotProvider::Overlay),
    ("git", SnapshotProvider::Git),
    ("copy", SnapshotProvider::Copy),
];

const NETWORK_TYPES: &[(&str, NetworkMode)] =
    &[("shared", NetworkMode::Shared), ("none", NetworkMode::None)];

/// The transports that git may use. Other transports, such as `ext::`, run commands.
const SCHEMES: &[&str] = &["https", "http", "ssh", "git", "file"];

pub(super) fn task(body: &[u8], offers: &TaskCapabilities) -> Result<Task, FieldViolations> {
    let mut found = FieldViolations::default();
    let members = fields::parsed(body)?;
    let mut body = Fields::body(&members);
    let repo = repo(body.object("repo", &mut found), offers, &mut found);
    let default_delivery = match repo.mode {
        RepoMode::Git => DeliveryMode::Branch,
        // A copy has no branches, so its result is a patch.
        RepoMode::Upload | RepoMode::None => DeliveryMode::Patch,
    };
    let task = Task {
        tenant_id: name(&mut body, "tenantId", &mut found),
        project_id: name(&mut body, "projectId", &mut found),
        prompt: prompt(&mut body, &mut found),
        repo,
        runtime: runtime(body.object("runtime", &mut found), offers, &mut found),
        workspace: workspace(body.object("workspace", &mut found), offers, &mut found),
        agents: agents(&mut body, offers, &mut found),
        delivery: delivery(body.object("delivery", &mut found), default_delivery, &mut found),
        labels: labels(&mut body, &mut found),
        keep_open: body.flag("keepOpen", &mut found).unwrap_or(offers.default_keep_open),
        budget: budget(body.object("budget", &mut found), &mut found),
        attachments: attachments(&mut body, &mut found),
    };
    body.refuse_unavailable("webhooks", &mut found);
    body.end(&mut found);
    found.into_result(task)
}

fn prompt(body: &mut Fields<'_>, found: &mut FieldViolations) -> String {
    let prompt = body.required_text("prompt", found).unwrap_or("-");
    check_prompt(prompt, found);
    prompt.to_owned()
}

fn name(body: &mut Fields<'_>, field: &'static str, found: &mut FieldViolations) -> Option<String> {
    let text = body.text(field, found)?;
    if !is_name(text) {
        found.add_invalid(field, NAME_RULE);
    }
    Some(text.to_owned())
}

pub(crate) const NAME_RULE: &str = "must be 1 to 64 letters, digits, dots, hyphens or underscores";

pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.chars().all(is_allowed)
}

fn repo(
    mut fields: Fields<'_>,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) -> RepoSource {
    let mode = fields.choice("mode", REPO_MODES, found).unwrap_or_default();
    let url = match mode {
        RepoMode::Git => fields.required_text("url", found),
        RepoMode::Upload | RepoMode::None => fields.text("url", found),
    };
    if let Some(url) = url {
        check_url(url, fields.path("url"), offers, found);
    }
    let template = match mode {
        RepoMode::None => fields.required_text("template", found),
        RepoMode::Git | RepoMode::Upload => fields.text("template", found),
    };
    let directory = template.and_then(|name| offers.templates.get(name));
    match (mode, template) {
        (RepoMode::None, Some(name)) if directory.is_none() => {
            let known: Vec<&str> = offers.templates.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
            let name: String = name.chars().take(MAX_NAME_BYTES).collect();
            let message = format!("{name:?} is not a template of this server: {known}");
            found.add_unavailable(fields.path("template"), message);
        }
        (RepoMode::Git | RepoMode::Upload, Some(_)) => {
            found.add_invalid(fields.path("template"), "needs the repo.mode \"none\"");
        }
        _ => {}
    }
    if mode != RepoMode::Git && url.is_some() {
        found.add_invalid(fields.path("url"), "needs the repo.mode \"git\"");
    }
    let upload_id = match mode {
        RepoMode::Upload => fields.required_text("uploadId", found),
        RepoMode::Git | RepoMode::None => fields.text("uploadId", found),
    };
    let upload_id = upload_id.and_then(|text| upload(text, fields.path("uploadId"), found));
    if mode != RepoMode::Upload && upload_id.is_some() {
        found.add_invalid(fields.path("uploadId"), "needs the repo.mode \"upload\"");
    }
    let branch = branch(&mut fields, "branch", found);
    let commit = fields.text("commit", found);
    if commit.is_some_and(|commit| !is_commit(commit)) {
        found.add_invalid(fields.path("commit"), "must be 4 to 64 hexadecimal digits");
    }
    fields.end(found);
    RepoSource {
        mode,
        url: directory.map_or(url.unwrap_or_default(), String::as_str).to_owned(),
        branch,
        commit: commit.map(str::to_owned),
        template: template.map(str::to_owned),
        upload_id,
    }
}

fn upload(text: &str, field: String, found: &mut FieldViolations) -> Option<UploadId> {
    let id = text.parse();
    if id.is_err() {
        found.add_invalid(field, "must be the ID of an upload, such as upload-01JZ7Q…");
    }
    id.ok()
}

fn attachments(body: &mut Fields<'_>, found: &mut FieldViolations) -> Vec<TaskAttachment> {
    let listed = body.list("attachments", found);
    if listed.len() > MAX_ATTACHMENTS {
        let rule = format!("must have at most {MAX_ATTACHMENTS} entries");
        found.add_invalid("attachments", rule);
    }
    let mut attachments = Vec::<TaskAttachment>::new();
    for (index, entry) in listed.iter().enumerate().take(MAX_ATTACHMENTS) {
        let path = format!("attachments.{index}");
        let Some(mut fields) = Fields::entry(path, entry, found) else { continue };
        let field = fields.path("uploadId");
        let id = fields.required_text("uploadId", found);
        let id = id.and_then(|text| upload(text, field.clone(), found));
        if let Some(upload_id) = id {
            if attachments.iter().any(|known| known.upload_id == upload_id) {
                found.add_invalid(field, "is listed twice");
            }
            attachments.push(TaskAttachment { upload_id, name: String::new(), size: 0 });
        }
        fields.end(found);
    }
    attachments
}

pub(crate) fn check_url(
    url: &str,
    field: String,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) {
    if url.is_empty() || url.len() > MAX_URL_BYTES {
        found.add_invalid(field, format!("must have 1 to {MAX_URL_BYTES} bytes"));
    } else if url.chars().any(char::is_control) || url.starts_with('-') {
        found.add_invalid(field, "must not start with a hyphen or have control characters");
    } else if has_password(url) {
        // The URL is stored and shown with the session, so a URL with a password is refused.
        found.add_invalid(
            field,
            "must not hold a password: git on the server asks its own credential helper",
        );
    } else {
        match repository_place(url) {
            None => found.add_invalid(
                field,
                "must be an https, http, ssh or git URL, user@host:path, or an absolute path",
            ),
            Some(Place::Local) if !offers.allows_local_repositories => found.add_unavailable(
                field,
                "names a local path: only callers on this machine can use one",
            ),
            Some(Place::Local | Place::Remote) => {}
        }
    }
}

/// Whether the URL has the form `scheme://user:password@host`.
fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

enum Place {
    Local,
    Remote,
}

/// Whether the repository `url` is local or remote. `None` for a URL that must not be passed to
/// git.
fn repository_place(url: &str) -> Option<Place> {
    if url.starts_with('/') {
        return Some(Place::Local);
    }
    if let Some((scheme, rest)) = url.split_once("://") {
        let is_known = SCHEMES.contains(&scheme) && !rest.is_empty() && !rest.starts_with('-');
        return match scheme {
            "file" if is_known => Some(Place::Local),
            _ if is_known => Some(Place::Remote),
            _ => None,
        };
    }
    // The scp form is `[user@]host:path`. A URL such as `ext::command` is refused, because it has
    // two colons in a row.
    let (host, path) = url.split_once(':')?;
    let is_host = !host.is_empty() && !host.contains('/') && !host.contains(char::is_whitespace);
    (is_host && !path.is_empty() && !path.starts_with([':', '-'])).then_some(Place::Remote)
}

fn branch(
    fields: &mut Fields<'_>,
    name: &'static str,
    found: &mut FieldViolations,
) -> Option<String> {
    let branch = fields.text(name, found)?;
    if !is_branch(branch) {
        let shown: String = branch.chars().take(MAX_NAME_BYTES).collect();
        found.add_invalid(fields.path(name), format!("{shown:?} is not a valid git branch name"));
    }
    Some(branch.to_owned())
}

/// Whether the name is a valid branch name by the rules of `git check-ref-format --branch`.
fn is_branch(name: &str) -> bool {
    let is_forbidden =
        |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    (1..=MAX_REF_BYTES).contains(&name.len())
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(is_forbidden)
        && name.split('/').all(is_part)
}

fn is_commit(text: &str) -> bool {
    (4..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn runtime(
    mut fields: Fields<'_>,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) -> RequestedRuntime {
    let kind = fields.choice("type", RUNTIME_TYPES, found).unwrap_or_default();
    if kind == RuntimeType::Disabled && !offers.runtimes.contains(&kind) {
        found.add_unavailable(
            fields.path("type"),
            "\"disabled\" needs the server's configuration to allow sessions without a sandbox",
        );
    }
    let network = fields.choice("network", NETWORK_TYPES, found).unwrap_or(offers.default_network);
    if network == NetworkMode::Shared && offers.refuses_shared_network {
        found.add_unavailable(
            fields.path("network"),
            "must be \"none\": this server requires no token, so an agent on the shared network could \
             approve its own requests",
        );
    }
    if network == NetworkMode::None && kind == RuntimeType::Disabled {
        found.add_invalid(fields.path("network"), "must be \"shared\" without a sandbox");
    }
    fields.refuse_unavailable("devcontainerPath", found);
    let limits = resources(fields.object("resources", found), found);
    if limits != RequestedLimits::default() && !offers.enforces_resource_limits {
        found.add_unavailable(fields.path("resources"), "is not available yet");
    }
    fields.end(found);
    let resources = (limits != RequestedLimits::default()).then_some(limits);
    RequestedRuntime { kind, devcontainer_path: None, network: Some(network), resources }
}

fn resources(mut fields: Fields<'_>, found: &mut FieldViolations) -> RequestedLimits {
    let cpu = fields.number("cpu", found);
    if cpu.is_some_and(|cpu| !(0.01..=MAX_CPU).contains(&cpu)) {
        found.add_invalid(fields.path("cpu"), "must be 0.01 to 1024");
    }
    let memory = fields.number("memoryMiB", found);
    let is_size =
        |memory: f64| memory.fract() == 0.0 && (MIN_MEMORY_MIB..=MAX_MEMORY_MIB).contains(&memory);
    if memory.is_some_and(|memory| !is_size(memory)) {
        found.add_invalid(fields.path("memoryMiB"), "must be a whole number from 16 to 16777216");
    }
    fields.end(found);
    RequestedLimits { cpu, memory_mib: memory.map(|memory| memory as u64) }
}

fn workspace(
    mut fields: Fields<'_>,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) -> RequestedWorkspace {
    let path = fields.path("snapshotPreference");
    let mut providers = Vec::new();
    let listed = fields.list("snapshotPreference", found);
    if listed.len() > MAX_PREFERENCES {
        found.add_invalid(&path, format!("must have at most {MAX_PREFERENCES} entries"));
    }
    for (index, entry) in listed.iter().take(MAX_PREFERENCES).enumerate() {
        match entry.as_str().and_then(|text| one_of(text, PROVIDERS)) {
            Some(provider) => providers.push(provider),
            None => found.add_invalid(format!("{path}.{index}"), not_one_of(PROVIDERS)),
        }
    }
    let is_offered = |provider: &SnapshotProvider| offers.snapshot_providers.contains(provider);
    if !providers.is_empty() && !providers.iter().any(is_offered) {
        found.add_unavailable(&path, "names no provider that an executor has");
    }
    let host = fields.text("executionHostId", found);
    if host.is_some_and(|host| !offers.executors.iter().any(|known| known == host)) {
        found.add_unavailable(fields.path("executionHostId"), "names no known executor");
    }
    fields.end(found);
    RequestedWorkspace {
        snapshot_preference: providers,
        execution_host_id: host.map(str::to_owned),
    }
}

/// The agents of the sessions: the entries of `agents`, or the single `agent`.
fn agents(
    body: &mut Fields<'_>,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) -> Vec<RequestedAgent> {
    let listed = body.list("agents", found);
    if listed.is_empty() {
        let mut fields = body.object("agent", found);
        let agent = agent(&mut fields, offers, found);
        fields.end(found);
        return vec![agent];
    }
    if body.map("agent", found).is_some() {
        found.add_invalid("agent", "must be absent if agents is given");
    }
    let mut agents = Vec::new();
    for (index, entry) in listed.iter().enumerate().take(MAX_SESSIONS) {
        let path = format!("agents.{index}");
        let Some(mut fields) = Fields::entry(path.clone(), entry, found) else { continue };
        let agent = agent(&mut fields, offers, found);
        let count = fields.number("count", found).unwrap_or(1.0);
        if count.fract() != 0.0 || !(1.0..=MAX_SESSIONS as f64).contains(&count) {
            let message = format!("must be a whole number from 1 to {MAX_SESSIONS}");
            found.add_invalid(format!("{path}.count"), message);
        }
        fields.end(found);
        agents.extend(std::iter::repeat_n(agent, (count as usize).min(MAX_SESSIONS)));
    }
    if agents.len() > MAX_SESSIONS || listed.len() > MAX_SESSIONS {
        found.add_invalid("agents", format!("must make at most {MAX_SESSIONS} sessions"));
    }
    agents
}

fn agent(
    fields: &mut Fields<'_>,
    offers: &TaskCapabilities,
    found: &mut FieldViolations,
) -> RequestedAgent {
    let kind = fields.required_text("type", found);
    let kind = kind.map(|kind| offers.agent_aliases.get(kind).map_or(kind, String::as_str));
    let versions = kind.and_then(|kind| offers.agents.get(kind));
    if let (Some(kind), None) = (kind, versions) {
        let known: Vec<&str> = offers.agents.keys().map(String::as_str).collect();
        let kind: String = kind.chars().take(MAX_NAME_BYTES).collect();
        let message = format!("{kind:?} is unknown; known agents: {}", known.join(", "));
        found.add_unavailable(fields.path("type"), message);
    }
    let version = fields.text("version", found);
    if let (Some(versions), Some(version)) = (versions, version)
        && version != "latest"
        && !versions.iter().any(|known| known == version)
    {
        found.add_unavailable(fields.path("version"), "is not a version that this server has");
    }
    let known =
        kind.and_then(|kind| offers.agent_settings.get(kind)).map_or(&[][..], Vec::as_slice);
    let path = fields.path("settings");
    let settings = match fields.map("settings", found) {
        Some(given) => check_settings(&path, given, known, found),
        None => serde_json::Map::new(),
    };
    RequestedAgent {
        kind: kind.unwrap_or_default().to_owned(),
        version: Some(version.unwrap_or("latest").to_owned()),
        settings,
    }
}

fn delivery(
    mut fields: Fields<'_>,
    default: DeliveryMode,
    found: &mut FieldViolations,
) -> RequestedDelivery {
    let mode = fields.choice("mode", DELIVERY_MODES, found).unwrap_or(default);
    let target_branch = branch(&mut fields, "targetBranch", found);
    fields.end(found);
    RequestedDelivery { mode, target_branch }
}

fn labels(body: &mut Fields<'_>, found: &mut FieldViolations) -> BTreeMap<String, String> {
    let Some(members) = body.map("labels", found) else { return BTreeMap::new() };
    if members.len() > MAX_LABELS {
        found.add_invalid("labels", format!("must have at most {MAX_LABELS} entries"));
        return BTreeMap::new();
    }
    let mut labels = BTreeMap::new();
    for (key, value) in members {
        let shown: String = key.chars().take(MAX_NAME_BYTES).collect();
        let path = format!("labels.{shown}");
        if !is_name(key) {
            found.add_invalid(&path, format!("has an invalid name: {NAME_RULE}"));
        }
        match value.as_str() {
            None => found.add_invalid(path, "must be a string"),
            Some(value) if value.len() > MAX_LABEL_VALUE_BYTES => {
                found.add_invalid(path, format!("must have at most {MAX_LABEL_VALUE_BYTES} bytes"));
            }
            Some(value) => {
                labels.insert(key.clone(), value.to_owned());
            }
        }
    }
    labels
}
