//! How each agent is pointed at the scripted model.

use serde_json::json;

/// An agent that is tested with a model of ours.
#[derive(Clone, Copy)]
pub(super) struct Vendor {
    /// Its id in the catalog.
    pub(super) agent: &'static str,
    /// The variable with its key.
    pub(super) key: &'static str,
    /// Whether events show what a command of it prints of its key. Commands of copilot do not get the key.
    pub(super) shows_key: bool,
    /// The end of the path that it asks the model at.
    pub(super) api: &'static str,
    /// A model that a task asks for by a setting, where the scripted model takes any name.
    pub(super) asked_model: Option<&'static str>,
    /// Its other variables, for a model at this address.
    pub(super) variables: fn(&str) -> Vec<(&'static str, String)>,
}

pub(super) const VENDORS: [Vendor; 7] = [
    Vendor {
        agent: "goose",
        key: "OPENAI_API_KEY",
        shows_key: true,
        api: "/chat/completions",
        asked_model: Some("of-a-setting"),
        variables: |url| {
            vec![
                ("GOOSE_PROVIDER", "openai".to_owned()),
                ("GOOSE_MODEL", "scripted".to_owned()),
                ("OPENAI_HOST", url.to_owned()),
                ("OPENAI_BASE_PATH", "v1/chat/completions".to_owned()),
            ]
        },
    },
    Vendor {
        agent: "gemini",
        key: "GEMINI_API_KEY",
        shows_key: true,
        api: ":streamGenerateContent?alt=sse",
        asked_model: Some("gemini-2.5-pro"),
        variables: |url| {
            vec![
                ("GOOGLE_GEMINI_BASE_URL", url.to_owned()),
                ("GEMINI_MODEL", "gemini-2.5-flash".to_owned()),
            ]
        },
    },
    Vendor {
        agent: "codex",
        key: "OPENAI_API_KEY",
        shows_key: true,
        api: "/responses",
        asked_model: None,
        variables: |url| {
            let provider = json!({
                "name": "scripted", "base_url": format!("{url}/v1"), "wire_api": "responses",
                "requires_openai_auth": true,
            });
            let config = json!({
                "model": "gpt-5.5", "model_provider": "scripted",
                "model_providers": { "scripted": provider },
            });
            vec![("CODEX_CONFIG", config.to_string()), ("MODEL_PROVIDER", "scripted".to_owned())]
        },
    },
    Vendor {
        agent: "claude",
        key: "ANTHROPIC_API_KEY",
        shows_key: true,
        api: "/messages?beta=true",
        asked_model: None,
        variables: |url| vec![("ANTHROPIC_BASE_URL", url.to_owned())],
    },
    Vendor {
        agent: "copilot",
        key: "COPILOT_PROVIDER_API_KEY",
        shows_key: false,
        api: "/chat/completions",
        asked_model: None,
        variables: |url| {
            vec![
                ("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1")),
                ("COPILOT_MODEL", "scripted".to_owned()),
                ("COPILOT_OFFLINE", "true".to_owned()),
            ]
        },
    },
    Vendor {
        agent: "opencode",
        key: "OPENAI_API_KEY",
        shows_key: true,
        api: "/chat/completions",
        asked_model: None,
        variables: |url| {
            let options =
                json!({ "baseURL": format!("{url}/v1"), "apiKey": "{env:OPENAI_API_KEY}" });
            let provider = json!({
                "npm": "@ai-sdk/openai-compatible", "options": options, "models": { "scripted": {} },
            });
            let config = json!({
                "model": "scripted/scripted", "provider": { "scripted": provider },
            });
            vec![
                ("OPENCODE_CONFIG_CONTENT", config.to_string()),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
            ]
        },
    },
    Vendor {
        agent: "qwen",
        key: "OPENAI_API_KEY",
        shows_key: true,
        api: "/chat/completions",
        asked_model: None,
        variables: |url| {
            vec![("OPENAI_BASE_URL", format!("{url}/v1")), ("OPENAI_MODEL", "scripted".to_owned())]
        },
    },
];

pub(super) fn vendor(agent: &str) -> Vendor {
    let found = VENDORS.into_iter().find(|vendor| vendor.agent == agent);
    found.unwrap_or_else(|| panic!("the tests know no agent {agent:?}"))
}
